"""Tests of `python -m minicaps.plot`: the figures of each run, their contents, and faults."""

import os
import signal
import tempfile

import numpy as np
import pytest
from commands import said_by
from own_files import saved
from PIL import Image
from thinning import thinned, thinned_rows
from tiny_runs import ordinary_user, run, send_in_call, summary

from minicaps import data, plot, plotting
from minicaps.backend import choose_device
from minicaps.models import inspection
from minicaps.runs.run import dataset, open_run

ALL = ["curves", "reconstructions", "confusion", "couplings", "sweeps", "kernels"]
PLAIN = {
    name: getattr(plotting, name) for name in ("curves", "reconstructions")
}  # replaced by tiny


@pytest.fixture
def drawn(monkeypatch):
    """Collect the drawing calls as {name: (arguments, keywords)}; write nothing."""
    calls = {}
    for name in ALL:
        monkeypatch.setattr(
            plotting, name, lambda *args, name=name, **keys: calls.update({name: (args, keys)})
        )
    return calls


def draw(capsys, *line, code=0):
    """Run the command; return the lines printed and the text on standard error."""
    said = said_by(capsys, plot.main, *line, "--device", "cpu", code=code)
    return said.out.splitlines(), said.err


WITHOUT = {
    (): [],
    ("--reconstruction", "0"): ["reconstructions", "sweeps"],
    ("--routing", "leaky"): [],
    ("--model", "capsule-cnn"): ["reconstructions", "sweeps"],
    ("--model", "matrix-capsnet"): ["reconstructions", "sweeps"],
    ("--model", "pooling-cnn"): ["reconstructions", "couplings", "sweeps"],
    ("--model", "baseline-cnn", "--size", "4"): ["reconstructions", "couplings", "sweeps"],
}


@pytest.mark.parametrize("options", thinned(WITHOUT))
def test_all_figures_that_a_network_has(options, capsys, monkeypatch):
    trained = run(*options)
    for name, function in PLAIN.items():
        monkeypatch.setattr(plotting, name, function)
    lines, err = draw(capsys, trained)
    missing = WITHOUT[options]
    assert [line for line in lines if line.startswith("no ")] == [
        f"no {what}: this network has no {'capsules' if what == 'couplings' else 'decoder'}"
        for what in ALL
        if what in missing
    ]
    files = [line for line in lines if not line.startswith("no ")]
    assert files == [f"{trained}/figures/{what}.png" for what in ALL if what not in missing]
    assert not err
    for file in files:
        with Image.open(file) as picture:
            assert min(picture.size) > 150
    for what in missing:
        assert f"cannot draw {what}: this network" in draw(capsys, trained, what, code=2)[1]


def test_only_what_is_named_once(capsys, drawn):
    trained = run()
    drawn.clear()  # discard the figures of training
    lines, _ = draw(capsys, trained, "kernels", "couplings", "kernels", "--out", "here")
    assert lines == ["here/kernels.png", "here/couplings.png"]
    assert drawn.keys() == {"kernels", "couplings"}


def test_options_may_stand_anywhere(capsys, drawn):
    trained = run()
    drawn.clear()
    lines, _ = draw(capsys, trained, "--class", "3", "kernels", "--out", "here", "confusion")
    assert lines == ["here/kernels.png", "here/confusion.png"]


@pytest.mark.slow
def test_couplings_and_sweeps_are_of_the_chosen_picture(capsys, drawn):
    trained = run()
    model = open_run(trained, choose_device("cpu")).model
    test = data.load("strokes", limit=1).test
    seven = int(np.flatnonzero(test.labels == 7)[0])
    for line, index in (((), 0), (("--index", 29), 29), (("--class", "7"), seven)):
        draw(capsys, trained, "couplings", "sweeps", *line)
        _, picture, columns, entropies, most, grid = drawn["couplings"][0]
        np.testing.assert_array_equal(picture, test.images[index])
        view = inspection.view(model, picture)
        assert [title for title, *_ in columns] == [
            f"predicted: {view.ranking[0]}",
            f"second: {view.ranking[1]}",
        ]
        np.testing.assert_allclose(
            columns[0][1][-1],
            inspection.share_map(view.couplings[-1], grid, view.answer),
            atol=1e-6,
        )
        assert len(entropies) == 3 and most == pytest.approx(np.log(10))
        _, pictures, offsets, name, numbers, left_out = drawn["sweeps"][0]
        assert name == str(test.labels[index]) and left_out == 0
        expected = inspection.sweep(model, view.poses, test.labels[index], offsets)
        order = [k - 1 for k, _ in numbers]
        np.testing.assert_allclose(pictures, expected[order], atol=1e-6)
        assert (np.diff(np.ptp(pictures, axis=1).max(axis=(1, 2, 3))) <= 0).all()
        np.testing.assert_allclose(offsets, np.arange(-5, 6) * 0.05)


