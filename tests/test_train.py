"""`python -m minicaps.train`: its run folder, its measurements, resuming, and what can go wrong."""

import csv
import itertools
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from idx_files import FILES, Tiny, arrays_of, isolate
from tiny_runs import (
    TINY,
    TINY_PROCESS,
    assert_equal_runs,
    environment,
    finish,
    go_on,
    history,
    parameters,
    run,
    same,
    saved,
    start,
    summary,
    tiny,  # noqa: F401 (used by every test here)
)

import minicaps
from minicaps import Tensor, checkpoint, data, ops, train, training
from minicaps.backend import choose_device
from minicaps.options import complete
from minicaps.training import Trainer

CPU = choose_device("cpu")


# ---- the run folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run as a user makes it: nothing is left out. (folder, standard output, command)."""
    here = tmp_path_factory.mktemp("whole")
    command = ["python", "-m", "minicaps.train", "--limit", "60", "--epochs", "2"]
    command += ["--batch-size", "16", "--out", "runs/a run", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return here / "runs" / "a run", done.stdout, command


def test_what_a_run_says_and_writes(whole):
    folder, said, _ = whole
    lines = said.splitlines()
    assert lines[0] == "Device: CPU (NumPy) (chosen)"
    assert lines[1] == "Data: strokes, 54 training, 6 validation, 2,000 test pictures"
    assert re.fullmatch(r"Model: capsnet, preset small, [\d,]+ parameters", lines[2])
    epoch = r"epoch {}/2  train loss 0\.\d{{4}} accuracy \d+\.\d\d%  validation loss .* images/s"
    assert re.fullmatch(epoch.format(1), lines[3])
    assert re.fullmatch(epoch.format(2), lines[4])
    found = summary(folder)
    right, share = found["test_right"], found["test_accuracy"]
    assert lines[5].startswith(f"Test accuracy {share:.2%} ({right:,} of 2,000 pictures), by the ")
    files = ["best.npz", "config.json", "curves.png", "last.npz", "metrics.csv"]
    files += ["reconstructions.png", "summary.json"]
    assert lines[6:] == [f"Results: runs/a run/ ({', '.join(files)})"]
    assert sorted(p.name for p in folder.iterdir()) == files


def test_the_summary_is_consistent(whole):
    folder, _, command = whole
    found = summary(folder)
    assert found["test_samples"] == 2000
    assert found["test_accuracy"] == found["test_right"] / 2000
    assert found["epochs"] == 2
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


def test_the_test_figures_are_those_of_the_best_model(whole, monkeypatch):
    folder, *_ = whole
    monkeypatch.undo()  # back to the whole test data and the real network
    found = summary(folder)
    model = training.load_model(folder / "best.npz", CPU)
    test = data.load("strokes", limit=1).test
    assert training.evaluate(model, test, CPU) == (found["test_loss"], found["test_right"])


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


def test_the_configuration_is_complete(whole):
    folder, *_ = whole
    config = json.loads((folder / "config.json").read_text())
    given = {"limit": 60, "epochs": 2, "batch_size": 16, "out": "runs/a run", "device": "cpu"}
    assert config["options"] == complete(given)
    for name in ("best.npz", "last.npz"):
        meta = saved(folder, name)[1]
        assert meta["format"] == checkpoint.FORMAT
        assert meta["options"] == config["options"]
        assert meta["model"] == config["model"]
        assert meta["preprocessing"] == {"pixels": "[0, 1]", "class_names": list("0123456789")}


def test_the_pictures_show_something(whole):
    folder, *_ = whole
    for name in ("curves.png", "reconstructions.png"):
        picture = matplotlib.image.imread(folder / name)
        assert min(picture.shape[:2]) > 250
        assert picture[..., :3].std() > 0.05


def test_the_folder_has_a_name_of_its_own_without_out():
    assert train.main(TINY) == 0
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"strokes-small-\d{8}-\d{6}", folder.name)
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


