"""One run at a time in a folder."""

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

from minicaps import storage
from minicaps.errors import CheckpointError
from minicaps.storage import InUse, check_unused, claimed, locked

HOLD = """
import sys, time
from minicaps.storage import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(params=["folder", "file"])
def kind(request, monkeypatch):
    """Both kinds of lock: the second is that of systems without fcntl."""
    if request.param == "file":
        monkeypatch.setattr(storage, "fcntl", None)
    return request.param


def test_a_second_one_is_refused_until_the_first_ends(kind, tmp_path):
    with locked(tmp_path):
        for _ in range(2):  # one that is refused does not let go of it
            refused = pytest.raises(CheckpointError, match=f"is writing to {tmp_path}: wait")
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
    check_unused(tmp_path)  # only a lock, whose holder is asked next
    (tmp_path / "mine").touch()
    for path in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ValueError, match="already exists: choose another --out"):
            check_unused(path)


@pytest.fixture
def network(monkeypatch):
    """Locks as on NFS: none on folders, and on files only if they are open for writing."""
    if storage.fcntl is None:
        pytest.skip("the system has no such lock")
    flock = storage.fcntl.flock

    def strict(opened, how):
        handle = opened if isinstance(opened, int) else opened.fileno()
        if storage.fcntl.fcntl(handle, storage.fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(handle, how)

    monkeypatch.setattr(storage.fcntl, "flock", strict)


def test_a_network_folder_is_locked_by_a_file(network, tmp_path):
    (tmp_path / storage.FILE).touch()  # left behind by a process that was killed
    for _ in range(2):
        with locked(tmp_path):
            with pytest.raises(InUse, match=f"is writing to {tmp_path}: wait"), locked(tmp_path):
                pass
            assert os.listdir(tmp_path) == [storage.FILE]
        assert os.listdir(tmp_path) == []


def test_a_folder_without_any_lock_is_used_with_a_warning(monkeypatch, tmp_path):
    def refuse(opened, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(storage.fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match=f"{tmp_path} cannot be locked: make"), locked(tmp_path):
        pass


def test_a_claim_counts_until_its_process_ends(kind, tmp_path):
    file = tmp_path / "job.lock"
    with claimed(file):
        with pytest.raises(InUse, match="another process holds"), claimed(file):
            pass
        with pytest.raises(InUse, match="taken"), claimed(file, said="taken"):
            pass
    assert not file.exists()


def test_a_claim_is_waited_for(kind, tmp_path):
    file, order = tmp_path / "job.lock", []

    def second():
        with claimed(file, wait=True):
            order.append("second")

    with claimed(file):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"] and not file.exists()


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_taken_anew(monkeypatch, tmp_path):
    """Between opening and locking, the last holder removes the file, and another creates it."""
    file, flock, others = tmp_path / "job.lock", storage._flock, []

    def late(*arguments):
        if not others:
            file.unlink()
            others.append(file.open("ab"))
            flock(others[0], "")
        return flock(*arguments)

    monkeypatch.setattr(storage, "_flock", late)
    with pytest.raises(InUse), claimed(file):
        pass
    others[0].close()
    with claimed(file):
        pass


def test_unfinished_files_of_other_machines_stay(tmp_path):
    """Their processes may be running."""
    machine, dead = storage._machine(), subprocess.Popen(["true"])
    dead.wait()
    names = [f"a.json.{dead.pid}-1-{host}.part" for host in (machine, "other-host")]
    names += [f"a.json.{dead.pid}-1.part", f"b.json.{dead.pid}-1-{machine}.part"]
    for name in names:
        (tmp_path / name).touch()
    storage.write_json(tmp_path / "a.json", {})
    assert sorted(os.listdir(tmp_path)) == sorted(["a.json", names[1], names[3]])