def test_leaky_routing_shows_its_orphans(capsys, drawn):
    draw(capsys, run("--routing", "leaky"), "couplings")
    _, _, columns, _, most, _ = drawn["couplings"][0]
    assert columns[2][0].startswith("orphans") and len(columns) == 3
    assert columns[2][2] == pytest.approx(1 / 11) and most == pytest.approx(np.log(11))


def test_confusions_and_curves_are_those_that_training_measured(capsys, drawn):
    trained = run("--epochs", "2")
    draw(capsys, trained, "confusion", "curves")
    counts, names, _ = drawn["confusion"][0]
    assert counts.sum() == 30 and counts.trace() == summary(trained)["test_right"]
    assert tuple(names) == tuple("0123456789")
    history, _ = drawn["curves"][0]
    assert [row["epoch"] for row in history] == [1, 2]
    assert 0 <= history[1]["validation_accuracy"] <= 1


def test_reconstructions_show_each_class_once(capsys, drawn):
    draw(capsys, run(), "reconstructions")
    images, pictures, labels, answers, classes, _ = drawn["reconstructions"][0]
    assert classes == 10
    assert images.shape == pictures.shape and len(labels) == len(answers) == len(images)
    assert labels == sorted(set(labels))


@pytest.mark.slow
def test_of_many_classes_some_are_redrawn(capsys, drawn):
    labels = np.arange(200) % 40
    images = np.broadcast_to(labels[:, None, None] / 40, (200, 16, 16))
    np.savez("many.npz", images=images, labels=labels)
    trained = run("--data", "many.npz", "--limit", "80", "--validation", "0")
    draw(capsys, trained, "reconstructions")
    images, _, labels, _, classes, _ = drawn["reconstructions"][0]
    assert labels == [str(k) for k in range(20)] and classes == 40
    np.testing.assert_allclose(images[:, 0, 0, 0], np.arange(20) / 40, rtol=1e-6)


def test_a_blank_image_is_passed_over_unless_asked_for(capsys, drawn, monkeypatch):
    """Make half of the images of each class blank; the first test image is blank for some seed."""
    trained = run()
    monkeypatch.setattr(inspection, "FAINT", 0.1)
    images = np.tile(data.load("strokes", limit=1).test.images[:3], (2, 1, 1, 1))
    images[[0, 1, 3]] = 0.5
    np.savez("blank.npz", images=images[:, 0], labels=[0, 1] * 3, class_names=["0", "1"])
    for line, index in (((), 2), (("--class", "1"), 5), (("--index", "0"), 0)):
        draw(capsys, trained, "couplings", "--data", "blank.npz", *line)
        np.testing.assert_allclose(drawn["couplings"][0][1], images[index], atol=1e-6)
    monkeypatch.setattr(inspection, "blank", lambda drawn: False)
    draw(capsys, trained, "reconstructions", "--data", "blank.npz")
    np.testing.assert_allclose(drawn["reconstructions"][0][0], images[[2, 5]], atol=1e-6)


def test_figures_that_would_show_nothing_are_left_out(capsys, drawn, monkeypatch):
    trained = run()
    drawn.clear()
    monkeypatch.setattr(inspection, "FAINT", 2)  # no image has such a contrast
    monkeypatch.setattr(inspection, "VISIBLE", 2)
    one = data.load("strokes", limit=1).test.images[:4, 0]
    np.savez("one.npz", images=one, labels=[0] * 4, class_names=["3"])
    lines, err = draw(capsys, trained, "--data", "one.npz")
    reasons = ["reconstructions: all reconstructions are blank", "confusion: all test images have"]
    reasons += ["sweeps: adding up to 1 to any number of the capsule changes no pixel"]
    left_out = [line for line in lines if line.startswith("no ")]
    assert not err and len(left_out) == 3
    for line, reason in zip(left_out, reasons, strict=True):
        assert line.startswith(f"no {reason}")
    assert drawn.keys() == {"curves", "couplings", "kernels"}
    assert "cannot draw sweeps: adding" in draw(capsys, trained, "sweeps", code=1)[1]


def test_names_without_a_font_are_replaced_by_numbers(capsys, drawn, monkeypatch):
    trained = run()
    monkeypatch.setattr(plot.plotting, "legible", lambda names: ([f"n{k}" for k in names], "why"))
    lines, _ = draw(capsys, trained, "confusion", "couplings")
    assert lines[0] == "Note: why" and lines.count("Note: why") == 1
    assert drawn["confusion"][0][1] == [f"n{k}" for k in range(10)]