def test_the_last_batch_counts_by_its_size():
    """Ten pictures in batches of 4, 4 and 2, a network that stands still."""
    frozen = ("--limit", "10", "--validation", "0", "--learning-rate", "1e-30")
    few, one = run(*frozen, "--batch-size", "4"), run(*frozen, "--batch-size", "10", out="one")
    (row,), (whole_row,) = (history(f) for f in (few, one))
    for name in ("train_loss", "train_accuracy", "reconstruction_loss"):
        assert row[name] == pytest.approx(whole_row[name], rel=1e-6)
    model = training.load_model(few / "last.npz", CPU)
    split = data.load("strokes", limit=10).train
    routed = model(Tensor(split.images))
    assert row["train_loss"] == pytest.approx(
        float(ops.margin_loss(routed.activations, split.labels)), rel=1e-6
    )
    drawn = model.reconstruct(routed.poses, split.labels)
    assert row["reconstruction_loss"] == pytest.approx(
        float(ops.reconstruction_loss(drawn, split.images)), rel=1e-6
    )


def test_evaluation_counts_samples_not_batches(monkeypatch):
    """Ten samples, batches of 4, of which 4, 4 and 1 are right: 0.9, and the mean loss of all."""

    class Reads:
        """A network whose lengths are written into the picture."""

        def __call__(self, images):
            return type("Routed", (), {"activations": images[:, 0, 0]})

        def train(self):
            self.trains = True

        def eval(self):
            self.trains = False

    labels = np.arange(10) % 3
    lengths = np.eye(3, dtype=np.float32)[labels]
    lengths[9] = [0.2, 0.9, 0.1]  # label 0
    split = data.Split(lengths[:, None, None], labels)
    monkeypatch.setattr(training, "EVALUATION_BATCH", 4)
    model = Reads()
    loss, right = training.evaluate(model, split, CPU)
    assert right == 9
    assert loss == pytest.approx((0.7**2 + 0.5 * 0.8**2) / 10)
    assert model.trains


