"""Custom data that takes much of the memory is decoded once, into a cache; results stay equal."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from commands import environment
from evaluations import folder_of, measured, predictions
from own_files import SIZE, all_of, noise, refusal, write, zipped
from PIL import Image
from tiny_runs import TINY_PROCESS, assert_equal_runs, go_on, refused, run, summary

from minicaps import plot
from minicaps.cli import measuring
from minicaps.data import __main__ as command
from minicaps.data import load, own, stored
from minicaps.data.images import Target
from minicaps.data.own import cache, class_folders
from minicaps.data.stored import Stored
from minicaps.errors import CheckpointError
from minicaps.evaluate.report import Evaluation
from minicaps.train import summary as results

pytestmark = pytest.mark.usefixtures("tiny")
Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def little(place, monkeypatch):  # of memory
    """Lower the memory so far that every set is read from the cache."""
    monkeypatch.setattr(measuring, "whole_memory", lambda: 1000)
    monkeypatch.setattr(stored, "FEW", 3)
    monkeypatch.setattr(stored, "BLOCK", 4 * 4 * 3 * SIZE[0] * SIZE[1])
    return place


@pytest.fixture
def pets(tmp_path):
    return folder_of(tmp_path / "pets", {"cat": 14, "dog": 15, "eel": 5})


@pytest.fixture
def decoded(monkeypatch):
    """Return a list of the files that were decoded."""
    found = []

    def read(path):
        found.append(Path(path).name)
        return original(path)

    original = class_folders.read_picture
    monkeypatch.setattr(class_folders, "read_picture", read)
    return found


def in_memory(call):
    """Return what a call gives if the memory suffices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "whole_memory", lambda: 10**12)
        return call()


def same_data(one, other):
    """Return whether two data sets agree bit by bit, and all notes but that on the cache."""
    pictures = all_of(one), all_of(other)
    return pictures[0].keys() == pictures[1].keys() and all(
        image.tobytes() == pictures[1][name][0].tobytes() and label == pictures[1][name][1]
        for name, (image, label) in pictures[0].items()
    )


def files_of(place):
    """Return the files with pixels and the index of the only cached source."""
    (about,) = place.glob("*/about.json")
    return about.with_name("images"), about.with_name("index")


# ---- the same results


def table_of(pets):
    """Add a table that defines the parts, a 16-bit image and a transparent one."""
    wide = noise(0, *SIZE).astype(np.uint16) * 200
    Image.fromarray(wide).save(pets / "cat/3.png")
    write(pets / "dog/3.png", noise(1, *SIZE, 4))
    parts = ["train", "train", "validation", "train", "test"]
    names = sorted(str(path.relative_to(pets)) for path in pets.rglob("*.png"))
    lines = [f"{name},{name[:3]},{parts[k % 5]}" for k, name in enumerate(reversed(names))]
    (pets / "labels.csv").write_text("\n".join(["file,label,split", *lines]) + "\n")
    return pets


def drawings(pets):
    """Make the images black drawings on white paper, which are inverted."""
    for path in pets.rglob("*.png"):
        ink = np.full(SIZE, 255, np.uint8)
        ink[8:20, 10 : 12 + len(path.parent.name) + int(path.stem) % 3] = 0
        Image.fromarray(ink).save(path)
    return pets


SOURCES = {
    "color": (lambda pets: pets, ("--validation", "5")),
    "gray, balanced": (
        lambda pets: folder_of(pets, {"cat": 14, "dog": 15, "eel": 5}, channels=()),
        ("--balance",),
    ),
    "resized": (lambda pets: pets, ("--size", "32x30", "--patience", "1")),
    "table": (table_of, ()),
    "archive": (zipped, ("--brightness", "0.2")),
    "drawings": (drawings, ("--invert", "auto")),
    "composed": (
        lambda pets: pets,
        ("--compose", "2", "--shift", "0", "--rotate", "0", "--zoom", "0"),
    ),
}


FAST = ("table", "resized")


