"""Divergence, dead networks, and external faults: closed pipes, full disks and odd folders."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import numpy as np
import pytest
from commands import environment
from idx_files import FILES, Tiny, arrays_of, isolate
from thinning import thinned, thinned_rows
from tiny_runs import (
    NETWORK,
    TINY,
    TINY_PROCESS,
    assert_equal_runs,
    finish,
    go_on,
    parameters,
    refused,
    run,
    same,
    send_in_call,
    start,
    summary,
)

from minicaps import data
from minicaps.backend import choose_device
from minicaps.models.losses import LOSSES
from minicaps.runs import checkpoint
from minicaps.runs.building import build_model
from minicaps.runs.inference import evaluate
from minicaps.storage import locked
from minicaps.train import __main__ as train
from minicaps.train import trainer
from minicaps.train.trainer import Trainer

CPU = choose_device("cpu")


# ---- divergence, and networks that learn nothing


def finite(path):
    return all(np.isfinite(a).all() for a in checkpoint.load(path)[0].values())


@pytest.mark.filterwarnings("error")  # NumPy's own warnings would hide the message
def test_a_diverging_run_stops_and_says_why(capsys):
    options = ("--optimizer", "sgd", "--learning-rate", "1e20", "--out", "run")
    said = refused(capsys, *TINY, *options, code=1)
    assert re.fullmatch(
        r"minicaps.train: the loss became infinite or NaN in step 2 \(epoch 1\), first in the"
        r" layer \S+(, iteration \d of 3)?\. A step was"
        r" probably too large: try a smaller --learning-rate \(it was 1e\+20\), or --clip 1\n",
        said,
    )
    assert os.listdir("run") == ["config.json"]


def spoil_in_step(monkeypatch, number):
    """Make a step with a finite loss set a parameter to NaN."""
    step = Trainer._step

    def spoiling(self, *batch):
        step(self, *batch)
        if self.learner.optimizer.steps == number:
            self.model.parameters()[0].data[0] = np.nan

    monkeypatch.setattr(Trainer, "_step", spoiling)


@pytest.mark.parametrize(
    ("step", "options", "what"),
    thinned_rows(
        [
            (7, (), "the loss became infinite or NaN in step 8"),
            (10, (), "the validation loss became infinite or NaN in step 10"),
            (10, ("--validation", "0"), "the model became infinite or NaN in step 10"),
        ]
    ),
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
    "options", thinned([("--validation", "4"), ("--validation", "0", "--epochs", "2")]), ids=str
)
def test_a_dead_network_is_told(capsys, options):
    """A weight decay of 1/learning rate removes all of each parameter in every step."""
    run("--learning-rate", "0.001", "--weight-decay", "1000", "--schedule", "constant", *options)
    said = capsys.readouterr().err
    assert "the margin loss is 0.81: all classes have activation 0, so the network is dead" in said
    assert summary("run")["warnings"][-1] in said


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_only_a_margin_loss_tells_a_dead_network(monkeypatch, capsys, loss):
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: (0.81, 3))
    run("--loss", loss)
    assert ("network is dead" in capsys.readouterr().err) == (loss == "margin")


@pytest.mark.slow
def test_a_saturated_network_is_told(monkeypatch, capsys):
    def saturated(options, data):
        model = build_model(options, data)
        model.classes.weight.data *= 1e6
        return model

    monkeypatch.setattr(trainer, "build_model", saturated)
    run("--learning-rate", "1e-30")
    said = capsys.readouterr().err
    assert "the margin loss is 3.645: all classes have activation 1, so the network is sat" in said


@pytest.mark.slow
def test_routing_that_does_not_converge_is_told_once(capsys):
    """Each step raises its own warning, with a different number."""
    run("--update", "recompute", "--gradient", "implicit", "--iterations", "2", "--epochs", "2")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(set(said)) == 2  # the solution, and its gradient
    assert all(line.startswith("minicaps.train: ") and "fixed point" in line for line in said)


# ---- other programs, files and folders


def test_arithmetic_warnings_are_left_as_they_were():
    before = np.geterr()
    run()
    assert np.geterr() == before


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["talking", "quiet"])
def test_a_reader_that_goes_away(quiet):
    """This happens in `python -m minicaps.train | head -1`."""
    read, write = os.pipe()
    process = start(*TINY[:-1], *quiet, "--out", "run", stdout=write)
    os.close(write)
    os.close(read)
    code, _, err = finish(process)
    assert (code, err) == (
        1,
        "minicaps.train: stopped because the output pipe was closed (Broken pipe)\n",
    )


@pytest.mark.slow
def test_a_closed_output():
    line = [sys.executable, "-c", TINY_PROCESS, *TINY[:-1], "--out", "run"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" >&- 2>&-', *line], env=environment(), timeout=600
    )
    assert done.returncode == 0
    assert Path("run/summary.json").is_file()


@pytest.mark.slow
def test_a_closed_output_takes_no_bars():
    """Test `python -m minicaps.evaluate run >&- 2>&-`, where long work would show a bar."""
    code = """
import sys
from minicaps.cli.command import start
from tqdm import tqdm

