"""`python -m minicaps.export` writes networks that compute the same elsewhere, or says why not."""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import drive
import numpy as np
import pytest
from commands import said_by
from made_runs import NAMES, made_run, random_images
from thinning import thinned
from tiny_runs import ordinary_user, run

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("safetensors")

import minicaps  # noqa: E402
from minicaps import models  # noqa: E402
from minicaps.cli.blas import one_blas_thread  # noqa: E402
from minicaps.data import load, strokes  # noqa: E402
from minicaps.data.images import write_picture  # noqa: E402
from minicaps.evaluate import __main__ as evaluate  # noqa: E402
from minicaps.export import __main__ as export  # noqa: E402
from minicaps.export import onnx_file  # noqa: E402
from minicaps.predict import __main__ as predict  # noqa: E402
from minicaps.runs import load_model, open_run  # noqa: E402
from minicaps.runs.tensors_file import KEY  # noqa: E402
from minicaps.train import __main__ as train  # noqa: E402

FORMATS = ("onnx", "safetensors")
CASES = [(name, {}) for name in models.MODELS if name != "baseline-cnn"]
CASES += [("baseline-cnn", {"image": (3, 9, 8), "batch_norm": True})]
CASES += [("capsnet", {"routing": name}) for name in ("leaky", "distance", "learned")]
CASES += [("capsule-cnn", {"batch_norm": True}), ("matrix-capsnet", {"batch_norm": True})]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def exported(capsys, folder, to, *options):
    """Run the command; return what it printed."""
    said = said_by(capsys, export.main, folder, "--to", to, *options)
    assert said.err == ""
    return said.out