@pytest.mark.parametrize(
    ("measured", "best"),
    [
        ([(0.5, 1), (0.4, 3), (0.3, 2)], 2),  # most right answers, not the least loss
        ([(0.5, 3), (0.4, 3), (0.45, 3)], 2),  # equally many: the least loss
        ([(0.5, 3), (0.4, 2), (0.5, 3)], 1),  # equal in both: the first
    ],
)
def test_validation_chooses_the_model_that_is_tested(monkeypatch, measured, best):
    script, tested = iter(measured), []
    evaluate = training.evaluate

    def scripted(model, split, *rest):
        if len(split) == 4:
            return next(script)
        tested.append((model.state_dict(), len(split)))
        return evaluate(model, split, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(training, "evaluate", scripted)
        run("--epochs", "3")
    ((chosen, samples),) = tested  # the test pictures are looked at once
    assert samples == 30
    assert same(chosen, parameters("run", "best.npz"))
    assert same(chosen, parameters(run("--epochs", str(best), out="short")))
    assert summary("run")["best_epoch"] == best
    assert summary("run")["validation_accuracy"] == measured[best - 1][1] / 4


def test_without_validation_all_pictures_train_and_the_last_epoch_is_tested():
    folder = run("--validation", "0", "--epochs", "2")
    assert saved(folder)[0]["optimizer/steps"] == 10  # 40 pictures in batches of 8
    assert same(parameters(folder, "best.npz"), parameters(folder))
    found = summary(folder)
    assert found["best_epoch"] == 2
    assert "validation_accuracy" not in found
    assert "validation" not in (folder / "metrics.csv").read_text()


def test_float64_is_kept():
    for name, dtype in (("float32", np.float32), ("float64", np.float64)):
        arrays, _ = saved(run("--precision", name, out=name))
        assert {a.dtype for a in arrays.values()} == {np.dtype(dtype), np.dtype(int)}
    loss, _ = training.evaluate(
        training.load_model("float64/best.npz", CPU),
        data.load("strokes", limit=1).test,
        CPU,
        np.float64,
    )
    assert loss == summary("float64")["test_loss"]


# ---- the same again


def test_equal_seeds_train_bit_equal_and_others_do_not():
    first = run()
    assert_equal_runs(run(out="again"), first)
    assert not same(parameters(run("--seed", "1", out="other")), parameters(first))


VARIANTS = {
    "default": (),
    "shifted": ("--shift", "2"),
    "sgd, clipped": ("--optimizer", "sgd", "--learning-rate", "0.1", "--clip", "0.05"),
    "decay, constant": ("--weight-decay", "0.1", "--schedule", "constant"),
    "float64": ("--precision", "float64", "--reconstruction", "0"),
}
variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


@variants
def test_four_epochs_are_two_and_two(options):
    straight = run("--epochs", "4", *options, out="straight")
    folder = run("--epochs", "2", *options)
    assert_equal_runs(go_on(folder, "--epochs", "4"), straight)
    assert len((folder / "metrics.csv").read_text().splitlines()) == 5


def send_in_call(monkeypatch, owner, name, call, number=signal.SIGINT):
    """Send this process a signal in the given call (1, 2, …) of a function."""
    function, calls = getattr(owner, name), itertools.count(1)

    def sending(*args, **keywords):
        if next(calls) == call:
            os.kill(os.getpid(), number)
        return function(*args, **keywords)

    monkeypatch.setattr(owner, name, sending)


def interrupted(capsys, *options, code=130):
    """Run until the signal comes; return the command that the message tells to go on with."""
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    assert train.main([*TINY, "--out", "a run", *options]) == code
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    said = capsys.readouterr().err.splitlines()
    assert said[-2] == "minicaps.train: stopped and saved. Go on with:"
    words = shlex.split(said[-1])
    assert words[:3] == ["python", "-m", "minicaps.train"]
    return words[3:]


# Two epochs of five steps each, with a validation after each and a test in the end.
MOMENTS = {
    "in the first step": (Trainer, "_step", 1),
    "in the middle of an epoch": (Trainer, "_step", 8),
    "in the last step of an epoch": (Trainer, "_step", 5),
    "in validation": (training, "evaluate", 2),
    "in the test": (training, "evaluate", 3),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_an_interrupted_run_goes_on_bit_equal(monkeypatch, capsys, moment):
    options = ("--epochs", "2", "--schedule", "cosine")
    straight = run(*options, out="straight")
    with monkeypatch.context() as patch:
        send_in_call(patch, *moment)
        command = interrupted(capsys, *options)
    assert command == ["--resume", "a run"]
    assert train.main(command) == 0
    assert_equal_runs("a run", straight)


@variants
def test_an_interrupted_epoch_goes_on_bit_equal(monkeypatch, capsys, options):
    straight = run("--epochs", "2", *options, out="straight")
    with monkeypatch.context() as patch:
        send_in_call(patch, Trainer, "_step", 7, signal.SIGTERM)
        command = interrupted(capsys, "--epochs", "2", *options, code=143)
    assert saved("a run")[1]["progress"]["batch"] == 2
    assert train.main(command) == 0
    assert_equal_runs("a run", straight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_a_process_and_another_goes_on_bit_equal(number):
    straight = run("--epochs", "30", out="straight")
    process = start(*TINY[:-1], "--epochs", "30", "--out", "run")  # not quiet
    for line in process.stdout:  # comes at once, though it is a pipe
        if line.startswith("epoch 1/30"):
            process.send_signal(number)
            break
    code, _, err = finish(process)
    assert code == 128 + number
    assert err.endswith("python -m minicaps.train --resume run\n")
    progress = saved("run")[1]["progress"]
    assert 1 <= progress["epoch"] < 30
    code, out, _ = finish(start("--resume", "run"))
    assert code == 0
    assert re.search(r"^epoch 30/30 .*\nTest accuracy", out, re.MULTILINE)
    assert_equal_runs("run", straight)


def test_a_second_ctrl_c_stops_at_once_and_leaves_the_last_good_file(monkeypatch, capsys):
    folder = run("--epochs", "1")
    before = (folder / "last.npz").read_bytes()
    send_in_call(monkeypatch, Trainer, "_step", 3)
    send_in_call(monkeypatch, np, "savez", 1)
    capsys.readouterr()
    assert train.main(["--resume", "run", "--epochs", "2", "--quiet"]) == 130
    assert capsys.readouterr().err == "minicaps.train: interrupted\n"
    assert (folder / "last.npz").read_bytes() == before
    assert not list(folder.glob("*.part"))


def test_ctrl_c_while_data_is_loaded(monkeypatch, capsys):
    send_in_call(monkeypatch, data, "load", 1)
    assert train.main([*TINY, "--out", "run"]) == 130
    assert capsys.readouterr().err == "minicaps.train: interrupted\n"
    assert not Path("run").exists()


def test_a_finished_run_is_resumed_to_the_same_result():
    folder = run()
    before = saved(folder)[0]
    result = summary(folder)["test_right"]
    assert summary(go_on(folder))["test_right"] == result
    assert same(saved(folder)[0], before)


# ---- what must not be resumed


def refused(capsys, *arguments, code):
    """Run the command, which must refuse; return what it said, which is no traceback."""
    try:
        assert train.main(list(arguments)) == code
    except SystemExit as stopped:
        assert stopped.code == code
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def edit(path, change):
    """Change the meta of a checkpoint."""
    arrays, meta = checkpoint.load(path)
    change(meta)
    checkpoint.save(path, arrays, meta)


@pytest.mark.parametrize(
    ("name", "value", "numbers"),
    [
        ("input_shape", [1, 36, 36], ("[1, 36, 36]", "[1, 28, 28]")),
        ("input_shape", [3, 28, 28], ("[3, 28, 28]", "[1, 28, 28]")),
        ("classes", 11, ("11", "10")),
    ],
)
def test_a_run_on_other_data_is_refused_with_both_numbers(capsys, name, value, numbers):
    path = run() / "last.npz"
    edit(path, lambda meta: meta["model"].update({name: value}))
    capsys.readouterr()
    said = refused(capsys, "--resume", "run", code=2)
    assert name in said
    assert all(number in said for number in numbers)


@pytest.mark.parametrize(
    "change",
    [{"classes": 11}, {"input_shape": [1, 36, 36]}, {"name": "capsnot"}, {"options": {"x": 1}}],
    ids=str,
)
def test_a_model_that_does_not_fit_its_parameters_is_refused(change):
    path = run() / "best.npz"
    edit(path, lambda meta: meta["model"].update(change))
    with pytest.raises(checkpoint.CheckpointError, match=r"best\.npz"):
        training.load_model(path, CPU)


def test_a_checkpoint_without_a_model_is_refused():
    checkpoint.save("a.npz", {}, {"model": {"name": "capsnet"}})
    checkpoint.save("b.npz", {}, {})
    for path in ("a.npz", "b.npz"):
        with pytest.raises(checkpoint.CheckpointError, match=path):
            training.load_model(path, CPU)


def test_what_is_no_run_cannot_be_resumed(capsys):
    Path("file").touch()
    Path("empty").mkdir()
    Path("folder/last.npz").mkdir(parents=True)
    checkpoint.save("folder/other.npz", {}, {})
    Path("lesson").mkdir()
    checkpoint.save("lesson/last.npz", {}, {"model": {}})
    for folder in ("nowhere", "file", "empty", "folder", "lesson"):
        said = refused(capsys, "--resume", folder, code=1)
        assert said.startswith("minicaps.train: ")
        assert f"{folder}/last.npz" in said
    assert os.listdir("empty") == []


def test_a_checkpoint_from_before_an_option_came_has_its_default():
    straight = run("--epochs", "2", out="straight")
    path = run() / "last.npz"
    edit(path, lambda meta: meta["options"].pop("clip"))
    assert_equal_runs(go_on("run", "--epochs", "2"), straight)


def test_fewer_epochs_than_done_are_refused(capsys):
    run("--epochs", "2")
    capsys.readouterr()
    assert "this run has done 2 already" in refused(
        capsys, "--resume", "run", "--epochs", "1", code=2
    )


# ---- divergence, and networks that learn nothing


def finite(path):
    return all(np.isfinite(a).all() for a in checkpoint.load(path)[0].values())


@pytest.mark.filterwarnings("error")  # NumPy's own warnings would hide the message
def test_a_diverging_run_stops_and_says_why(capsys):
    options = ("--optimizer", "sgd", "--learning-rate", "1e20", "--out", "run")
    said = refused(capsys, *TINY, *options, code=1)
    assert re.fullmatch(
        r"minicaps.train: the loss became infinite or NaN in step 2 \(epoch 1\)\. The likely cause"
        r" is a step too large: try a smaller --learning-rate \(it was 1e\+20\), or --clip 1\n",
        said,
    )
    assert os.listdir("run") == ["config.json"]


def spoil_in_step(monkeypatch, number):
    """Let a step with a finite loss make a parameter NaN."""
    step = Trainer._step

    def spoiling(self, *batch):
        step(self, *batch)
        if self.optimizer.steps == number:
            self.model.parameters()[0].data[0] = np.nan

    monkeypatch.setattr(Trainer, "_step", spoiling)


@pytest.mark.parametrize(
    ("step", "options", "what"),
    [
        (7, (), "the loss became infinite or NaN in step 8"),
        (10, (), "the validation loss became infinite or NaN in step 10"),
        (10, ("--validation", "0"), "the model became infinite or NaN in step 10"),
    ],
)
def test_the_last_good_checkpoint_stays(monkeypatch, capsys, step, options, what):
    good = run(*options, out="good")
    capsys.readouterr()
    spoil_in_step(monkeypatch, step)
    said = refused(capsys, *TINY, "--epochs", "3", "--out", "run", *options, code=1)
    assert f"{what} (epoch 2)" in said
    for name in ("last.npz", "best.npz"):
        assert finite(Path("run") / name)
        assert same(parameters("run", name), parameters(good, name))


def test_an_interrupt_saves_no_nan(monkeypatch, capsys):
    spoil_in_step(monkeypatch, 2)
    send_in_call(monkeypatch, Trainer, "_step", 3)
    assert "in step 3" in refused(capsys, *TINY, "--out", "run", code=1)
    assert os.listdir("run") == ["config.json"]


@pytest.mark.parametrize(
    "options", [("--validation", "4"), ("--validation", "0", "--epochs", "2")], ids=str
)
def test_a_dead_network_is_told(capsys, options):
    """A weight decay of 1/learning rate takes all of each parameter in each step."""
    run("--learning-rate", "0.001", "--weight-decay", "1000", "--schedule", "constant", *options)
    said = capsys.readouterr().err
    assert "the margin loss is 0.81: all class capsules have length 0" in said
    assert "The network is dead" in said


def test_a_saturated_network_is_told(monkeypatch, capsys):
    build = training.build_model

    def saturated(options, data):
        model = build(options, data)
        model.classes.weight.data *= 1e6
        return model

    monkeypatch.setattr(training, "build_model", saturated)
    run("--learning-rate", "1e-30")
    said = capsys.readouterr().err
    assert "the margin loss is 3.645: all class capsules have length 1" in said
    assert "The network is saturated" in said


@pytest.mark.parametrize("classes", [2, 5, 10, 26])
def test_only_dead_and_saturated_networks_are_stuck(classes):
    saturated = 0.5 * (classes - 1) * 0.9**2
    assert "dead" in train.stuck(0.81, classes)
    assert "saturated" in train.stuck(saturated, classes)
    for loss in (0.0, 0.1, 0.6, 0.8, 0.99 * saturated, 1.01 * saturated, 100.0):
        assert train.stuck(loss, classes) is None


# ---- other programs, files and folders


def test_arithmetic_warnings_are_left_as_they_were():
    before = np.geterr()
    run()
    assert np.geterr() == before


@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["talking", "quiet"])
def test_a_reader_that_goes_away(quiet):
    """As in `python -m minicaps.train | head -1`."""
    read, write = os.pipe()
    process = start(*TINY[:-1], *quiet, "--out", "run", stdout=write)
    os.close(write)
    os.close(read)
    code, _, err = finish(process)
    assert (code, err) == (1, "minicaps.train: [Errno 32] Broken pipe\n")


def test_a_closed_output():
    line = [sys.executable, "-c", TINY_PROCESS, *TINY[:-1], "--out", "run"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" >&- 2>&-', *line], env=environment(), timeout=120
    )
    assert done.returncode == 0
    assert Path("run/summary.json").is_file()


def test_a_terminal_shows_a_bar_and_ends_it():
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 120))
    line = [*TINY[:-1], "--epochs", "2", "--out", "run"]
    process = start(*line, stdout=follower, stderr=follower)
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 1 << 16)
        except OSError:  # how Linux ends a terminal
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert process.wait(timeout=60) == 0
    shown = shown.decode()
    assert re.search(r"\d+%\|.*\| [\d.]+/72.0 \[\d\d:\d\d<\S+, +[\d.]+k? images/s", shown)
    assert re.search(r"epoch=1, loss=0\.\d{4}", shown)
    assert "accuracy=" in shown
    assert re.search(r"100%[^\n]*\r\nTest accuracy [^\r]*\r\nResults: [^\r]*\r\n$", shown)


