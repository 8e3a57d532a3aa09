"""Dark drawings are inverted in the same way in training, evaluation and prediction."""

import json
import shutil

import numpy as np
import pytest
from evaluations import measured, refusal
from own_files import SIZE, crosses_and_rings, npz, saved
from tiny_runs import edit, go_on, run, summary
from tiny_runs import saved as checkpoint_of

from minicaps.backend import choose_device
from minicaps.data import load
from minicaps.data.images import read_picture
from minicaps.data.preprocessing import Preprocessing
from minicaps.evaluate import select
from minicaps.evaluate.in_memory import evaluate as evaluate_in_memory
from minicaps.models import inspection
from minicaps.predict import __main__ as predict
from minicaps.runs import load_model
from minicaps.runs.run import open_run
from minicaps.train import fit

pytestmark = pytest.mark.usefixtures("undrawn")
CPU = choose_device("cpu")


def write(folder, images, labels):
    for k, (image, label) in enumerate(zip(images, labels, strict=True)):
        saved(folder / ("ring", "cross")[label] / f"{k}.png", image)
    return folder


@pytest.fixture
def paper(tmp_path):
    """A folder of black drawings on white, in which one image is white on black."""
    images, labels = crosses_and_rings(60)
    images[7] = 1 - images[7]
    return write(tmp_path / "paper", images, labels)


def chosen(folder, **options):
    return select.choose(open_run(folder, CPU), **options)


def test_the_decision_is_stored_and_every_command_follows_it(paper, tmp_path, capsys, monkeypatch):
    trained = run("--data", "paper")
    options, meta = summary(trained)["options"], checkpoint_of(trained, "best.npz")[1]
    assert options["invert"] == meta["options"]["invert"] == "yes"
    assert meta["preprocessing"]["inverted"] is True
    assert meta["preprocessing"]["background"] == "dark"
    assert measured(trained)["right"] == summary(trained)["test_right"]
    own = chosen(trained)
    assert own.inverted and "all images are inverted" in own.notes
    assert not any("have changed" in note for note in own.notes)
    for name, image in zip(own.split.names, own.split.images, strict=True):
        np.testing.assert_array_equal(image, 1 - read_picture(paper / name))
    # a copy as other data, decided anew for the whole set
    shutil.copytree(paper, tmp_path / "copy")
    other = chosen(trained, source="copy", part="test")
    assert other.inverted and "--invert no keeps them" in " ".join(other.notes)
    np.testing.assert_array_equal(other.split.images, own.split.images)
    assert not chosen(trained, source="copy", part="test", invert=False).inverted
    # one image at a time; only the odd one is light on dark
    seen, scores = [], inspection.scores
    monkeypatch.setattr(
        inspection, "scores", lambda m, images: seen.extend(images) or scores(m, images)
    )
    for name, image in zip(own.split.names, own.split.images, strict=True):
        assert predict.main([str(trained), str(paper / name), "--no-figures"]) == 0
        np.testing.assert_array_equal(seen[-1], 1 - image if name == "cross/7.png" else image)
    # resumed, nothing is decided anew
    edit(trained / "last.npz", lambda meta: meta["options"].update(invert="yes"))
    monkeypatch.setattr("minicaps.data.ink.dark_on_light", None)
    assert go_on(trained, "--epochs", "2") == trained


def test_the_user_decides(paper, capsys):
    plain = run("--data", "paper", "--invert", "no", out="plain")
    assert summary(plain)["options"]["invert"] == "no"
    model = load_model(plain)
    assert (model.preprocessing.inverted, model.preprocessing.background) == (False, "light")
    assert not chosen(plain).inverted and chosen(plain).split.images.mean() > 0.5
    told = run("--data", "paper", "--invert", "yes", "--compose", "2", out="told")
    assert checkpoint_of(told)[1]["preprocessing"]["inverted"] is True
    assert chosen(told).split.images.mean() < 0.5
    for how in ((), ("auto",), ("no",)):
        said = refusal(capsys, told, "--invert", *how, code=2)
        assert "--invert applies only to data other than the run's own" in said


def test_other_data_is_inverted_to_match(paper, tmp_path):
    """Whatever the training images were, decided for the set, and never for photographs."""
    images, labels = crosses_and_rings(60)
    write(tmp_path / "light", images, labels), write(tmp_path / "dark", 1 - images, labels)
    noise = np.random.default_rng(0).random((60, 1, *SIZE)) ** 0.5
    write(tmp_path / "photographs", noise, labels)
    for name, options in (("paper", ()), ("paper", ("--invert", "no")), ("dark", ())):
        trained = run("--data", name, *options, out="run" + "-".join((name, *options)))
        dark = load_model(trained).preprocessing.background == "dark"
        assert dark == (not options)
        for source in ("light", "dark"):
            found = chosen(trained, source=source)
            assert (found.split.images.mean() < 0.5) == dark
            assert found.inverted == ((source == "light") == dark)
    assert not chosen(trained, source="photographs").inverted
    found = measured(trained, "--data", "light")
    assert found["inverted"] is True
    assert found["right"] == measured(trained, "--data", "light", "--invert")["right"]
    assert measured(trained, "--data", "light", "--invert", "no")["inverted"] is False


