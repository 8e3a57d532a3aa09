"""Checkpoints: arrays round-trip, no code is executed, and the last good file survives."""

import errno
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from minicaps.errors import CheckpointError
from minicaps.runs import checkpoint
from minicaps.storage import replacing, write_json

ROOT = Path(__file__).parents[2]
META = {"model": {"name": "x", "classes": 10}, "note": "größer", "numbers": [0.1, 1e-300, None]}


def some_arrays():
    random = np.random.default_rng(0)
    return {
        "model/conv.weight": random.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "model/transposed": random.normal(size=(5, 3)).T,
        "model/empty": np.zeros((0, 3), np.float32),
        "optimizer/steps": np.asarray(7),
        "labels": np.array([3, -1], np.int8),
    }


def assert_same(arrays, expected):
    assert list(arrays) == list(expected)
    for name, array in arrays.items():
        assert array.dtype == expected[name].dtype
        assert array.shape == expected[name].shape
        np.testing.assert_array_equal(array, expected[name])


@pytest.fixture
def path(tmp_path):
    """Checkpoint that is the only file in its folder."""
    checkpoint.save(tmp_path / "last.npz", some_arrays(), META)
    return tmp_path / "last.npz"


# ---- round trips


def test_round_trip(path):
    arrays, meta = checkpoint.load(path)
    assert_same(arrays, some_arrays())
    assert meta == {"format": checkpoint.FORMAT, **META}
    assert os.listdir(path.parent) == ["last.npz"]


def test_saving_again_replaces_the_file(path):
    checkpoint.save(str(path), {"a": np.ones(2)}, {"second": True})
    arrays, meta = checkpoint.load(str(path))
    assert_same(arrays, {"a": np.ones(2)})
    assert meta["second"]


def test_groups():
    groups = {"model": {"a": np.ones(1), "b/c": np.ones(2)}, "model2": {"a": np.ones(3)}}
    packed = checkpoint.pack(**groups)
    assert list(packed) == ["model/a", "model/b/c", "model2/a"]
    for name, group in groups.items():
        assert checkpoint.unpack(packed, name) == group
    assert checkpoint.unpack(packed, "other") == {}


def test_any_reader_of_npz_can_read_it(path):
    with np.load(path, allow_pickle=False) as file:
        members = {name: file[name] for name in file.files}
    meta = members.pop("minicaps.json")
    assert_same(members, {name: members[name] for name in some_arrays()})
    assert json.loads(meta.tobytes())["note"] == META["note"]


# ---- no code is executed