@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SOURCES],
)
def test_training_and_evaluation_equal_those_in_memory_bit_by_bit(pets, little, monkeypatch, name):
    monkeypatch.setattr(results, "LINEAR_SECONDS", (600, 600))  # the time decides nothing
    make, options = SOURCES[name]
    changes = ("--limit", "20", "--shift", "1", "--rotate", "10", "--zoom", "0.1")
    arguments = ("--data", str(make(pets)), *changes, "--epochs", "2", *options)
    plain = in_memory(lambda: run(*arguments, out="plain"))
    cached = run(*arguments, out="cached")
    assert_equal_runs(plain, cached)
    assert "are read from" in "".join(summary(cached)["notes"])
    split = [(folder / "split.json").read_text() for folder in (plain, cached)]
    checksums = [summary(folder)["data_sha256"] for folder in (plain, cached)]
    assert split[0] == split[1] and checksums[0] == checksums[1]
    if "baselines" in summary(plain):
        both = [summary(folder)["baselines"] for folder in (plain, cached)]
        for each in both:
            del each["linear"]["seconds"]
        assert both[0] == both[1]
    monkeypatch.setattr(Evaluation, "draw", lambda *_: [])
    for more in ((), ("--part", "train")):
        there = in_memory(lambda more=more: measured(plain, *more, out=Path("there")))
        here = measured(plain, *more, out=Path("here"))
        for found in (there, here):
            del found["notes"], found["command"]
        assert there == here and predictions("there") == predictions("here")
        shutil.rmtree("there"), shutil.rmtree("here")


def test_a_run_may_go_on_with_more_or_less_memory(pets, little):
    options = ("--data", str(pets), "--limit", "20", "--epochs", "2")
    whole = run(*options, out="whole")
    part = in_memory(lambda: run(*options, out="part"))
    go_on(part, "--epochs", "3")
    go_on(whole, "--epochs", "3")
    assert_equal_runs(part, whole)


def test_no_command_reads_all_images_at_once(pets, little, monkeypatch):
    read, original = [], Stored.__getitem__

    def watched(self, which):
        found = original(self, which)
        read.append(1 if isinstance(which, int) else len(found))
        return found

    monkeypatch.setattr(Stored, "__getitem__", watched)
    monkeypatch.delattr(Stored, "__array__")
    folder = run("--data", str(pets), "--limit", "27", "--validation", "8", "--shift", "1")
    assert command.main([str(pets), "--shift", "1"]) == 0
    assert 8 in read  # a batch of the training set
    for part in ("test", "train"):
        measured(folder, "--part", part, "--batch-size", "8")
    assert plot.main([str(folder), "--device", "cpu"]) == 0
    rows = [count for count in read if count > 8]
    assert max(rows, default=0) <= 16  # a row of the figure of samples


def test_frames_and_files_that_cannot_be_used_are_treated_as_in_memory(pets, little):
    frames = [Image.fromarray(noise(k, *SIZE, 3)) for k in range(4)]
    frames[0].save(pets / "cat/moving.gif", save_all=True, append_images=frames[1:])
    (pets / "dog/4.png").write_text("no image")
    options = {"frames": "all", "skip_bad": True}
    for _ in range(2):
        data, plain = load(str(pets), **options), in_memory(lambda: load(str(pets), **options))
        assert same_data(data, plain) and data.skipped == plain.skipped
        assert [note for note in data.notes if "read from" not in note] == list(plain.notes)
    there = refusal(pets, frames="all")
    assert there == in_memory(lambda: refusal(pets, frames="all")) and "dog/4.png" in there


def test_other_data_is_evaluated_from_the_cache(pets, little, tmp_path, monkeypatch):
    """Its parts are joined, and its sizes, channels and tones fitted to those of the run."""
    folder = run("--data", str(pets), "--limit", "20")
    other = tmp_path / "other"
    for part in ("train", "test"):
        folder_of(other / part, {"cat": 5, "dog": 6}, size=(40, 33), channels=(), start=len(part))
    monkeypatch.setattr(Evaluation, "draw", lambda *_: [])
    for invert in ("auto", "yes"):
        more = ("--data", other, "--invert", invert)
        there = in_memory(lambda more=more: measured(folder, *more, out=Path("there")))
        here = measured(folder, *more, out=Path("here"))
        assert (there["loss"], there["classes"]) == (here["loss"], here["classes"])
        assert predictions("there") == predictions("here") and here["samples"] == 22
        shutil.rmtree("there"), shutil.rmtree("here")