def test_an_older_run_reads_images_as_before(paper, tmp_path):
    trained = run("--data", "paper", "--invert", "no", "--size", "28x40")

    def older(meta):
        del meta["options"]["invert"], meta["preprocessing"]["inverted"]
        del meta["preprocessing"]["fill"], meta["preprocessing"]["scale"]

    for name in ("best.npz", "last.npz"):
        edit(trained / name, older)
    known = load_model(trained).preprocessing
    assert known == Preprocessing((1, 28, 40), "light", inverted=None, fill=0)
    own = chosen(trained).split.images
    assert (own[..., 0] == 0).all() and own.mean() > 0.5  # padded with zeros, not inverted
    images, labels = crosses_and_rings(30)
    write(tmp_path / "dark", 1 - images, labels)
    assert not chosen(trained, source="dark").inverted
    found = chosen(trained, source="dark", invert=True)
    assert (found.split.images[..., 0] == 0).all() and found.split.images.mean() > 0.5
    (trained / "split.json").write_text(json.dumps(older_parts(trained)))
    go_on(trained, "--epochs", "2")
    assert checkpoint_of(trained)[1]["options"]["invert"] is None
    assert load_model(trained / "last.npz").preprocessing == known


def older_parts(folder):
    """Return split.json as an older version wrote it, with the checksums of its images."""
    parts = json.loads((folder / "split.json").read_text())
    images = {part: chosen(folder, part=part).split for part in ("train", "validation", "test")}
    return parts | {"sha256": {part: split.sha256() for part, split in images.items()}}


def test_arrays_in_memory_are_inverted_in_training_and_prediction(tmp_path):
    images, labels = crosses_and_rings(80)
    short = {"epochs": 6, "batch_size": 8, "reconstruction": 0, "quiet": True, "device": "cpu"}
    test = images[60:], labels[60:]
    model = fit(images[:60], labels[:60], test=test, out=tmp_path / "auto", **short)
    assert model.preprocessing.inverted and model.preprocessing.background == "dark"
    result = evaluate_in_memory(model, *test)
    assert result["right"] == summary(tmp_path / "auto")["test_right"] > 15
    predicted = model.predict(images[60:])
    np.testing.assert_array_equal(
        predicted.probabilities, model.predict(1 - images[60:], invert=False).probabilities
    )
    automatic = model.predict(1 - images[60:], invert="auto")
    np.testing.assert_array_equal(predicted.probabilities, automatic.probabilities)
    for how, inverted in (("no", False), (False, False), (np.True_, True)):
        plain = fit(images[:60], labels[:60], invert=how, **short | {"epochs": 1})
        assert plain.preprocessing.inverted is inverted
        assert plain.preprocessing.background == ("dark" if inverted else "light")


def test_a_photograph_is_never_inverted_by_itself(tmp_path):
    """Predict does what evaluate did, whatever the border of a test image is."""
    rng = np.random.default_rng(0)
    rough = np.clip(rng.random((60, 1, *SIZE)) ** 0.2, 0, 1)  # light, as snow
    rough[:3] = 1 - rough[:3]
    write(tmp_path / "snow", rough, np.arange(60) % 2)
    trained = run("--data", "snow")
    known = load_model(trained).preprocessing
    assert (known.inverted, known.background) == (False, "mixed")
    assert not load(str(tmp_path / "snow"), invert="auto").inverted
    for image in rough:
        assert not known.apply(image, invert="auto")[1]["inverted"]


def test_the_range_of_the_training_arrays_is_kept(tmp_path):
    """Floats up to 16 train, and others up to 15 are scaled in the same way by every command."""
    images, labels = crosses_and_rings(60)
    images = 16 * (1 - images[:, 0])
    npz("a.npz", images=images, labels=labels)
    trained = run("--data", "a.npz")
    model = load_model(trained)
    assert model.preprocessing.scale == (0, 16)
    assert measured(trained)["right"] == summary(trained)["test_right"]
    assert not any("have changed" in note for note in chosen(trained).notes)
    npz("b.npz", images=images * 15 / 16, labels=labels)
    other = chosen(trained, source="b.npz").split
    assert other.images.max() == np.float32(15 / 16)
    expected = model.predict(images[:5, None] / 16 * (15 / 16)).probabilities
    predicted = model.predict(images[:5] * 15 / 16).probabilities
    np.testing.assert_allclose(predicted, expected, atol=1e-6)
