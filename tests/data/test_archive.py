"""Test custom data in zip archives."""

import shutil
import tempfile
import zipfile

import numpy as np
import pytest
from evaluations import folder_of, measured
from own_files import all_of, refusal, zipped
from tiny_runs import go_on, run, summary

from minicaps.data import load
from minicaps.data.own import archive

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def pets(tmp_path):
    return folder_of(tmp_path / "pets", {"cat": 4, "dog": 5, "eel": 6})


@pytest.mark.parametrize("around", ["", "pets/", "a/b/"])
def test_an_archive_is_read_like_its_folder(pets, around):
    path = zipped(pets, around=around)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("__MACOSX/cat/._0.png", b"junk")
    data, plain = load(str(path)), load(str(pets))
    assert (data.name, data.class_names, data.notes) == ("pets", plain.class_names, plain.notes)
    there = all_of(plain)
    for name, (image, label) in all_of(data).items():
        assert np.array_equal(image, there[name][0]) and label == there[name][1]
    assert data.test.names.tolist() == plain.test.names.tolist()


def test_an_archive_may_define_the_parts_or_hold_a_table(tmp_path, pets):
    folder_of(tmp_path / "parts/train", {"cat": 4, "dog": 4})
    folder_of(tmp_path / "parts/test", {"cat": 1, "dog": 1})
    assert len(load(str(zipped(tmp_path / "parts"))).test) == 2
    names = [str(path.relative_to(pets)) for path in sorted(pets.rglob("*.png"))]
    lines = [f"{name},{'ab'[k % 2]}" for k, name in enumerate(names)]
    (pets / "labels.csv").write_text("\n".join(["file,label", *lines]) + "\n")
    assert load(str(zipped(pets, around="x/"))).class_names == ("a", "b")


def test_a_run_on_an_archive_goes_on_and_is_evaluated(pets):
    folder = run("--data", str(zipped(pets)), "--limit", "12")
    shutil.rmtree(pets)
    go_on(folder, "--epochs", "2")
    assert measured(folder)["right"] == summary(folder)["test_right"]
    other = zipped(folder_of(pets.with_name("other"), {"cat": 2}))
    assert measured(folder, "--data", other)["samples"] == 2


def test_messages_name_the_archive_and_nothing_is_left(pets, monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (pets / "cat/0.png").write_bytes(b"torn")
    path = zipped(pets)
    assert f"{path}/cat/0.png is not a readable image" in refusal(path)
    ((name, reason),) = load(str(path), skip_bad=True).skipped
    assert name == "cat/0.png" and reason.startswith("is not a readable image")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_bad_archives_are_refused(pets, tmp_path, monkeypatch):
    path = zipped(pets)
    whole = path.read_bytes()
    for wrong in (b"", b"text", whole[:-50], whole[:99]):
        path.write_bytes(wrong)
        assert "pets.zip is not a valid zip archive" in refusal(path)
    for name in ("../evil.png", "/evil.png", "a/../../evil.png", "..\\evil.png"):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(name, b"junk")
        assert "would write outside of its folder" in refusal(path)
    assert not (tmp_path.parent / "evil.png").exists()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("cat/1.png", bytes(10**6))
    monkeypatch.setattr(archive, "MOST_BYTES", 10**6 - 1)
    assert "contains 1 files of 0.0 GB in all, but at most" in refusal(path)
    monkeypatch.setattr(archive, "MOST_FILES", 0)
    assert "at most 0 files" in refusal(path)