class Evil:
    """Object that creates a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def as_object_array(evil):
    content, meta = io.BytesIO(), np.frombuffer(json.dumps({"format": 1}).encode(), np.uint8)
    objects = np.empty(1, object)
    objects[0] = evil
    np.savez(content, **{"minicaps.json": meta, "model/a": objects})
    return content.getvalue()


@pytest.mark.parametrize("attack", [as_object_array, pickle.dumps])
def test_a_pickle_is_refused_and_not_executed(tmp_path, attack):
    mark, path = tmp_path / "executed", tmp_path / "evil.npz"
    path.write_bytes(attack(Evil(mark)))
    with pytest.raises(CheckpointError, match=r"evil\.npz is damaged or not a minicaps checkpoint"):
        checkpoint.load(path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Evil(mark)))
    assert mark.exists()  # so the attack would have worked


# ---- untrustworthy files are rejected


def test_a_file_that_exceeds_memory_is_not_called_damaged(path, monkeypatch):
    checkpoint.save(path, {"w": np.zeros(3)}, {})

    def failing(*_, **__):
        raise MemoryError

    monkeypatch.setattr(np, "load", failing)
    with pytest.raises(MemoryError):
        checkpoint.load(path)


def test_a_truncated_file_is_refused(path):
    good = path.read_bytes()
    for length in [*range(0, len(good), 11), *range(len(good) - 25, len(good))]:
        path.write_bytes(good[:length])
        with pytest.raises(
            CheckpointError, match=r"last\.npz is damaged or not a minicaps checkpoint"
        ):
            checkpoint.load(path)


@pytest.mark.slow
def test_a_changed_byte_never_changes_a_number(path):
    good, expected = path.read_bytes(), some_arrays()
    places = range(0, len(good), 5)
    refused = 0
    for place in places:
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x5A]) + good[place + 1 :])
        try:
            arrays, meta = checkpoint.load(path)
        except CheckpointError as error:
            assert "last.npz" in str(error)
            refused += 1
        else:  # the zip directory: a member may be lost, but never changed
            assert_same(arrays, {name: expected[name] for name in arrays})
            assert meta == {"format": checkpoint.FORMAT, **META}
    assert refused > len(places) / 2


def npz(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def zip_of_text():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("minicaps.json.npy", "{}")
    return content.getvalue()


def npz_with_meta(text):
    return npz(**{"minicaps.json": np.frombuffer(text, np.uint8), "model/a": np.ones(2)})


def npy():
    content = io.BytesIO()
    np.save(content, np.ones(3))
    return content.getvalue()


FOREIGN = {
    "empty": b"",
    "text": b"epoch,train_loss\n",
    "one array": npy(),
    "zip of something": zip_of_text(),
    "npz without meta": npz(a=np.ones(2)),
    "meta is no text": npz(**{"minicaps.json": np.ones(2)}),
    "meta is no JSON": npz_with_meta(b"{"),
    "meta is a list": npz_with_meta(b"[1]"),
    "no format": npz_with_meta(b'{"model": 1}'),
    "format is no number": npz_with_meta(b'{"format": "new"}'),
    "format is nothing": npz_with_meta(b'{"format": null}'),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"other.npz is damaged or not a minicaps checkpoint"):
        checkpoint.load(path)


def test_what_is_no_file_is_refused(tmp_path):
    for path, message in (
        (tmp_path / "none.npz", r"there is no checkpoint .*none\.npz"),
        (tmp_path / "no folder" / "none.npz", r"there is no checkpoint .*none\.npz"),
        (tmp_path, f"cannot read {tmp_path}: Is a directory"),
    ):
        with pytest.raises(CheckpointError, match=message):
            checkpoint.load(path)


def test_a_newer_format_is_refused_with_both_numbers(path):
    checkpoint.save(path, some_arrays(), META | {"format": checkpoint.FORMAT + 1})
    message = (
        rf"last.npz has checkpoint format {checkpoint.FORMAT + 1}, .* {checkpoint.FORMAT}: upd"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(path)


def test_what_meta_must_have_is_named(path):
    checkpoint.load(path, needs=["model", "note"])
    with pytest.raises(CheckpointError, match=r"last.npz lacks options, progress"):
        checkpoint.load(path, needs=["model", "options", "progress"])


# ---- the last good file survives


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_after_half(file, *_, **__):
    file.write(b"PK" + bytes(10_000))
    full_disk()


FAILURES = {
    "full at once": (np, "savez", full_disk),
    "full after half": (np, "savez", full_after_half),
    "full when flushed": (os, "fsync", full_disk),
    "no renaming": (os, "replace", full_disk),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_failed_write_leaves_the_old_file(path, monkeypatch, failure):
    before = path.read_bytes()
    monkeypatch.setattr(*failure)
    message = "cannot write .*last.npz: No space left on device"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.save(path, {"a": np.zeros(9)}, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["last.npz"]


def test_ctrl_c_while_writing_leaves_the_old_file(path, monkeypatch):
    def interrupted(file, **_):
        file.write(b"PK")
        raise KeyboardInterrupt

    before = path.read_bytes()
    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(path, {"a": np.zeros(9)}, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["last.npz"]


def test_a_missing_folder_is_named(tmp_path):
    message = "cannot write .*gone/last.npz: No such file or directory"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.save(tmp_path / "gone" / "last.npz", {}, {})


def run_python(code, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600)


def test_a_file_size_limit_leaves_the_old_file(path):
    """Here, the system itself refuses to write, at several positions in the file."""
    before = path.read_bytes()
    code = """