@pytest.mark.parametrize(
    "encoding",
    [{"PYTHONUTF8": "1"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["UTF-8 mode", "ASCII"],
)
@pytest.mark.parametrize("output", [{}, {"PYTHONIOENCODING": "ascii"}], ids=["", "ASCII output"])
def test_any_folder_name_in_the_plainest_locale(encoding, output):
    own = {k: v for k, v in environment().items() if k != "PYTHONIOENCODING"}
    own |= {"LC_ALL": "C"} | encoding | output
    folder = "ein Ordner, größer ✗"
    assert finish(start(*TINY, "--out", folder, env=own))[0] == 0
    assert finish(start("--resume", folder, "--epochs", "2", env=own))[0] == 0
    assert summary(folder)["epochs"] == 2


def test_a_folder_that_is_deleted_while_training(monkeypatch, capsys):
    Path("runs").mkdir()
    evaluate = training.evaluate

    def deleting(*args):
        shutil.rmtree("runs")
        return evaluate(*args)

    monkeypatch.setattr(training, "evaluate", deleting)
    said = refused(capsys, *TINY, "--out", "runs/a", code=1)
    assert said == "minicaps.train: cannot write runs/a/best.npz: No such file or directory\n"


def test_a_full_disk_stops_the_run_and_it_goes_on_later():
    """The system refuses to write files of more than 20,000 bytes; then there is room again."""
    straight = run("--epochs", "3", out="straight")
    folder = run("--epochs", "1")
    full = """
import resource
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))
"""
    process = start("--resume", "run", "--epochs", "3", code=full + TINY_PROCESS)
    code, _, err = finish(process)
    assert code == 1
    assert re.fullmatch(r"minicaps.train: cannot write run/\w+.npz: File too large\n", err)
    assert not list(folder.glob("*.part"))
    assert_equal_runs(go_on(folder, "--epochs", "3"), straight)


def test_two_runs_do_not_share_a_folder(monkeypatch, capsys):
    """The other one makes the folder while this one still loads its data."""
    load = data.load

    def meanwhile(*args, **keywords):
        monkeypatch.setattr(data, "load", load)
        run("--seed", "7")
        return load(*args, **keywords)

    monkeypatch.setattr(data, "load", meanwhile)
    assert train.main([*TINY, "--out", "run"]) == 1
    assert "File exists: 'run/config.json'" in capsys.readouterr().err
    assert summary("run")["epochs"] == 1
    assert json.loads(Path("run/config.json").read_text())["options"]["seed"] == 7


@pytest.mark.parametrize("out", ["full", "file"])
def test_what_exists_is_not_overwritten(capsys, out):
    Path("full").mkdir()
    Path("full/notes").touch()
    Path("file").write_text("mine")
    said = refused(capsys, *TINY, "--out", out, code=2)
    assert f"{out} exists already: choose another --out, or go on with --resume {out}" in said
    assert os.listdir("full") == ["notes"]
    assert Path("file").read_text() == "mine"


def test_a_folder_that_cannot_be_made(capsys):
    Path("file").touch()
    assert "Not a directory: 'file/run'" in refused(capsys, *TINY, "--out", "file/run", code=1)
    assert "File name too long" in refused(capsys, *TINY, "--out", "x" * 300, code=1)


def test_a_folder_without_permission():
    """As an ordinary user: root may write anywhere."""
    code = """
import os, sys
from minicaps import data, train
data.load("strokes", limit=1)  # imports everything, while it can be reached
if os.getuid() == 0:
    os.setuid(65534)
sys.exit(train.main())
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        code, _, err = finish(start(*TINY, "--out", f"{folder}/run", code=code))
    assert (code, err) == (1, f"minicaps.train: [Errno 13] Permission denied: '{folder}/run'\n")


def test_missing_and_broken_data_files(monkeypatch, tmp_path, capsys):
    isolate(monkeypatch, tmp_path)
    Tiny(monkeypatch, "mnist", arrays_of(0))  # to download from nowhere
    monkeypatch.setenv("MINICAPS_DATA", "nowhere")
    command = (*TINY, "--data", "mnist", "--out", "run")
    said = refused(capsys, *command, code=1)
    assert said.startswith("minicaps.train: mnist is not here and could not be downloaded.")
    assert "nowhere" in said and "--data-dir" in said
    Path("mine/mnist").mkdir(parents=True)
    for name in FILES:
        Path("mine/mnist", name).write_bytes(b"garbage")
    said = refused(capsys, *command, "--data-dir", "mine", code=1)
    assert re.match(r"minicaps.train: mine/mnist/\S+ is not an IDX file", said)
    assert not Path("run").exists()


def test_too_little_memory(monkeypatch, capsys):
    def step(*_):
        raise MemoryError

    monkeypatch.setattr(Trainer, "_step", step)
    assert "not enough memory: try a smaller --batch-size" in refused(
        capsys, *TINY, "--out", "run", code=1
    )


# ---- devices


def test_a_gpu_that_is_not_there(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    said = refused(capsys, *TINY, "--device", "gpu", "--out", "run", code=1)
    assert said.startswith("minicaps.train: CuPy cannot be imported")
    assert 'pip install "minicaps[cuda12]"' in said
    assert not Path("run").exists()
    run("--device", "auto")
    assert summary("run")["device"] == "CPU (NumPy)"


def test_cupy_without_a_gpu(strict_cupy, monkeypatch, capsys):
    monkeypatch.setattr(strict_cupy.cuda.runtime, "getDeviceCount", lambda: 0)
    said = refused(capsys, *TINY, "--device", "gpu", "--out", "run", code=1)
    assert "finds no usable GPU" in said
    assert "--device cpu" in said


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


def test_no_step_waits_for_the_device(strict_cupy, monkeypatch):
    step, waits = Trainer._step, []

    def counted(self, *batch):
        before = strict_cupy.host_syncs.total()
        step(self, *batch)
        waits.append(strict_cupy.host_syncs.total() - before)

    monkeypatch.setattr(Trainer, "_step", counted)
    run("--device", "gpu", "--clip", "1", "--weight-decay", "0.1")
    assert waits == [0] * 5
    assert strict_cupy.host_syncs["get"] > 0  # results do come to the host