def opened(file):
    """Return a session for an ONNX file, and the description of its network."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session, json.loads(session.get_modelmeta().custom_metadata_map[KEY])


@pytest.mark.parametrize("name, options", CASES, ids=str)
def test_every_network_predicts_the_same_elsewhere(name, options, capsys):
    folder, model = made_run("run", name, **options)
    images = random_images(3, model.config["input_shape"])
    expected = load_model(folder).predict(images).probabilities
    out = exported(capsys, folder, "onnx")
    assert f"Run: {folder / 'best.npz'} ({name}, {model.number_of_parameters():,} par" in out
    assert f"Written: {folder / 'best.onnx'} (" in out
    session, about = opened(folder / "best.onnx")
    (found,) = session.run(["probabilities"], {"images": images})
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert about["class_names"] == list(NAMES) and about["model"]["name"] == name

    exported(capsys, folder, "safetensors")
    loaded = load_model(folder / "best.safetensors")
    prediction = loaded.predict(images)
    np.testing.assert_array_equal(prediction.probabilities, expected)
    assert set(prediction.classes) <= set(NAMES) and not loaded.training
    state = load_model(folder).state_dict()
    for key, array in loaded.state_dict().items():
        np.testing.assert_array_equal(array, state[key])


def test_a_file_describes_its_network(capsys):
    images = {"inverted": True, "background": "dark", "scale": (-10, 40), "fill": None}
    training = {"data": "/home/me/cats", "data_dir": "/home/me", "out": "/home/me/run"}
    folder, _ = made_run("run", "capsnet", preprocessing=images, training=training)
    exported(capsys, folder, "onnx")
    exported(capsys, folder, "safetensors")
    _, about = opened(folder / "best.onnx")
    assert (
        about["checkpoint_sha256"] == hashlib.sha256((folder / "best.npz").read_bytes()).hexdigest()
    )
    assert about["minicaps"] == minicaps.__version__ and about["loss"] == "margin"
    assert about["preprocessing"] == {
        "shape": [1, 20, 20], "background": "dark", "centred": False, "inverted": True,
        "fill": None, "scale": [-10, 40],
    }  # fmt: skip
    assert about["options"]["data"] == "cats" and "/home" not in json.dumps(about)
    assert "float32 (B, 1, 20, 20): gray, from 0 (black) to 1 (white)" in about["input"]
    assert "map such pixels x to (x + 10) / 50, clipped to 0 and 1" in about["input"]
    assert "light and dark are swapped inside the graph" in about["input"]
    assert "the lengths of the capsules): the highest is predicted" in about["output"]
    graph = onnx.load(folder / "best.onnx")
    assert (graph.producer_name, graph.producer_version) == ("minicaps", minicaps.__version__)
    assert about["input"] in graph.doc_string and about["output"] in graph.doc_string
    assert [each.version for each in graph.opset_import] == [18]

    taken = open_run(folder / "best.safetensors", "cpu")
    assert taken.model.preprocessing == open_run(folder, "cpu").model.preprocessing
    assert taken.options.data.name == "cats" and taken.options.run.out is None


def test_the_graph_of_an_inverted_run_takes_images_as_they_are(capsys):
    folder, _ = made_run("run", "capsnet", preprocessing={"inverted": True})
    exported(capsys, folder, "onnx")
    images = random_images(3, (1, 20, 20))
    (found,) = opened(folder / "best.onnx")[0].run(None, {"images": images})
    expected = load_model(folder).predict(images).probabilities
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name, multi, loss, words",
    [
        ("capsnet", True, "margin", "lengths of the capsules): the classes above 0.5 are present"),
        ("capsnet", False, "cross-entropy", "lengths of the capsules, divided by their sum)"),
        ("matrix-capsnet", False, "spread", "activations of the capsules): the highest is"),
        ("pooling-cnn", False, "margin", "(the outputs of sigmoids): the highest is predicted; if"),
        ("dense-cnn", False, "cross-entropy", "(the softmax of the logits): the highest"),
        ("dense-cnn", False, "margin", "other (the sigmoids of the logits): the highest"),
        ("dense-cnn", True, "cross-entropy", "(the sigmoids of the logits): the classes above"),
    ],
)
def test_the_output_is_explained(name, multi, loss, words, capsys):
    images = {"multi": multi}
    folder, _ = made_run("run", name, preprocessing=images, training={"loss": loss})
    exported(capsys, folder, "onnx")
    assert words in opened(folder / "best.onnx")[1]["output"]


@pytest.mark.parametrize(
    "images, words",
    [
        ({"background": "light"}, "had a light background: swap light and dark, x to 1 − x, in"),
        ({"inverted": True}, "light and dark must then be swapped, x to 1 − x, as in training"),
        ({"fill": 0.0}, "padded with 0"),
        ({"background": None, "inverted": None}, "padded with the median color of their border"),
    ],
)
def test_the_input_is_explained(images, words, capsys):
    from safetensors import safe_open

    folder, _ = made_run("run", "capsnet", (3, 20, 20), preprocessing=images)
    exported(capsys, folder, "safetensors")
    with safe_open(folder / "best.safetensors", framework="numpy") as file:
        about = json.loads(file.metadata()[KEY])
    assert words in about["input"] and "(B, 3, 20, 20): RGB" in about["input"]


# ---- the check


@pytest.mark.usefixtures("tiny")
def test_a_graph_is_checked_on_images_of_the_data(capsys):
    folder = run()
    out = exported(capsys, folder, "onnx", "--out", "new/digits.onnx")
    check = f"ONNX Runtime {onnxruntime.__version__} differs by at most "
    assert check in out and "e-0" in out and "on 30 images of strokes" in out
    images = load("strokes").test.images
    (found,) = opened("new/digits.onnx")[0].run(None, {"images": images})
    expected = load_model(folder).predict(images).probabilities
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("data", ["arrays", "gone", "mnist"])
def test_without_the_data_it_is_checked_on_random_images(data, capsys, monkeypatch):
    monkeypatch.setattr(onnx_file.download, "find", lambda *_: None)
    monkeypatch.setattr(onnx_file.download, "download", lambda *_: pytest.fail("downloads"))
    folder, _ = made_run("run", "capsnet", training={"data": data})
    out = exported(capsys, folder, "onnx")
    assert f"32 random images, since {data} cannot be read as in training" in out


def test_data_of_another_size_is_not_used(capsys):
    folder, _ = made_run("run", "capsnet")  # 20×20; strokes has 28×28
    assert "on 32 random images, since strokes cannot" in exported(capsys, folder, "onnx")


@pytest.mark.parametrize("error", [2e-5, np.nan])
def test_a_graph_that_computes_something_else_is_not_written(error, capsys, monkeypatch):
    monkeypatch.setattr(onnx_file, "largest_difference", lambda *_: error)
    folder, _ = made_run("run", "capsnet")
    (folder / "best.onnx").write_text("earlier")
    (message,) = said_by(capsys, export.main, folder, "--to", "onnx", code=1).err.splitlines()
    assert "but at most 1e-05 was expected, so nothing is written" in message
    assert (folder / "best.onnx").read_text() == "earlier"


def test_the_check_notices_another_graph(monkeypatch, capsys):
    graph_of = onnx_file.network_graph

    def other(model):
        model.classes.weight.data *= 1.01
        try:
            return graph_of(model)
        finally:
            model.classes.weight.data /= 1.01

    monkeypatch.setattr(onnx_file, "network_graph", other)
    folder, _ = made_run("run", "capsnet")
    assert (
        "so nothing is written" in said_by(capsys, export.main, folder, "--to", "onnx", code=1).err
    )


@pytest.mark.slow
def test_a_graph_has_as_many_mnist_test_images_correct(capsys):
    files = onnx_file.download.SOURCES["mnist"].md5
    if not all(onnx_file.download.find("mnist", file) for file in files):
        pytest.skip("MNIST is not on this machine")
    options = ("--data", "mnist", "--limit", "2000", "--epochs", "1", "--batch-size", "32")
    with one_blas_thread():
        assert train.main([*options, "--out", "run", "--quiet"]) == 0
    assert "on 32 images of mnist" in exported(capsys, "run", "onnx")
    test, session = load("mnist", limit=1).test, opened("run/best.onnx")[0]
    batches = np.split(test.images, 40)
    found = np.concatenate([session.run(None, {"images": batch})[0] for batch in batches])
    expected = load_model("run").predict(test.images).probabilities
    right = [(each.argmax(axis=1) == test.labels).sum() for each in (found, expected)]
    assert right[1] > 5000 and abs(int(right[0]) - int(right[1])) <= 1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


# ---- files that come back


@pytest.mark.parametrize("name", thinned(drive.names(), ["several-classes", "own-pictures"]))
def test_old_runs_leave_home_and_come_back(name, capsys, monkeypatch):
    monkeypatch.setitem(models.CAPSNET_PRESETS, "small", drive.CAPSNET)
    monkeypatch.setitem(models.MATRIX_PRESETS, "small", drive.MATRIX)
    monkeypatch.setattr(strokes, "TEST_SIZE", 30)
    shutil.copytree(drive.RUNS / name, "run")
    shutil.copytree(drive.HERE / drive.PICTURES, drive.PICTURES)
    folder = Path("run/seed-0" if Path("run/seed-0").exists() else "run")
    assert " random images" not in exported(capsys, folder, "onnx")
    exported(capsys, folder, "safetensors")
    images = random_images(3, load_model(folder).config["input_shape"])
    found = [load_model(path).predict(images) for path in (folder, folder / "best.safetensors")]
    np.testing.assert_array_equal(*(prediction.probabilities for prediction in found))


@pytest.mark.usefixtures("tiny")
def test_commands_take_a_safetensors_file_where_they_take_a_run(capsys):
    folder = run()
    exported(capsys, folder, "safetensors", "--out", "digits.safetensors")
    assert "of 30" in said_by(capsys, evaluate.main, "digits.safetensors", "--quiet").out
    write_picture("one.png", load("strokes").test.images[0])
    words = ("one.png", "--no-figures", "--json")
    both = [
        said_by(capsys, predict.main, path, *words).out for path in (folder, "digits.safetensors")
    ]
    assert both[0] == both[1] != ""
    exported(capsys, "digits.safetensors", "onnx")
    exported(capsys, "digits.safetensors", "safetensors", "--out", "again.safetensors")
    run("--start-from", "again.safetensors", out="next")


# ---- errors


def refused(capsys, *words, code=1):
    """Run the command, which must fail with one line; return the line."""
    said = said_by(capsys, export.main, *words, code=code)
    assert "Traceback" not in said.err
    return said.err.splitlines()[-1]


@pytest.mark.parametrize("to", FORMATS)
def test_unusable_runs_are_refused(to, capsys):
    os.mkdir("empty")
    with open("picture.png", "wb") as file:
        file.write(b"no checkpoint")
    made_run("runs", "capsnet")[0].rename("inner")
    os.mkdir("runs")
    os.rename("inner", "runs/first")
    for path, words in (
        ("gone", "there is no checkpoint gone: give the folder of a run"),
        ("empty", "empty has no best.npz: it is not a run folder, or"),
        ("picture.png", "picture.png is damaged or not a minicaps checkpoint"),
        ("runs", "it contains runs; choose one of them, such as runs/first"),
    ):
        assert words in refused(capsys, path, "--to", to)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--to", "onnx", "--out", "a.pt"], "--out must end in .onnx for --to onnx, not a.pt"),
        (["--to", "safetensors", "--out", "a"], "--out must end in .safetensors"),
        (["--to", "pickle"], "invalid choice: 'pickle'"),
        ([], "the following arguments are required: --to"),
    ],
)
def test_other_formats_are_wrong_usage(words, message, capsys):
    assert message in refused(capsys, "run", *words, code=2)


@pytest.mark.parametrize("to", FORMATS)
def test_places_that_cannot_be_written_are_refused(to, capsys, tmp_path):
    folder, _ = made_run("run", "capsnet")
    tmp_path.chmod(0o755)
    os.mkdir("locked", 0o555)
    open("file", "w").close()
    os.mkdir(f"folder.{to}")
    with ordinary_user():
        said = refused(capsys, folder, "--to", to, "--out", f"locked/a.{to}")
        assert said.endswith(f"cannot write locked/a.{to}: Permission denied; choose another --out")
        assert "best.onnx" not in os.listdir(folder)
    said = refused(capsys, folder, "--to", to, "--out", f"file/a.{to}")
    assert f"cannot write file/a.{to}: a file exists where a folder is needed; choose" in said
    said = refused(capsys, folder, "--to", to, "--out", f"folder.{to}")
    assert f"cannot write folder.{to}: it exists and is not a regular file; choose" in said


@pytest.mark.parametrize("to", FORMATS)
def test_a_missing_package_is_named(to, capsys, monkeypatch):
    folder, _ = made_run("run", "capsnet")
    monkeypatch.setitem(sys.modules, to, None)
    said = refused(capsys, folder, "--to", to)
    assert f"--to {to} needs the package {to} (" in said
    install = {"onnx": "onnx onnxruntime", "safetensors": "safetensors"}[to]
    assert said.endswith(f"install it with: pip install {install}")


def test_a_file_is_not_written_over_the_network_that_it_is_made_from(capsys):
    folder, _ = made_run("run", "capsnet")
    exported(capsys, folder, "safetensors")
    before = (folder / "best.safetensors").read_bytes()
    said = refused(capsys, folder / "best.safetensors", "--to", "safetensors")
    assert said.endswith("best.safetensors is the network itself: choose another --out")
    assert (folder / "best.safetensors").read_bytes() == before


def test_networks_that_no_graph_holds_are_refused(capsys, monkeypatch):
    folder, _ = made_run("run", "capsnet", iterations=501)
    assert "a routing of 501 iterations cannot be exported to ONNX" in refused(
        capsys, folder, "--to", "onnx"
    )
    exported(capsys, folder, "safetensors")
    monkeypatch.setattr(onnx_file, "LIMIT", 10**6)
    assert "but an ONNX file holds less than" in refused(capsys, folder, "--to", "onnx")


@pytest.mark.parametrize("name", thinned(["capsnet", "matrix-capsnet"]))
def test_the_same_run_gives_the_same_bytes(name, capsys):
    folder, _ = made_run("run", name)
    for to in FORMATS:
        exported(capsys, folder, to)
        first = (folder / f"best.{to}").read_bytes()
        exported(capsys, folder, to)
        assert (folder / f"best.{to}").read_bytes() == first
