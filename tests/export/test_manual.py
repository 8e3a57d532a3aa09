"""The manual: its code runs, and its table lists every array of every network."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from made_runs import made_run, network, probabilities, random_images

import minicaps
from minicaps import models
from minicaps.export import __main__ as export
from minicaps.models.matrix_capsnet import LAYERS
from minicaps.runs import load_model

MANUAL = (Path(minicaps.__file__).parent / "export" / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", MANUAL, flags=re.MULTILINE | re.DOTALL)
OPTIONS = {"capsnet": {"routing": "learned"}, "capsule-cnn": {"routing": "learned"}}


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Export a CapsNet to a file of a given format, named as in the manual; return the network."""
    monkeypatch.chdir(tmp_path)

    def make(to, **options):
        folder, _ = made_run("run", "capsnet", (1, 28, 28), **options)
        assert export.main([str(folder), "--to", to, "--out", f"digits.{to}"]) == 0
        return load_model(folder)

    return make


def test_its_onnx_code_runs(exported, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    names = exported("onnx").predict(np.zeros((3, 28, 28))).classes
    capsys.readouterr()
    exec(BLOCKS[0], {})
    assert capsys.readouterr().out == f"{names}\n"


@pytest.mark.parametrize("options", [{}, {"preset": "paper"}, {"iterations": 5}], ids=str)
def test_its_pytorch_module_computes_the_same(options, exported):
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    model, here = exported("safetensors", **options), {}
    exec(BLOCKS[1], here)
    assert here["lengths"].shape == (3, 5)
    images = random_images(4, (1, 28, 28))
    network = here["CapsNet"]("digits.safetensors")
    found = network(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(found, probabilities(model, images), rtol=0, atol=1e-5)
    assert all(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize("options", [{"routing": "distance"}, {"squash": "tanh"}], ids=str)
def test_its_pytorch_module_refuses_other_networks(options, exported):
    pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    exported("safetensors", **options)
    with pytest.raises(ValueError, match="expected a capsnet with the usual routing"):
        exec(BLOCKS[1], {})


def rows():
    """Yield (networks, names as a pattern, number of axes) for each row of the table."""
    table = MANUAL.split("| network | name | shape | meaning |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        who, names, shape, _ = (cell.strip() for cell in line.strip("|").split("|"))
        known = [name for name in models.MODELS if name in who] or list(models.MODELS)
        names = [
            re.escape(name).replace(r"\.k\.", r"\.\d+\.") for name in re.findall("`(.*?)`", names)
        ]
        if "end of a name" in line or "after `norm.`" in line:
            names = [rf"(.+\.)?{name}" for name in names]
        yield known, "|".join(name.replace(r"norm\.", "") for name in names), shape.count(",") + 1


@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("batch_norm", [False, True])
def test_its_table_lists_every_array(name, batch_norm):
    known = models.options_of(name)
    if batch_norm and "batch_norm" not in known:
        return
    options = {"batch_norm": True} if batch_norm else {}
    state = network(name, (1, 20, 20), **options, **OPTIONS.get(name, {})).state_dict()
    listed = [(pattern, axes) for who, pattern, axes in rows() if name in who]
    for key, array in state.items():
        axes = {axes for pattern, axes in listed if re.fullmatch(pattern, key)}
        assert axes == {array.ndim}, key


def test_its_strides_are_those_of_the_networks():
    assert "1, 2 for capsnet and dense-cnn with the preset `paper`, and 1, 2, 2\nwith" in MANUAL
    for preset, strides in (("paper", [1, 2]), ("small", [1, 2, 2])):
        capsnet, dense = (
            models.build(name, (1, 28, 28), 2, preset=preset) for name in ("capsnet", "dense-cnn")
        )
        layers = [*capsnet.convolutions, capsnet.primary.conv]
        assert [layer.stride for layer in layers] == strides
        assert [layer.stride for layer in dense.convolutions] == strides
    assert "2 for matrix-capsnet, with windows of stride 2, then 1" in MANUAL
    assert [stride for _, stride in LAYERS] == [2, 2, 1]


def test_its_keys_are_those_of_a_description(exported):
    pytest.importorskip("safetensors")
    from safetensors import safe_open

    exported("safetensors")
    with safe_open("digits.safetensors", framework="numpy") as file:
        about = json.loads(file.metadata()["minicaps"])
    table = MANUAL.split("| key | value |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {key for cell in first for key in re.findall("`(.*?)`", cell)} == about.keys()