@pytest.mark.slow
def test_pictures_of_several_classes(capsys, drawn, monkeypatch):
    trained = run("--compose", "2")
    drawn.clear()
    monkeypatch.setattr(plotting, "members", lambda *args: drawn.update(members=args))
    lines, _ = draw(capsys, trained, "--class", "3")
    assert "no confusion: this network is multi-label: use minicaps.evaluate" in lines
    labels = drawn["members"][2]
    assert (labels.sum(axis=1) == 2).all()
    shown = dataset(open_run(trained, choose_device("cpu")), test_only=True).test
    first = shown.take(np.flatnonzero(shown.labels[:, 3])[:1])
    np.testing.assert_array_equal(drawn["couplings"][0][1], first.images[0])
    assert first.labels[0, int(drawn["sweeps"][0][3])] == 1  # one of the classes present


@pytest.mark.slow
def test_pictures_of_one_s_own_in_colour(capsys, monkeypatch):
    rng = np.random.default_rng(0)
    for k in range(30):
        picture = rng.random((3, 26, 30))
        saved(f"own/{('a$b$', 'a cat', 'x' * 60)[k % 3]}/{k}.png", picture)
    trained = run("--data", "own", "--limit", "15")
    for name, function in PLAIN.items():
        monkeypatch.setattr(plotting, name, function)
    lines, err = draw(capsys, trained, "--class", "a$b$")
    assert len(lines) == 6 and not err
    os.rename("own", "moved")
    lines, err = draw(capsys, trained, code=1)
    assert lines == [f"{trained}/figures/{what}.png" for what in ("curves", "kernels")]
    assert err.count("own no longer exists") == 4
    assert len(draw(capsys, trained, "--data", "moved")[0]) == 6


@pytest.mark.parametrize(
    ("line", "code", "said"),
    thinned_rows(
        [
            (["nowhere"], 1, "there is no checkpoint nowhere"),
            (
                ["run", "everything"],
                2,
                "must be one of curves, reconstructions, confusion, couplings",
            ),
            (
                ["run", "sweeps", "--class", "ten"],
                2,
                "unknown --class ten: choose from 0, 1, 2",
            ),
            (["run", "sweeps", "--index", "30"], 2, "--index 30 is too large: the last one is 29"),
            (["run", "sweeps", "--index", "-1"], 2, "must be a whole number of at least 0"),
            (["run", "sweeps", "--index", "1", "--class", "1"], 2, "not allowed with"),
            (["run", "confusion", "--data-dir", "."], 2, "--data-dir has no effect on strokes"),
            (
                ["run", "--out", "run/best.npz"],
                1,
                "best.npz: a file exists where a folder is needed; choose",
            ),
        ],
        4,
    ),
)
def test_wrong_usage(capsys, drawn, line, code, said):
    run()
    assert said in draw(capsys, *line, code=code)[1]


@pytest.mark.slow
def test_damaged_and_missing_measurements(capsys, drawn):
    trained = run()
    (trained / "metrics.csv").write_text("epoch,train_loss\n1,much\n")
    lines, err = draw(capsys, trained, "curves", "kernels", code=1)
    assert "metrics.csv is damaged" in err and lines == [f"{trained}/figures/kernels.png"]
    (trained / "metrics.csv").unlink()
    assert draw(capsys, trained)[0][0] == f"no curves: there is no {trained}/metrics.csv"
    assert "cannot draw curves: there is no" in draw(capsys, trained, "curves", code=2)[1]


def test_ctrl_c(capsys, drawn, monkeypatch):
    trained = run()
    send_in_call(monkeypatch, inspection, "view", 1, signal.SIGINT)
    assert draw(capsys, trained, "couplings", code=130)[1] == "minicaps.plot: interrupted\n"


@pytest.mark.skipif(os.name != "posix", reason="requires POSIX permissions")
def test_an_ordinary_user_may_not_write(capsys):
    with tempfile.TemporaryDirectory() as place:  # not inside a folder that only root can enter
        os.chmod(place, 0o755)
        trained = run(out=f"{place}/run")
        os.chmod(trained, 0o555)
        with ordinary_user():
            said = draw(capsys, trained, "kernels", code=1)[1]
    assert said == f"minicaps.plot: cannot write {place}/run/figures: Permission denied; choose" + (
        " another --out\n"
    )


def test_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines, _ = draw(capsys, "--help")
    assert len(lines) <= 60 and max(map(len, lines)) <= 80
