"""The lock that allows only one run at a time in a folder."""

import os
import signal
import subprocess
import sys

import pytest

from minicaps import storage
from minicaps.errors import CheckpointError
from minicaps.storage import check_unused, locked

HOLD = """
import sys, time
from minicaps.storage import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(params=["folder", "file"])
def kind(request, monkeypatch):
    """Use both kinds of lock; the second is for systems without fcntl."""
    if request.param == "file":
        monkeypatch.setattr(storage, "fcntl", None)
    return request.param


def test_a_second_one_is_refused_until_the_first_ends(kind, tmp_path):
    with locked(tmp_path):
        for _ in range(2):  # a rejected one does not release it
            refused = pytest.raises(CheckpointError, match=f"is writing into {tmp_path}: wait")
            with refused, locked(tmp_path):
                pass
    with locked(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_an_error_inside_lets_go(kind, tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        1 / 0  # noqa: B018
    with locked(tmp_path):
        pass


def test_a_folder_that_vanishes_inside(kind, tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"):
        for file in (tmp_path / "run").iterdir():
            file.unlink()
        (tmp_path / "run").rmdir()


@pytest.mark.skipif(storage.fcntl is None, reason="the system has no such lock")
def test_another_process_holds_it_until_it_is_killed(tmp_path):
    line = [sys.executable, "-c", HOLD, tmp_path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError), locked(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    with locked(tmp_path):
        pass


def test_what_a_new_run_may_take(tmp_path):
    check_unused(tmp_path)
    check_unused(tmp_path / "new")
    (tmp_path / storage.FILE).touch()
    check_unused(tmp_path)  # only a lock, whose holder is checked next
    (tmp_path / "mine").touch()
    for path in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ValueError, match="exists already: choose another --out"):
            check_unused(path)
