"""`python -m minicaps.train`: run folder, metrics, and devices."""

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from commands import environment
from thinning import thinned_rows
from tiny_runs import (
    TINY,
    assert_equal_runs,
    edit,
    go_on,
    history,
    parameters,
    refused,
    run,
    same,
    saved,
    summary,
)

import minicaps
from minicaps import Tensor, data, ops
from minicaps.backend import choose_device
from minicaps.runs import checkpoint
from minicaps.runs.building import load_model
from minicaps.runs.inference import evaluate
from minicaps.runs.run import open_run
from minicaps.train import __main__ as train
from minicaps.train import trainer
from minicaps.train.options import complete
from minicaps.train.trainer import Trainer

CPU = choose_device("cpu")


# ---- the run folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Complete run as a user would start it: (folder, standard output, command)."""
    here = tmp_path_factory.mktemp("whole")
    command = ["python", "-m", "minicaps.train", "--limit", "60", "--epochs", "2"]
    command += ["--batch-size", "16", "--out", "runs/a run", "--device", "cpu"]
    command += ["--schedule", "exponential"]
    done = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return here / "runs" / "a run", done.stdout, command


def test_what_a_run_says_and_writes(whole):
    folder, said, _ = whole
    # a slow machine announces the test, which takes it more than two seconds
    lines = [line for line in said.splitlines() if not line.startswith("Testing on 2,000 images")]
    assert lines[0] == "Device: CPU (NumPy) (chosen)"
    assert lines[1] == "Data: strokes, 54 training, 6 validation, 2,000 test images"
    model = r"Model: capsnet, preset small, routing agreement, loss margin, [\d,]+ parameters"
    assert re.fullmatch(model, lines[2])
    assert lines.pop(3) == f"Note: {summary(folder)['warnings'][0]}"
    epoch = r"epoch {}/2  train loss 0\.\d{{4}} accuracy \d+\.\d\d%  validation loss .* images/s"
    assert re.fullmatch(epoch.format(1), lines[3])
    assert re.fullmatch(epoch.format(2), lines[4])
    found = summary(folder)
    right, share = found["test_right"], found["test_accuracy"]
    assert lines[5].startswith(f"Test accuracy {share:.2%} ({right:,} of 2,000 images) with the ")
    files = ["best.npz", "config.json", "curves.png", "last.npz", "metrics.csv"]
    files += ["reconstructions.png", "summary.json"]
    assert lines[6:] == [f"Results: runs/a run/ ({', '.join(files)})"]
    assert sorted(p.name for p in folder.iterdir()) == files


@pytest.mark.slow
def test_the_summary_is_consistent(whole):
    folder, _, command = whole
    found = summary(folder)
    assert found["test_samples"] == 2000
    assert found["test_accuracy"] == found["test_right"] / 2000
    assert found["epochs"] == 2
    assert found["stopped_early"] is False
    assert found["best_epoch"] in (1, 2)
    rows = history(folder)
    assert found["validation_accuracy"] == rows[found["best_epoch"] - 1]["validation_accuracy"]
    assert found["training_seconds"] == pytest.approx(sum(r["seconds"] for r in rows), abs=1e-3)
    assert found["device"] == "CPU (NumPy)"
    assert found["versions"] == {
        "minicaps": minicaps.__version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
    }
    assert shlex.split(found["command"]) == command
    assert found["parameters"] == sum(p.size for p in parameters(folder).values())


@pytest.mark.slow
def test_the_test_figures_are_those_of_the_best_model(whole, monkeypatch):
    folder, *_ = whole
    monkeypatch.undo()  # restore the whole test set and the real network
    found = summary(folder)
    model = load_model(folder / "best.npz", CPU)
    test = data.load("strokes", limit=1).test
    loss, right = evaluate(model, test, "margin")
    assert loss == pytest.approx(found["test_loss"], rel=1e-5)  # other BLAS threads there
    assert right == found["test_right"]


