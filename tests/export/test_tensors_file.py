"""Networks in safetensors files: what is stored, and the files that are rejected."""

import json
import sys

import numpy as np
import pytest
from commands import said_by
from made_runs import made_run
from thinning import thinned

pytest.importorskip("safetensors")

from safetensors import safe_open
from safetensors.numpy import save_file

from minicaps import plot
from minicaps.errors import CheckpointError
from minicaps.evaluate import __main__ as evaluate
from minicaps.explore import __main__ as explore
from minicaps.export.description import description_of
from minicaps.predict import __main__ as predict
from minicaps.runs import load_model, open_run, tensors_file

FILE = "net.safetensors"


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Write a network to FILE; return its arrays and its description."""
    monkeypatch.chdir(tmp_path)
    folder, model = made_run("run", "capsnet")
    description = description_of(open_run(folder, "cpu"), inverts=False)
    tensors_file.save(FILE, model.state_dict(), description)
    return model.state_dict(), description


def rewrite(arrays, description):
    """Write FILE as another program may."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(arrays, FILE, metadata={tensors_file.KEY: json.dumps(description)})


def refused(words):
    for function in (load_model, lambda path: open_run(path, "cpu")):
        with pytest.raises(CheckpointError, match=words) as found:
            function(FILE)
        assert str(found.value).startswith(FILE) and "\n" not in str(found.value)


def test_another_program_reads_the_arrays(stored):
    arrays, description = stored
    with safe_open(FILE, framework="numpy") as file:
        assert set(file.keys()) == arrays.keys()
        assert list(file.metadata()) == ["minicaps"]
        assert json.loads(file.metadata()["minicaps"]) == json.loads(json.dumps(description))
        for name, array in arrays.items():
            found = file.get_tensor(name)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, array)


def test_double_precision_stays(stored):
    arrays, description = stored
    rewrite({name: array.astype(np.float64) / 3 for name, array in arrays.items()}, description)
    for name, array in load_model(FILE).state_dict().items():
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, arrays[name].astype(np.float64) / 3)


@pytest.mark.parametrize("length", thinned([0, 5, 8, 100, 5000, -1], [0, 100, -1]))
def test_a_truncated_file_is_refused(length, stored):
    with open(FILE, "rb") as file:
        content = file.read()
    with open(FILE, "wb") as file:
        file.write(content[:length])
    refused("is damaged or not a minicaps checkpoint")


def without(key):
    return lambda arrays, about: about.pop(key)


def with_array(name, value):
    return lambda arrays, about: arrays.update({name: value})


@pytest.mark.parametrize(
    "change, words",
    [
        (with_array("classes.weight", np.zeros((2, 3), np.float32)), "no model that can be built"),
        (with_array("other", np.zeros(2, np.float32)), "the state has other, which this model"),
        (lambda arrays, about: arrays.pop("primary.conv.bias"), "state is missing primary.conv"),
        (with_array("primary.conv.bias", np.full(64, np.nan, np.float32)), "infinite or NaN"),
        (with_array("primary.conv.bias", np.full(64, np.inf, np.float32)), "infinite or NaN"),
        (with_array("primary.conv.bias", np.zeros(64, np.float16)), "is float16, but float32 or"),
        (with_array("primary.conv.bias", np.zeros(64, int)), "is int64, but float32 or float64"),
        (without("format"), "is damaged or not a minicaps checkpoint"),
        (without("class_names"), "is damaged or not a minicaps checkpoint"),
        (without("preprocessing"), "is damaged or not a minicaps checkpoint"),
        (without("model"), "lacks model"),
        (lambda arrays, about: about.update(format=99), "has checkpoint format 99, but this"),
        (lambda arrays, about: about.update(class_names=["a"]), "1 names for 5 classes"),
        (lambda arrays, about: about.update(loss=7, options={"loss": 7}), "unknown loss"),
        (lambda arrays, about: about.update(preprocessing=[]), "is damaged or not a minicaps"),
        (lambda arrays, about: about["model"].update(name="x"), "no model that can be built"),
        (lambda arrays, about: arrays.clear(), "no model that can be built"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change, words, stored):
    arrays, about = stored
    change(arrays, about)
    rewrite(arrays, about)
    refused(words)


@pytest.mark.parametrize("text", [None, "{", "[]", "7", ""])
def test_a_file_without_a_description_is_refused(text, stored):
    arrays, _ = stored
    save_file(arrays, FILE, metadata=None if text is None else {tensors_file.KEY: text})
    refused("is damaged or not a minicaps checkpoint")


def test_a_file_of_another_kind_is_refused(stored):
    with open("run/best.npz", "rb") as file:
        content = file.read()
    with open(FILE, "wb") as file:
        file.write(content)
    refused("is damaged or not a minicaps checkpoint")


@pytest.mark.parametrize("command", [evaluate, predict, plot, explore])
def test_an_onnx_file_is_refused_with_what_to_give_instead(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with open("net.onnx", "wb") as file:
        file.write(b"\x08\x08\x12\x08minicaps")
    images = ["net.png"] if command is predict else []
    said = said_by(capsys, command.main, "net.onnx", *images, code=1).err
    assert said.endswith(
        "net.onnx is an ONNX file, which cannot be loaded, but safetensors files can: write one"
        " with minicaps.export RUN --to safetensors\n"
    )


def test_a_missing_file_is_refused(stored):
    with pytest.raises(CheckpointError, match=r"there is no checkpoint no\.safetensors"):
        load_model("no.safetensors")


def test_a_missing_package_is_named(stored, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    refused(r"^net.safetensors needs the package safetensors: install it with: pip install safet")
