"""Experiments whose folders, results or networks are missing, damaged or of another experiment."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from commands import environment, said_by
from tiny_runs import edit, send_in_call

from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.experiments import __main__ as command
from minicaps.experiments import adversarial, affine, lab, pairs, routing, samples
from minicaps.experiments.results import Results

QUICK = ["pairs", "--quick", "--device", "cpu"]
FOLDER = Path("runs/experiments/pairs-quick")
NETWORK = FOLDER / "only-seed-0"


@pytest.fixture(autouse=True)
def one_network(monkeypatch):
    """Give `pairs` one quick part and nothing to draw; return the settings of the part."""
    settings = {"data": "strokes", "validation": 8, "epochs": 1, "batch_size": 4}
    settings |= {"model": "pooling-cnn"}
    monkeypatch.setattr(pairs, "parts", lambda quick: {"only": settings})
    monkeypatch.setattr(pairs, "draw", lambda *_: None)
    return settings


def refused(capsys, *arguments):
    """Run the command, which must fail; return its error message."""
    return said_by(capsys, command.main, *arguments, code=1).err


def test_a_file_in_the_place_of_the_folder_is_told_before_the_work(monkeypatch, capsys):
    monkeypatch.setattr(pairs, "measure", lambda *_: pytest.fail("measured"))
    Path("file").touch()
    said = refused(capsys, "pairs", "--device", "cpu", "--out", "file")
    told = "cannot write file: a file exists where a folder is needed; choose another --out"
    assert said == f"minicaps.experiments: {told}\n"


def test_a_missing_data_folder_is_told_before_the_work(monkeypatch, capsys):
    """This holds even if only later parts need data other than strokes."""
    monkeypatch.setattr(pairs, "measure", lambda *_: pytest.fail("measured"))
    said = refused(capsys, *QUICK, "--data-dir", "missing")
    told = "the data folder missing does not exist or is not a folder"
    assert said == f"minicaps.experiments: {told}\n"
    assert not FOLDER.exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs os.setuid")
def test_a_folder_without_permission_is_told_before_the_work():
    """Run as an ordinary user, because root may write anywhere."""
    code = """
import os, sys
from pathlib import Path
from minicaps.runs.checkpoint import CheckpointError
from minicaps.experiments.results import Results
if os.getuid() == 0:
    os.setuid(65534)
for out in map(Path, sys.argv[1:]):
    try:
        Results(out, "pairs", {}).make_folders()
    except CheckpointError as error:
        print(error)
"""
    with tempfile.TemporaryDirectory() as place:  # not below a folder that only root can enter
        os.chmod(place, 0o755)
        outs = [Path(place, "closed"), Path(place, "open"), Path(place, "half")]
        for out in outs:
            Results(out, "pairs", {}).make_folders()
            os.chmod(out, 0o777)
            os.chmod(out / "pairs", 0o777)
        os.chmod(outs[0], 0o555)
        os.chmod(outs[2] / "pairs", 0o555)
        line = [sys.executable, "-c", code, *outs]
        done = subprocess.run(line, env=environment(), capture_output=True, text=True)
    assert done.stderr == ""
    told = "Permission denied; choose another --out"
    assert done.stdout == f"cannot write {outs[0]}: {told}\ncannot write {outs[2]}/pairs: {told}\n"


@pytest.mark.slow
def test_figures_that_lack_some_are_refused(capsys):
    assert command.main(QUICK) == 0
    path = FOLDER / "pairs/seed-0.json"
    whole = path.read_text()
    for lost in ("figures", "machine", "below"):
        found = json.loads(whole)
        del (found["only"]["figures"] if lost == "below" else found["only"])[lost]
        path.write_text(json.dumps(found))
        said = f"results other than those now measured (KeyError('{lost}'))"
        assert said in refused(capsys, *QUICK)


@pytest.mark.slow
def test_damaged_networks_are_refused(capsys):
    assert command.main(QUICK) == 0
    (FOLDER / "pairs/seed-0.json").unlink()
    whole = (NETWORK / "summary.json").read_text()
    for damage in ("{", "{}", "[]"):
        (NETWORK / "summary.json").write_text(damage)
        assert f"{NETWORK / 'summary.json'} is damaged" in refused(capsys, *QUICK)
    (NETWORK / "summary.json").unlink()  # as the message advises
    assert command.main(QUICK) == 0
    assert (NETWORK / "summary.json").read_text() == whole
    (FOLDER / "pairs/seed-0.json").unlink()
    (NETWORK / "summary.json").unlink()
    edit(NETWORK / "last.npz", lambda meta: meta["progress"].pop("sums"))
    said = refused(capsys, *QUICK)
    assert f"last.npz: move {NETWORK} away (KeyError('sums'))" in said


@pytest.mark.slow
def test_a_kept_epoch_that_was_half_written_is_written_again():
    """A kill during the copy would leave such a file if it were not renamed once complete."""
    assert command.main(QUICK) == 0
    (FOLDER / "pairs/seed-0.json").unlink()
    (NETWORK / "summary.json").unlink()
    (NETWORK / "epoch-1.npz").write_bytes(b"PK")
    assert command.main(QUICK) == 0
    assert (NETWORK / "epoch-1.npz").read_bytes() == (NETWORK / "last.npz").read_bytes()
    assert not list(NETWORK.glob("*.part"))


@pytest.mark.slow
def test_a_training_for_the_picture_alone_can_be_stopped_too(one_network, monkeypatch, capsys):
    """The results exist, perhaps from another machine, but the networks do not."""
    assert command.main(QUICK) == 0
    shutil.rmtree(NETWORK)

    def draw(results, path, lab):
        lab.train("only", lab.data("strokes", 0), one_network | {"seed": 0})

    monkeypatch.setattr(pairs, "draw", draw)
    send_in_call(monkeypatch, lab.Trainer, "_step", call=3)
    capsys.readouterr()
    assert command.main(QUICK) == 130
    said = capsys.readouterr()
    assert "pairs, %, whose two highest" in said.out and "Resume with:" in said.err
    assert (NETWORK / "last.npz").exists() and not (NETWORK / "summary.json").exists()
    assert command.main(QUICK) == 0
    assert f"{NETWORK}: resuming" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("module", [adversarial, affine, routing, samples])
def test_a_picture_is_drawn_of_the_first_part_alone(module, monkeypatch):
    """This happens after an interruption if the data have disappeared since."""
    monkeypatch.setattr(lab, "QUICK_TRAINING", 800)
    monkeypatch.setattr(adversarial, "_draw_pictures", lambda *_: None)
    monkeypatch.setattr(module, "DATA", "strokes", raising=False)
    figures = {
        "accuracy": 0.9,
        "pictures": 20,
        "clean": 0.9,
        "against": {attack: [0.5] * len(adversarial.STRENGTHS) for attack in adversarial.ROWS},
        "equal": dict.fromkeys(affine.KINDS, 0.8),
    }
    there = lab.Lab(Path("runs"), True, choose_device("cpu"), None, StopRequest())
    module.draw({next(iter(module.parts(False))): [figures]}, Path("one.png"), there)
    assert np.fromfile("one.png", "S4", 1)[0] == b"\x89PNG"