@pytest.mark.slow
def test_metrics_has_a_row_for_each_epoch(whole):
    folder, *_ = whole
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    measured = history(folder)
    assert [{name: float(value) for name, value in row.items()} for row in rows] == measured
    assert [row["epoch"] for row in rows] == ["1", "2"]
    names = ["epoch", "train_loss", "train_accuracy", "reconstruction_loss", "validation_loss"]
    names += ["validation_accuracy", "learning_rate", "seconds", "images_per_second"]
    assert list(rows[0]) == names
    for row in measured:
        assert row["images_per_second"] == pytest.approx(54 / row["seconds"])
    assert measured[1]["learning_rate"] < measured[0]["learning_rate"] < 0.003


@pytest.mark.slow
def test_the_configuration_is_complete(whole):
    folder, *_ = whole
    config = json.loads((folder / "config.json").read_text())
    given = {"limit": 60, "epochs": 2, "batch_size": 16, "out": "runs/a run", "device": "cpu"}
    given["schedule"] = "exponential"
    assert config["options"] == complete(given).to_dict()
    for name in ("best.npz", "last.npz"):
        meta = saved(folder, name)[1]
        assert meta["format"] == checkpoint.FORMAT
        assert meta["options"] == config["options"]
        assert meta["model"] == config["model"]
        assert meta["preprocessing"] == {
            "pixels": "[0, 1]",
            "class_names": list("0123456789"),
            "background": "dark",
            "inverted": False,
            "fill": None,
            "scale": None,
            "multi": False,
        }


@pytest.mark.slow
def test_the_pictures_show_something(whole):
    folder, *_ = whole
    for name in ("curves.png", "reconstructions.png"):
        picture = matplotlib.image.imread(folder / name)
        assert min(picture.shape[:2]) > 250
        assert picture[..., :3].std() > 0.05


def test_the_folder_has_a_name_of_its_own_without_out():
    assert train.main(TINY) == 0
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"strokes-capsnet-small-\d{8}-\d{6}", folder.name)
    assert (folder / "summary.json").is_file()


def test_quiet_says_the_result_only(capsys):
    run()
    said = capsys.readouterr()
    assert re.fullmatch(r"Test accuracy .*\nResults: run/ .*\n", said.out)
    assert said.err == ""


def test_the_command_is_recorded_as_it_was_given():
    words = shlex.split(summary(run("--shift", "1", out="a run"))["command"])
    assert words == ["python", "-m", "minicaps.train", *TINY, "--out", "a run", "--shift", "1"]


def test_an_empty_folder_is_taken():
    Path("run").mkdir()
    run()


# ---- what is measured


@pytest.mark.slow
def test_the_last_batch_counts_by_its_size():
    """Ten images in batches of 4, 4 and 2, and a network that does not change."""
    frozen = ("--limit", "10", "--validation", "0", "--learning-rate", "1e-30")
    few, one = run(*frozen, "--batch-size", "4"), run(*frozen, "--batch-size", "10", out="one")
    (row,), (whole_row,) = (history(f) for f in (few, one))
    for name in ("train_loss", "train_accuracy", "reconstruction_loss"):
        assert row[name] == pytest.approx(whole_row[name], rel=1e-6)
    model = load_model(few / "last.npz", CPU)
    split = data.load("strokes", limit=10).train
    routed = model(Tensor(split.images))
    assert row["train_loss"] == pytest.approx(
        float(ops.margin_loss(routed.activations, split.labels)), rel=1e-6
    )
    drawn = model.reconstruct(routed.poses, split.labels)
    assert row["reconstruction_loss"] == pytest.approx(
        float(ops.reconstruction_loss(drawn, split.images)), rel=1e-6
    )


@pytest.mark.parametrize(
    ("measured", "best"),
    thinned_rows(
        [
            ([(0.5, 1), (0.4, 3), (0.3, 2)], 2),  # most correct predictions, not the lowest loss
            ([(0.5, 3), (0.4, 3), (0.45, 3)], 2),  # equally many: the lowest loss
            ([(0.5, 3), (0.4, 2), (0.5, 3)], 1),  # equal in both: the first
        ]
    ),
)
def test_validation_chooses_the_model_that_is_tested(monkeypatch, measured, best):
    script, tested = iter(measured), []

    def scripted(model, split, *rest, **keywords):
        if len(split) == 4:
            return next(script)
        tested.append((model.state_dict(), len(split)))
        return evaluate(model, split, *rest, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "evaluate", scripted)
        run("--epochs", "3")
    ((chosen, samples),) = tested  # the test set is used only once
    assert samples == 30
    assert same(chosen, parameters("run", "best.npz"))
    assert same(chosen, parameters(run("--epochs", str(best), out="short")))
    assert summary("run")["best_epoch"] == best
    assert summary("run")["validation_accuracy"] == measured[best - 1][1] / 4