# ---- when it is used, and found again


def test_the_cache_is_used_for_more_than_a_quarter_of_the_memory(pets, place, monkeypatch):
    needed = 34 * 3 * SIZE[0] * SIZE[1] * 4
    monkeypatch.setattr(measuring, "whole_memory", lambda: 4 * needed)
    assert load(str(pets)).notes == () and not place.exists()
    monkeypatch.setattr(measuring, "whole_memory", lambda: 4 * needed - 1)
    data = load(str(pets))
    assert f"read from {next(place.iterdir())} (" in data.notes[0]
    assert files_of(place)[0].stat().st_size == needed / 4  # bytes


def test_the_memory_is_that_of_the_machine_or_of_a_limit():
    code = "from minicaps.cli.measuring import whole_memory; print(whole_memory())"
    whole = measuring.whole_memory()
    assert 10**8 < whole <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for option in "vd":
        line = f"ulimit -S{option} 900000; {sys.executable} -c '{code}'"
        done = subprocess.run(line, shell=True, env=environment(), capture_output=True, text=True)
        assert int(done.stdout) == min(whole, 900000 * 1024)


def test_what_was_decoded_is_found_again(pets, little, decoded):
    first = load(str(pets))
    assert len(decoded) == 34
    assert same_data(load(str(pets), seed=0, limit=None), first) and len(decoded) == 34
    archive = zipped(pets)
    assert same_data(load(str(archive)), first) and len(decoded) == 68  # another source
    load(str(archive))
    assert len(decoded) == 68
    load(str(pets), size=(20, 20))
    assert len(decoded) == 102


@pytest.mark.parametrize("drawn", [(), (3,)])
@pytest.mark.parametrize("wanted", [1, 3])
def test_a_network_finds_what_was_decoded_for_training(tmp_path, little, decoded, drawn, wanted):
    """Only color images for a network of gray ones are decoded for it alone."""
    pets = folder_of(tmp_path / "pets", {"cat": 4, "dog": 4}, channels=drawn)
    load(str(pets))
    decoded.clear()
    target = Target(SIZE, wanted, ("cat", "dog"))
    found = own.read(pets, target)
    assert len(decoded) == 8 * (drawn == (3,) and wanted == 1)
    plain = in_memory(lambda: own.read(pets, target))
    assert found.parts["all"].images[:].tobytes() == plain.parts["all"].images.tobytes()
    assert found.notes[:-1] == plain.notes


def test_only_what_has_changed_is_decoded_again(pets, little, decoded):
    load(str(pets))
    decoded.clear()
    write(pets / "dog/2.png", noise(999, *SIZE, 3))
    os.utime(pets / "eel/1.png", ns=(5, 5))
    (pets / "cat/0.png").unlink()
    write(pets / "cat/new.png", noise(998, *SIZE, 3))
    assert same_data(load(str(pets)), in_memory(lambda: load(str(pets))))
    assert decoded[:3] == ["new.png", "2.png", "1.png"] and len(decoded) == 3 + 34


def test_pixels_that_are_no_longer_needed_are_dropped_once_they_prevail(pets, little):
    load(str(pets))
    size = files_of(little)[0].stat().st_size
    for k in range(8):
        for path in pets.rglob("*.png"):
            os.utime(path, ns=(k, k))
        assert same_data(load(str(pets)), in_memory(lambda: load(str(pets))))
        assert files_of(little)[0].stat().st_size <= 3 * size


# ---- interruptions and damage