def main():
    tqdm(total=1, disable=None).update()
    print("said")
    print("told", file=sys.stderr)
    return 7

sys.exit(start(main))
"""
    line = ["sh", "-c", 'exec "$0" "$@" >&- 2>&-', sys.executable, "-c", code]
    assert subprocess.run(line, env=environment(), timeout=600).returncode == 7


@pytest.mark.slow
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
        except OSError:  # how Linux closes a terminal
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert process.wait(timeout=600) == 0
    shown = shown.decode()
    assert re.search(r"\d+%\|.*\| [\d.]+/72.0 \[\d\d:\d\d<\S+, +[\d.]+k? images/s", shown)
    assert re.search(r"epoch=1, loss=0\.\d{4}", shown)
    assert "accuracy=" in shown
    assert re.search(r"100%[^\n]*\r\nTest accuracy [^\r]*\r\nResults: [^\r]*\r\n$", shown)


@pytest.mark.slow
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

    def deleting(*args, **keywords):
        shutil.rmtree("runs")
        return evaluate(*args, **keywords)

    monkeypatch.setattr(trainer, "evaluate", deleting)
    said = refused(capsys, *TINY, "--out", "runs/a", code=1)
    assert said == "minicaps.train: cannot write runs/a/best.npz: No such file or directory\n"


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_it_goes_on_later():
    """The system refuses to write files of more than 20,000 bytes; later, there is room again."""
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
    """The other run creates the folder while this one is still loading its data."""
    load = data.load

    def meanwhile(*args, **keywords):
        monkeypatch.setattr(data, "load", load)
        run("--seed", "7")
        return load(*args, **keywords)

    monkeypatch.setattr(data, "load", meanwhile)
    with pytest.raises(SystemExit, match="2"):
        train.main([*TINY, "--out", "run"])
    assert "run already exists: choose another --out" in capsys.readouterr().err
    assert summary("run")["epochs"] == 1
    assert json.loads(Path("run/config.json").read_text())["options"]["seed"] == 7


@pytest.mark.parametrize("out", ["full", "file"])
def test_what_exists_is_not_overwritten(capsys, out):
    Path("full").mkdir()
    Path("full/notes").touch()
    Path("file").write_text("mine")
    said = refused(capsys, *TINY, "--out", out, code=2)
    assert f"{out} already exists: choose another --out, or continue with --resume {out}" in said
    assert os.listdir("full") == ["notes"]
    assert Path("file").read_text() == "mine"


def test_a_folder_that_cannot_be_made(capsys):
    Path("file").touch()
    said = refused(capsys, *TINY, "--out", "file/run", code=1)
    assert said == (
        "minicaps.train: cannot write file/run: a file exists where a folder is needed; choose"
        " another --out\n"
    )
    assert "File name too long" in refused(capsys, *TINY, "--out", "x" * 300, code=1)


@pytest.mark.slow
def test_a_folder_without_permission():
    """Run as an ordinary user, because root may write anywhere."""
    code = """
import os, sys
from minicaps import data
from minicaps.train import __main__ as train
data.load("strokes", limit=1)  # import everything while it is still accessible
if os.getuid() == 0:
    os.setuid(65534)
sys.exit(train.main())
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        code, _, err = finish(start(*TINY, "--out", f"{folder}/run", code=code))
    told = f"cannot write {folder}/run: Permission denied; choose another --out"
    assert (code, err) == (1, f"minicaps.train: {told}\n")


def test_missing_and_broken_data_files(monkeypatch, tmp_path, capsys):
    isolate(monkeypatch, tmp_path)
    Tiny(monkeypatch, "mnist", arrays_of(0))  # downloads come from nowhere
    monkeypatch.setenv("MINICAPS_DATA", "nowhere")
    command = (*TINY, "--data", "mnist", "--out", "run")
    said = refused(capsys, *command, code=1)
    assert said.startswith("minicaps.train: mnist was not found and could not be downloaded.")
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


# ---- a run folder has one run at a time, and an owner


def test_a_run_that_is_going_on_is_not_resumed_beside_it(capsys):
    run()
    before = Path("run/last.npz").read_bytes()
    capsys.readouterr()
    with locked("run"):
        said = refused(capsys, "--resume", "run", "--epochs", "2", code=1)
    assert said.startswith("minicaps.train: another run is writing to run: wait until it ends")
    assert Path("run/last.npz").read_bytes() == before


@pytest.mark.slow
def test_an_ordinary_user_resumes_a_run_that_may_only_be_read():
    folder = run().absolute()
    code = f"""
import encodings.cp437, os, sys  # of zip files
from minicaps import data, models
from minicaps.train import __main__ as train
models.CAPSNET_PRESETS["small"] = {NETWORK}
data.load("strokes", limit=1)  # import everything while it is still accessible
if os.getuid() == 0:
    os.setuid(65534)
sys.exit(train.main())
"""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        shutil.copytree(folder, f"{place}/run")
        os.chmod(f"{place}/run", 0o555)
        code, _, err = finish(start("--resume", f"{place}/run", code=code))
    assert code == 1
    assert err == f"minicaps.train: cannot write {place}/run/config.json: Permission denied\n"
