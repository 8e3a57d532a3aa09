"""Test folders with files that cannot be used: all are reported at once, or left out."""

import csv
import json
import shutil

import numpy as np
import pytest
from evaluations import folder_of, measured, refusal
from own_files import SIZE, noise
from own_files import refusal as refusal_of
from tiny_runs import go_on, refused, run

from minicaps.data import __main__ as command
from minicaps.data import load

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def messy(tmp_path):
    """Create 15 images in three classes, and a file, a folder and an image that do not belong."""
    root = folder_of(tmp_path / "messy", {"cat": 4, "dog": 5, "eel": 6})
    (root / "read.me").write_text("mine")
    (root / "cat/notes.txt").write_text("Tom")
    whole = (root / "dog/0.png").read_bytes()
    (root / "dog/torn.png").write_bytes(whole[: len(whole) // 2])
    (root / "fox").mkdir()
    return root


BAD = ("read.me", "fox", "cat/notes.txt", "dog/torn.png")


def lines_of(capsys, *arguments):
    """Return the lines that `python -m minicaps.data` prints when it refuses data."""
    assert command.main([*map(str, arguments)]) == 1
    return capsys.readouterr().err.splitlines()


def test_all_faults_are_told_at_once_each_on_its_line(messy, capsys):
    first, loose, empty, files, text, torn, advice = lines_of(capsys, messy)
    assert first == "minicaps.data: the data has 3 problems:"
    assert loose.startswith(f"  {messy} contains files outside of class folders: read.me")
    assert empty.startswith(f"  {messy}/fox contains no images")
    assert files == "  2 of 17 files cannot be used:"
    assert text.startswith(f"    {messy}/cat/notes.txt is not a readable image")
    assert torn.startswith(f"    {messy}/dog/torn.png is damaged")
    assert advice == "  to leave out what cannot be used, give --skip-bad"


def test_a_single_kind_of_fault_has_no_heading(messy, capsys):
    (messy / "read.me").unlink()
    (messy / "fox").rmdir()
    first, _, _, advice = lines_of(capsys, messy)
    assert first == "minicaps.data: 2 of 17 files cannot be used:"
    assert advice == "  to leave out what cannot be used, give --skip-bad"
    (messy / "cat/notes.txt").unlink()
    (line,) = lines_of(capsys, messy)
    assert line.endswith("replace or remove it; to leave out what cannot be used, give --skip-bad")


def test_faults_of_a_table_are_told_at_once(messy):
    (messy / "read.me").unlink()
    (messy / "fox").rmdir()
    names = [str(path.relative_to(messy)) for path in sorted(messy.rglob("*.png"))]
    lines = [f"{name},{k % 2},{k % 3 % 2}" for k, name in enumerate([*names, "gone.png"])]
    (messy / "labels.csv").write_text("\n".join(["file,cup,spoon", *lines]) + "\n")
    said = refusal_of(messy)
    for part in ("lists missing files: gone.png", "has no line for: cat/notes.txt", "torn.png is"):
        assert part in said
    data = load(str(messy), skip_bad=True)
    assert len(data.train) + len(data.test) == 15
    assert [name for name, _ in data.skipped] == ["gone.png", "cat/notes.txt", "dog/torn.png"]


TABLE = """file,label
cat/0.png,cat
gone.png,cat
cat/1.png,
cat/2.png,cat,7
dog/torn.png,dog
dog/0.png,dog
dog/0.png,dog
"""


def test_faulty_lines_of_a_table_hide_no_other_fault(messy, capsys):
    (messy / "labels.csv").write_text(TABLE)
    first, lines, *of_lines, gone, unlisted, torn, advice = lines_of(capsys, messy)
    table = messy / "labels.csv"
    assert first == "minicaps.data: the data has 4 problems:"
    assert lines == f"  {table} has 3 faulty lines:"
    assert of_lines == [
        f"    line 4 of {table} has no label: write the name of a class",
        f"    line 5 of {table} has 3 fields, but the header has 2",
        f"    line 8 of {table} repeats dog/0.png from line 7: remove one of the lines",
    ]
    assert gone == f"  {table} lists missing files: gone.png"
    assert unlisted.startswith(f"  {table} has no line for: cat/3.png, cat/notes.txt, dog/1.png")
    assert torn.startswith(f"  {messy}/dog/torn.png is damaged")
    assert advice == "  to leave out what cannot be used, give --skip-bad"


def test_a_line_without_a_usable_file_name_is_told(messy):
    """A null byte in a path is an error of the system; an empty name means the folder itself."""
    good = [f"{file.relative_to(messy)},a" for file in sorted(messy.rglob("*.png"))]
    lines = ["file,label", *good, ",dog", "x\0y.png,cat", "z\0.png"]
    (messy / "labels.csv").write_text("\n".join(lines) + "\n")
    said, table = refusal_of(messy), messy / "labels.csv"
    for number in (len(good) + 2, len(good) + 3):
        assert f"line {number} of {table} has no file name, or one with a null byte" in said
    assert f"line {len(good) + 4} of {table} has 1 field, but the header has 2" in said
    assert "lists missing files" not in said


def test_a_faulty_line_whose_file_is_missing_is_told_twice(messy):
    (messy / "labels.csv").write_text("file,label\ncat/0.png,cat\ndog/0.png,dog\nlost.png,\n")
    said = refusal_of(messy)
    assert "has no label" in said and "lists missing files: lost.png" in said


def test_nothing_is_to_be_skipped_where_no_listed_file_is_there(messy):
    (messy / "labels.csv").write_text("file,label\nlost.png,cat\ngone.png,\n")
    said = refusal_of(messy)
    assert "lists no images that exist" in said and "--skip-bad" not in said


def test_a_faulty_line_says_nothing_about_the_classes(messy):
    (messy / "labels.csv").write_text("file,label,split\ncat/0.png,cat,dev\ndog/0.png,dog,test\n")
    said = refusal_of(messy)
    assert "has the split 'dev'" in said and "dog/1.png" in said
    assert "training" not in said.replace("write train,", "") and "only one class" not in said


@pytest.mark.parametrize("skip_bad", [False, True])
def test_images_without_folders_are_told_of_both_ways_to_label_them(tmp_path, skip_bad):
    loose = folder_of(tmp_path, {"loose": 6}) / "loose"
    said = refusal_of(loose, skip_bad=skip_bad)
    assert "has 0 class folders: a classifier needs at least 2" in said
    assert f"or a table {loose}/labels.csv with the header file,label" in said
    assert "--skip-bad" not in said
    lines = [f"{k}.png,{'ab'[k % 2]}" for k in range(6)]
    (loose / "labels.csv").write_text("\n".join(["file,label", *lines]))
    assert load(str(loose)).class_names == ("a", "b")


def test_nothing_is_to_be_skipped_where_too_little_would_be_left(messy):
    for name in ("dog", "eel"):
        shutil.rmtree(messy / name)
    said = refusal_of(messy)  # one class, and files that could be left out
    assert "has 2 class folders" not in said and "outside of class folders: read.me" in said
    (messy / "fox").rmdir()
    said = refusal_of(messy)
    assert f"{messy} has 1 class folder: a classifier" in said and "--skip-bad" not in said
    (messy / "labels.csv").write_text("file,label\ncat/0.png,cat\ncat/1.png,cat\n")
    said = refusal_of(messy)
    assert "only one class" in said and "has no line for" in said and "--skip-bad" not in said
    (messy / "labels.csv").write_text("file,label\ngone.png,cat\nlost.png,dog\n")
    said = refusal_of(messy)
    assert "lists missing files: gone.png, lost.png" in said and "--skip-bad" not in said


def test_nothing_is_to_be_skipped_where_no_image_can_be_read(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_text("no image")
    said = refusal_of(tmp_path)
    assert "2 of 2 files cannot be used" in said and "--skip-bad" not in said


def test_what_cannot_be_used_is_left_out_and_listed(messy):
    data = load(str(messy), skip_bad=True)
    assert data.class_names == ("cat", "dog", "eel")
    assert len(data.train) + len(data.test) == 15
    assert [name for name, _ in data.skipped] == list(BAD)
    (note,) = data.notes
    assert note.startswith("skipped 4 files that cannot be used: read.me (it is outside")


def test_nothing_is_skipped_where_nothing_is_bad(tmp_path):
    root = folder_of(tmp_path / "pets", {"cat": 4, "dog": 5})
    data, strict = load(str(root), skip_bad=True), load(str(root))
    assert data.skipped == () and data.notes == strict.notes
    assert data.train.sha256() == strict.train.sha256()


@pytest.mark.parametrize("size", [None, SIZE])
def test_a_folder_without_a_usable_image_is_refused(tmp_path, size):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_text("no image")
    assert "contains no image that can be used" in refusal_of(tmp_path, skip_bad=True, size=size)


def test_a_run_lists_what_it_skipped_and_goes_on(messy, capsys):
    folder = run("--data", "messy", "--skip-bad", "--limit", "12")
    with open(folder / "skipped.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["file", "reason"]
    assert [name for name, _ in rows] == list(BAD)
    assert "is not a readable image" in rows[2][1]
    assert json.loads((folder / "config.json").read_text())["options"]["skip_bad"] is True
    go_on(folder, "--epochs", "2")
    assert measured(folder)["samples"] == 3
    capsys.readouterr()
    assert "--skip-bad" in refused(capsys, "--data", "messy", code=1)
    assert "--skip-bad" in refused(capsys, "--skip-bad", code=2)  # drawn digits


def test_other_data_can_be_messy(messy, capsys):
    folder_of(messy.parent / "pets", {"cat": 4, "dog": 5, "eel": 6})
    folder = run("--data", "pets", "--limit", "12")
    capsys.readouterr()
    assert "4 problems" in refusal(capsys, folder, "--data", messy)
    assert measured(folder, "--data", messy, "--skip-bad")["samples"] == 15
    said = refusal(capsys, folder, "--skip-bad", code=2)
    assert "--skip-bad applies only to data other than the run's own" in said
    said = refusal(capsys, folder, "--data", "strokes", "--skip-bad", code=2)
    assert "leave out --skip-bad" in said


def test_the_data_command_skips_too(messy, capsys):
    assert command.main(["messy"]) == 1
    assert "3 problems" in capsys.readouterr().err
    assert command.main(["messy", "--skip-bad"]) == 0
    said = capsys.readouterr().out
    assert "Note: skipped 4 files that cannot be used: " in said
    assert "12 training and 3 test images" in said


def test_arrays_have_no_files_to_skip(tmp_path):
    np.savez(tmp_path / "a.npz", images=noise(0, 9, 4, 4), labels=np.arange(9) % 3)
    assert "leave out --skip-bad" in refusal_of(tmp_path / "a.npz", skip_bad=True)