def test_decoding_that_was_interrupted_goes_on_where_it_stopped(pets, little, monkeypatch, decoded):
    original = class_folders.read_picture

    def stop(path):
        if len(decoded) == 20:
            raise KeyboardInterrupt
        return original(path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(class_folders, "read_picture", stop)
        load(str(pets))
    data = load(str(pets))
    assert len(decoded) == 34 == len(set(all_of(data)))
    assert same_data(data, in_memory(lambda: load(str(pets))))


@pytest.mark.filterwarnings("ignore:.* are damaged")
@pytest.mark.parametrize("keep", [0, 1, 100, 2521, 50_000])
def test_a_process_killed_while_writing_leaves_nothing_wrong(pets, little, keep):
    """The index, or the pixels and the index, end anywhere."""
    plain = in_memory(lambda: load(str(pets)))
    for files in ((1,), (0, 1), (0,)):
        load(str(pets))
        paths = files_of(little)
        for k in files:
            os.truncate(paths[k], min(keep, paths[k].stat().st_size))
        with pytest.warns(UserWarning, match="damaged") if files == (0,) else no_warning():
            assert same_data(load(str(pets)), plain)
        assert same_data(load(str(pets)), plain)


def no_warning():
    return pytest.MonkeyPatch.context()


def test_damage_is_noticed_and_repaired(pets, little, decoded):
    plain = in_memory(lambda: load(str(pets)))
    load(str(pets))
    decoded.clear()
    with open(files_of(little)[0], "r+b") as file:
        file.seek(5000)
        file.write(bytes(255 - k for k in file.read(2)))
    said = r"1 of 34 files in the cache .* are damaged: they are decoded again"
    with pytest.warns(UserWarning, match=said):
        assert same_data(load(str(pets)), plain)
    assert len(decoded) == 1
    for change in (Path.unlink, lambda path: path.write_bytes(b"")):
        change(files_of(little)[0])
        with pytest.warns(UserWarning, match="34 of 34 files"):
            assert same_data(load(str(pets)), plain)


def test_a_damaged_index_is_rebuilt(pets, little, decoded):
    plain = in_memory(lambda: load(str(pets)))
    load(str(pets))
    decoded.clear()
    index = files_of(little)[1]
    index.write_bytes(index.read_bytes().replace(b"dog/1", b"dog/7").replace(b", 3,", b", 1,", 5))
    assert same_data(load(str(pets)), plain) and 0 < len(decoded) < 34
    for wrong in (noise(0, 5000).tobytes(), b"00000000 \n"):  # 0 is the checksum of nothing
        index.write_bytes(wrong)
        assert same_data(load(str(pets)), plain)


def test_damage_during_training_is_a_sentence(pets, little, capsys, monkeypatch):
    from minicaps.train.trainer import Trainer

    original = Trainer.train_epoch

    def damaged(self):
        os.truncate(files_of(little)[0], 1000)
        return original(self)

    monkeypatch.setattr(Trainer, "train_epoch", damaged)
    said = refused(capsys, "--data", str(pets), "--out", "run", "--quiet", code=1)
    assert "which holds decoded images, is damaged or has changed: run the command again" in said


LIMIT = 220_000  # KiB of data for a process that trains, which needs about 140,000


@pytest.mark.slow
def test_a_set_four_times_the_memory_trains(tmp_path, place):
    """Each file has many images, which is quick to write."""
    frames = [Image.fromarray(noise(k, 64, 64, 3)) for k in range(100)]
    first = tmp_path / "many/train/a/0.tif"
    for part, count in (("train", 188), ("test", 2)):
        for k in range(count):
            path = tmp_path / "many" / part / "ab"[k % 2] / f"{k}.tif"
            path.parent.mkdir(parents=True, exist_ok=True)
            if path == first or part == "test":
                more = frames[1 : 100 if path == first else 10]
                frames[0].save(path, save_all=True, append_images=more)
            else:
                shutil.copy(first, path)
    assert 4 * 1024 * LIMIT < 188 * 100 * 64 * 64 * 3 * 4
    options = ["--frames", "all", "--limit", "600", "--out", "run", "--device", "cpu", "--quiet"]
    options += ["--size", "64", "--batch-size", "16", "--epochs", "1", "--restarts", "0"]
    line = [sys.executable, "-c", TINY_PROCESS, "--data", str(tmp_path / "many"), *options]
    line = f"ulimit -d {LIMIT}; exec {shlex.join(line)}"
    own = environment() | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(line, shell=True, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    notes = " ".join(summary("run")["notes"])
    assert f"18,820 images, which would take 0.9 GB of memory, are read from {place}" in notes


# ---- disks


def test_a_disk_without_space_is_refused_before_it_is_full(pets, little, monkeypatch, capsys):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: Usage(1, 1, 20_000))
    said = refused(capsys, "--data", str(pets), "--out", "run", code=1)
    assert f"the decoded images of {pets} need 0.1 MB more in {little}" in said
    assert f"0.0 MB is free: name a folder with more space in {cache.ENVIRONMENT}" in said
    assert files_of(little)[0].stat().st_size < 3 * 2520  # the first file, and no more


def test_a_disk_that_fills_up_is_a_sentence_and_decoding_goes_on(
    pets, little, monkeypatch, decoded
):
    def full(file, content):
        if len(decoded) == 9:
            file.write(content[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(file, content)

    original = cache._write
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_write", full)
        with pytest.raises(CheckpointError, match="No space left on device; name a folder with"):
            load(str(pets))
    decoded.clear()
    data = load(str(pets))
    assert len(decoded) == 34 - 8 and same_data(data, in_memory(lambda: load(str(pets))))


def test_a_folder_that_cannot_be_written_is_a_sentence(pets, little, capsys, monkeypatch):
    little.write_text("in the way")
    said = refused(capsys, "--data", str(pets), "--out", "run", code=1)
    assert f"cannot write {little}" in said and "; name a folder with more space in" in said
    assert len(said.splitlines()) == 1
    monkeypatch.setenv(cache.ENVIRONMENT, str(pets / "cache"))
    said = refused(capsys, "--data", str(pets), "--out", "run", code=1)
    assert f"the cache {pets}/cache lies inside the data folder {pets}" in said


def test_a_complete_cache_can_be_read_from_a_disk_that_is_read_only(pets, little, monkeypatch):
    plain = load(str(pets))

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", read_only)
    monkeypatch.setattr(cache, "results_folder", read_only)
    assert same_data(load(str(pets)), plain)


# ---- several processes, and the command

PROCESS = """
import sys
from minicaps.cli import measuring
measuring.whole_memory = lambda: 1000
from minicaps.data import load
data = load(sys.argv[1])
print(data.train.sha256(), data.test.sha256())
"""


def test_processes_that_decode_at_once_share_the_work(pets, place):
    line = [sys.executable, "-W", "ignore", "-c", PROCESS, str(pets)]
    keywords = {"env": environment(), "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(line, **keywords) for _ in range(3)]
    said = {process.communicate(timeout=300)[0] for process in processes}
    plain = in_memory(lambda: load(str(pets)))
    assert said == {f"{plain.train.sha256()} {plain.test.sha256()}\n"}
    pixels, index = files_of(place)
    assert pixels.stat().st_size == 34 * 3 * SIZE[0] * SIZE[1]
    assert len(index.read_bytes().splitlines()) == 34


def test_the_command_lists_and_removes_what_was_decoded(pets, little, capsys):
    assert command.main(["cache"]) == 0
    assert f"No decoded images are in {little}" in capsys.readouterr().out
    load(str(pets))
    load(str(pets), size=(20, 24))
    for path in (little / "notes.txt", little / "other/about.txt"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("of the user")
    assert command.main(["cache"]) == 0
    said = capsys.readouterr().out
    assert said.count(str(pets)) == 2 and "20×24" in said and "MB in all in" in said
    about = next(little.glob("pets-*/about.json"))
    for damaged in ("{}", "[1]", "{"):
        about.write_text(damaged)
        assert command.main(["cache"]) == 0
        assert f"{about} (damaged)" in capsys.readouterr().out
    with cache.locked(files_folder := next(little.glob("pets-*"))):
        assert command.main(["cache", "--clear"]) == 1
        assert f"another process is decoding images in {files_folder}" in capsys.readouterr().err
    assert command.main(["cache", "--clear"]) == 0
    assert "removed" in capsys.readouterr().out
    assert {path.name for path in little.iterdir()} == {"notes.txt", "other"}