def test_without_validation_all_pictures_train_and_the_last_epoch_is_tested():
    folder = run("--validation", "0", "--epochs", "2")
    assert saved(folder)[0]["optimizer/steps"] == 10  # 40 images in batches of 8
    assert same(parameters(folder, "best.npz"), parameters(folder))
    found = summary(folder)
    assert found["best_epoch"] == 2
    assert "validation_accuracy" not in found
    assert "validation" not in (folder / "metrics.csv").read_text()


@pytest.mark.slow
def test_float64_is_kept():
    for name, dtype in (("float32", np.float32), ("float64", np.float64)):
        arrays, _ = saved(run("--precision", name, out=name))
        assert {a.dtype for a in arrays.values()} == {np.dtype(dtype), np.dtype(int)}
    model = load_model("float64/best.npz", CPU)
    loss, _ = evaluate(model, data.load("strokes", limit=1).test, "margin")
    assert loss == summary("float64")["test_loss"]


# ---- devices


def test_a_gpu_that_is_not_there(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    said = refused(capsys, *TINY, "--device", "gpu", "--out", "run", code=1)
    assert said.startswith("minicaps.train: CuPy cannot be imported")
    assert 'pip install -e ".[cuda12]"' in said
    assert not Path("run").exists()
    run("--device", "auto")
    assert summary("run")["device"] == "CPU (NumPy)"


def test_cupy_without_a_gpu(strict_cupy, monkeypatch, capsys):
    monkeypatch.setattr(strict_cupy.cuda.runtime, "getDeviceCount", lambda: 0)
    said = refused(capsys, *TINY, "--device", "gpu", "--out", "run", code=1)
    assert "finds no usable GPU" in said
    assert "--device cpu" in said


@pytest.mark.slow
def test_a_whole_run_on_the_device_is_that_of_the_cpu(strict_cupy, capsys):
    options = ("--precision", "float64", "--epochs", "2", "--shift", "1", "--clip", "1")
    cpu = run(*options, out="cpu")
    gpu = run("--device", "gpu", *options, out="gpu")
    assert summary(gpu)["device"] == "strict stand-in (CuPy)"
    assert summary(gpu)["versions"]["cupy"] == strict_cupy.__version__
    for name, array in parameters(cpu).items():
        np.testing.assert_allclose(parameters(gpu)[name], array, rtol=0, atol=1e-9, err_msg=name)
    assert summary(gpu)["test_right"] == summary(cpu)["test_right"]
    assert summary(gpu)["test_loss"] == pytest.approx(summary(cpu)["test_loss"], abs=1e-9)
    half = run("--device", "gpu", *options, "--epochs", "1", out="half")
    assert_equal_runs(go_on(half, "--epochs", "2"), gpu)


@pytest.mark.slow
def test_no_step_waits_for_the_device(strict_cupy, monkeypatch):
    step, waits = Trainer._step, []

    def counted(self, *batch):
        before = strict_cupy.host_syncs.total()
        step(self, *batch)
        waits.append(strict_cupy.host_syncs.total() - before)

    monkeypatch.setattr(Trainer, "_step", counted)
    run("--device", "gpu", "--clip", "1", "--weight-decay", "0.1")
    assert waits == [0] * 5
    assert strict_cupy.host_syncs["get"] > 0  # results do reach the host


def test_a_run_knows_what_its_pictures_are_drawn_on():
    path = run() / "best.npz"
    assert open_run("run", CPU).model.preprocessing.background == "dark"
    edit(path, lambda meta: meta["preprocessing"].pop("background"))  # an older run
    assert open_run("run", CPU).model.preprocessing.background is None