import resource, sys
import numpy as np
from minicaps.runs import checkpoint
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for limit in (10_000, 1_000, 100, 0):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    try:
        checkpoint.save(sys.argv[1], {"a": np.zeros(500), "b": np.zeros(3000)}, {})
    except checkpoint.CheckpointError as error:
        print(error)
"""
    done = run_python(code, path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"cannot write {path}: File too large"] * 4
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["last.npz"]


@pytest.mark.slow
def test_a_killed_process_leaves_a_whole_file(tmp_path):
    """Kill 120 processes while they save without pause; one process starts them all."""
    code = """
import itertools, os, random, signal, sys, time
import numpy as np
from minicaps.runs import checkpoint

def save(path, n):
    arrays = {name: np.full(20_000, n) for name in "abc"}
    checkpoint.save(path, arrays, {"n": n})

path = sys.argv[1]
waits, seen, left = random.Random(0), set(), 0
saved, tell = os.pipe()
for trial in range(120):
    child = os.fork()
    if child == 0:
        for n in itertools.count(1000 * trial):
            save(path, n)
            if n == 1000 * trial:
                os.write(tell, b".")
    os.read(saved, 1)
    time.sleep(waits.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    arrays, meta = checkpoint.load(path)
    assert all((array == meta["n"]).all() for array in arrays.values())
    seen.add(meta["n"])
    left += len(os.listdir(os.path.dirname(path))) - 1
save(path, 0)
print(len(seen), left, os.listdir(os.path.dirname(path)))
"""
    done = run_python(code, tmp_path / "last.npz")
    assert done.stderr == ""
    seen, left, names = done.stdout.split(maxsplit=2)
    assert int(seen) == 120  # each one saved before it was killed
    assert 0 < int(left) <= 120  # some died in the middle of a file, which the next one removed
    assert names == "['last.npz']\n"


def test_only_what_the_dead_left_for_this_file_is_swept(path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    kept = ["best.npz.{}.part", "last.npz.part", "last.npz.x.part", "my.part", "last.npz.1.part"]
    kept = [name.format(dead.pid) for name in kept]  # process 1 is always alive
    kept += [f"last.npz.{os.getpid()}-1.part", f"best.npz.{dead.pid}-7.part"]
    for name in (f"last.npz.{dead.pid}.part", f"last.npz.{dead.pid}-7.part", *kept):
        path.with_name(name).touch()
    checkpoint.save(path, {}, {})
    assert sorted(os.listdir(path.parent)) == sorted([*kept, "last.npz"])


@pytest.mark.slow
def test_two_processes_that_save_to_one_name_leave_a_whole_file(tmp_path):
    code = """
import os, sys
import numpy as np
from minicaps.runs import checkpoint
for child in (1, 2):
    if os.fork() == 0:
        for _ in range(60):
            checkpoint.save(sys.argv[1], {"a": np.full(1000 * child, child)}, {"n": child})
        os._exit(0)
for child in (1, 2):
    assert os.wait()[1] == 0
arrays, meta = checkpoint.load(sys.argv[1])
assert (arrays["a"] == meta["n"]).all() and arrays["a"].size == 1000 * meta["n"]
print(os.listdir(os.path.dirname(sys.argv[1])))
"""
    done = run_python(code, tmp_path / "last.npz")
    assert done.stderr == ""
    assert done.stdout == "['last.npz']\n"


def test_any_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"ä": [1, None]})
    assert path.read_bytes() == b'{\n  "\\u00e4": [\n    1,\n    null\n  ]\n}\n'
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_json(path, {"no": object()})
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"half")
        1 / 0  # noqa: B018
    full = pytest.raises(CheckpointError, match=r"cannot write .*a\.json: No space left on device")
    with full, replacing(path) as file:
        file.write(b"half")
        full_disk()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_device_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(CheckpointError, match=f"cannot write {path}: it exists and is not a"):
            checkpoint.save(path, {}, {})
    assert os.listdir(tmp_path) == ["pipe"] and not pipe.is_file()


@pytest.mark.slow
def test_a_folder_without_permission_is_told(path):
    """Run as an ordinary user, because root may write anywhere."""
    code = """
import os, sys
from minicaps.runs import checkpoint
arrays, meta = checkpoint.load(sys.argv[1])
if os.getuid() == 0:
    os.setuid(65534)
try:
    checkpoint.save(sys.argv[1], arrays, meta)
except checkpoint.CheckpointError as error:
    print(error)
"""
    before = path.read_bytes()
    os.chmod(path.parent, 0o555)
    for parent in list(path.parents)[1:-1]:  # pytest creates folders that only the owner may enter
        if parent.stat().st_uid == os.getuid() and parent.name.startswith(("pytest-", "popen-")):
            os.chmod(parent, 0o755)
    done = run_python(code, path)
    os.chmod(path.parent, 0o755)
    assert (done.stdout, done.stderr) == (f"cannot write {path}: Permission denied\n", "")
    assert path.read_bytes() == before


# ---- older formats


def test_a_file_of_format_1_made_by_hand_is_read(tmp_path):
    """The file is written without minicaps, as version 1 wrote it: .npy files and a JSON text."""
    import struct

    def npy(shape, kind, data):
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        head = head.ljust(117) + "\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data

    text = b'{"format": 1, "model": {"name": "x"}, "preprocessing": {"class_names": ["a", "b"]}}'
    path = tmp_path / "old.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("minicaps.json.npy", npy(f"({len(text)},)", "|u1", text))
        numbers = struct.pack("<4f", 1, 2, 3, 4)
        file.writestr("model/weight.npy", npy("(2, 2)", "<f4", numbers))
    arrays, meta = checkpoint.load(path, needs=["model"])
    assert_same(arrays, {"model/weight": np.array([[1, 2], [3, 4]], np.float32)})
    assert meta["preprocessing"]["class_names"] == ["a", "b"]


def test_threads_that_save_one_file_leave_it_whole(tmp_path):
    """Each writes a file of its own, and the last to be renamed stays."""
    path, failures = tmp_path / "last.npz", []
    arrays = [{"model/w": np.full(20000, k, np.float32)} for k in range(2)]

    def save(k):
        for _ in range(20):
            checkpoint.save(path, arrays[k], {"model": {}})
            found, _ = checkpoint.load(path)
            if len(set(found["model/w"].tolist())) != 1:
                failures.append(k)

    threads = [threading.Thread(target=save, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [file.name for file in tmp_path.iterdir()] == ["last.npz"]


def test_a_failed_write_names_its_own_error(tmp_path):
    """Not that of removing what could not be written."""
    for path in (tmp_path / ("a" * 250), tmp_path / "file" / "last.npz"):
        (tmp_path / "file").touch()
        with pytest.raises(CheckpointError, match="cannot write"), replacing(path) as file:
            file.write(b"x")


def test_groups_that_are_not_needed_are_not_read(tmp_path):
    """A checkpoint may hold gigabytes that nobody asked for, even damaged ones."""
    path = tmp_path / "large.npz"
    checkpoint.save(path, {**some_arrays(), "junk": np.arange(2**16)}, {"model": {}})
    content = bytearray(path.read_bytes())
    content[content.index(np.arange(2**10).tobytes())] ^= 1
    path.write_bytes(content)
    for groups, names in ((["model"], "model/"), (checkpoint.GROUPS, ("model/", "optimizer/"))):
        arrays, meta = checkpoint.load(path, ["model"], groups)
        assert_same(arrays, {k: a for k, a in some_arrays().items() if k.startswith(names)})
        assert meta["model"] == {}
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(path)
