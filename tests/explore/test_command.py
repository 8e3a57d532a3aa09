"""`python -m minicaps.explore`: the page it writes, what it refuses, and networks it stores."""

import base64
import json
import re

import numpy as np
import pytest

from minicaps.explore import __main__ as command
from minicaps.explore import embedded, slim
from minicaps.explore.embedded import CannotExplore, describe, describe_beside, rounded
from minicaps.models import build
from minicaps.runs import load_model
from minicaps.train.__main__ import main as train

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folders of a CapsNet and a dense-cnn, trained on a few digits."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("capsnet", "dense-cnn"):
        few = ["--limit", "100", "--epochs", "1", "--quiet", "--out", str(folder / name)]
        assert train(["--model", name, *few]) == 0
    return {name: folder / name for name in ("capsnet", "dense-cnn")}


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    """Collect the addresses that would be opened in a browser."""
    addresses = []
    monkeypatch.setattr(command.webbrowser, "open", addresses.append)
    return addresses


def data_of(file):
    text = file.read_text("utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_run_becomes_a_page_that_is_opened(runs, opened, capsys):
    assert command.main([str(runs["capsnet"]), "--beside", str(runs["dense-cnn"])]) == 0
    file = runs["capsnet"] / "explorer.html"
    assert str(file) in capsys.readouterr().out and opened == [file.as_uri()]
    data = data_of(file)
    assert data["network"]["classes"] == [*"0123456789"] and data["network"]["centred"]
    assert data["beside"]["model"] == "dense-cnn" and data["lessons"] is None
    assert len(data["examples"]["labels"]) == 30
    assert len(base64.b64decode(data["examples"]["pixels"])) == 30 * 28 * 28


def test_without_a_run_the_page_shows_the_network_in_the_repository(tmp_path, opened, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--no-browser"]) == 0
    data = data_of(tmp_path / "explorer.html")
    assert data["network"]["parameters"] == 501_840 and data["beside"] is not None
    assert opened == []


def test_the_folder_of_the_page_is_created(tmp_path):
    file = tmp_path / "new" / "folder" / "page.html"
    assert command.main(["--no-browser", "--out", str(file)]) == 0
    assert data_of(file)["network"]["parameters"] == 501_840


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["dense-cnn"], "the page shows a capsnet, but this network is a dense-cnn"),
        (["capsnet", "--beside", "capsnet"], "must be a dense-cnn, not a capsnet"),
        (
            ["capsnet", "--out", "{}/file/page.html"],
            "cannot write .*file/page.html: a file exists .* needed; choose another --out",
        ),
        (["capsnet", "--out", "{}"], "cannot write .*: it .* regular file; choose another --out"),
        (["nothing"], "there is no checkpoint .*nothing: give the folder of a run"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(runs, tmp_path, capsys, arguments, message):
    known = {name: str(folder) for name, folder in runs.items()}
    arguments = [known.get(one, one).format(tmp_path) for one in arguments]
    (tmp_path / "file").touch()
    assert command.main([*arguments, "--no-browser"]) == 1
    error = capsys.readouterr().err
    assert re.search(message, error) and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--beside", "x"], ["--store", "x"], ["x", "--store", "y", "--out", "z"]]
)
def test_options_without_effect_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert "error: --" in capsys.readouterr().err


def test_a_run_whose_data_is_gone_becomes_a_page_without_test_images(tmp_path, capsys):
    folder = tmp_path / "digits"
    rng = np.random.default_rng(0)
    np.savez(folder.with_suffix(".npz"), images=rng.random((40, 28, 28)), labels=np.arange(40) % 2)
    few = ["--data", f"{folder}.npz", "--epochs", "1", "--quiet", "--out", str(tmp_path / "run")]
    assert train(few) == 0
    folder.with_suffix(".npz").unlink()
    capsys.readouterr()
    assert command.main([str(tmp_path / "run"), "--no-browser"]) == 0
    assert "the page has no test images: " in capsys.readouterr().err
    assert data_of(tmp_path / "run" / "explorer.html")["examples"]["labels"] == []


def test_a_stored_network_is_a_small_checkpoint_with_images(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "NETWORKS", tmp_path)
    names = [str(runs["capsnet"]), "--beside", str(runs["dense-cnn"]), "--store", "few"]
    assert command.main(names) == 0
    assert "rounding changes" in capsys.readouterr().out
    model, known = load_model(tmp_path / "few.npz"), load_model(runs["capsnet"])
    for name, array in model.state_dict().items():
        assert np.array_equal(array, known.state_dict()[name].astype(np.float16))
    assert len(slim.stored_examples(tmp_path / "few.npz").labels) == 30
    assert slim.stored_examples(tmp_path / "few-beside.npz") is None
    size = (tmp_path / "few.npz").stat().st_size
    assert size < 0.2 * (runs["capsnet"] / "best.npz").stat().st_size
    assert command.main([str(tmp_path / "few.npz"), "--no-browser"]) == 0
    assert data_of(tmp_path / "few-explorer.html")["network"] == describe(rounded(known))


def test_a_network_that_rounding_ruins_is_not_stored(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "NETWORKS", tmp_path)
    monkeypatch.setattr(
        slim, "rounded", lambda model: [p.data.fill(0) for p in model.parameters()] and model
    )
    assert command.main([str(runs["capsnet"]), "--store", "few"]) == 1
    assert "rounding to float16 lowers the accuracy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ---- limits


def test_a_weight_that_float16_cannot_hold_is_refused():
    model = build("capsnet", SHAPE, 2, preset="small")
    model.primary.conv.bias.data[0] = 70_000
    with pytest.raises(CannotExplore, match="a weight of 7e\\+04"):
        describe(model)


def test_networks_that_are_too_large_are_refused(monkeypatch):
    with pytest.raises(CannotExplore, match="up to 20 classes, but this network has 21"):
        describe(build("capsnet", SHAPE, 21, preset="small"))
    monkeypatch.setattr(embedded, "MOST_WEIGHTS", 1000)
    with pytest.raises(CannotExplore, match=r"up to 1,000 weights.*--preset small"):
        describe(build("capsnet", SHAPE, 2, preset="small"))


def test_a_network_beside_must_see_the_same_images_and_classes():
    capsnet = build("capsnet", SHAPE, 3, preset="small")
    for shape, classes, what in (((3, 28, 28), 3, "images"), (SHAPE, 4, "classes")):
        with pytest.raises(CannotExplore, match=f"have different {what}"):
            describe_beside(build("dense-cnn", shape, classes, preset="small"), capsnet)


def test_every_routing_is_described_with_its_options():
    given = {
        "routing": "distance", "iterations": 2, "inverse_temperature": 2.5, "squash": "tanh",
    }  # fmt: skip
    found = describe(build("capsnet", SHAPE, 3, preset="small", **given))["routing"]
    assert found == {
        "routing": "distance", "update": None, "iterations": 2,
        "inverseTemperature": 2.5, "squash": "tanh",
    }  # fmt: skip
    found = describe(build("capsnet", SHAPE, 3, preset="small"))["routing"]
    assert (found["routing"], found["update"], found["iterations"]) == (
        "agreement",
        "accumulate",
        3,
    )


def test_the_networks_in_the_repository_take_less_than_three_megabytes():
    files = list(slim.NETWORKS.iterdir())
    assert sum(file.stat().st_size for file in files) < 3e6
    assert len(slim.stored_examples(slim.NETWORKS / "mnist.npz").labels) == 30
