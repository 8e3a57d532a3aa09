"""Test custom data in files with several images: animations and multi-page TIFF files."""

import json

import numpy as np
import pytest
from evaluations import folder_of, measured, predictions
from own_files import SIZE, all_of, noise, refusal, write
from PIL import Image
from tiny_runs import go_on, refused, run, summary

from minicaps.data import __main__ as command
from minicaps.data import load
from minicaps.data.dataset import Split
from minicaps.data.images import Target, fitted, read_frames

pytestmark = pytest.mark.usefixtures("tiny")


def pages(path, *frames):
    """Write images (H, W) of bytes as the pages of one TIFF file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *others = map(Image.fromarray, frames)
    first.save(path, save_all=True, append_images=others)


@pytest.fixture
def pets(tmp_path):
    """Create five files of three pages in each of two classes, and an image in each."""
    for c, name in enumerate(("cat", "dog")):
        for k in range(5):
            frames = [np.full(SIZE, 1 + 100 * c + 10 * k + j, np.uint8) for j in range(3)]
            pages(tmp_path / "pets" / name / f"{k}.tif", *frames)
        write(tmp_path / "pets" / name / "one.png", np.full(SIZE, 250, np.uint8))
    return tmp_path / "pets"


def test_files_with_several_images_are_refused_with_the_option(pets):
    said = refusal(pets)
    assert "10 of 12 files cannot be used" in said
    assert "cat/0.tif contains 3 images: save each in a separate file, or give --frames" in said


def test_the_first_image_may_be_chosen(pets):
    images = all_of(load(str(pets), frames="first"))
    assert len(images) == 12
    for c, name in enumerate(("cat", "dog")):
        for k in range(5):
            image, label = images[f"{name}/{k}.tif"]
            assert label == c and (image == np.float32(1 + 100 * c + 10 * k) / 255).all()


def test_all_images_may_be_chosen(pets):
    images = all_of(load(str(pets), frames="all"))
    assert len(images) == 32 and "cat/one.png" in images
    for c, name in enumerate(("cat", "dog")):
        for k in range(5):
            for j in range(3):
                image, label = images[f"{name}/{k}.tif#{j}"]
                value = np.float32(1 + 100 * c + 10 * k + j) / np.float32(255)
                assert label == c and np.allclose(image, value)


def test_a_file_is_opened_once_for_all_of_its_images(tmp_path, monkeypatch):
    frames = noise(0, 20, *SIZE)
    pages(tmp_path / "x.tif", *frames)
    opened = []
    open_image = Image.open
    monkeypatch.setattr(Image, "open", lambda path: opened.append(path) or open_image(path))
    read = np.array(list(read_frames(tmp_path / "x.tif")))
    assert opened == [tmp_path / "x.tif"]
    np.testing.assert_array_equal(read[:, 0], frames / np.float32(255))


def test_resized_images_still_know_their_file():
    images, groups = np.zeros((4, 1, 8, 8), np.float32), np.array([0, 0, 1, 1])
    whole = Split(images, np.array([0, 0, 1, 1]), poses=np.ones((4, 2)), groups=groups)
    resized = fitted(whole, Target((6, 6)))
    assert resized.groups.tolist() == groups.tolist() and resized.poses is None


def test_the_images_of_a_file_stay_in_one_part(pets):
    for seed in range(10):
        data = load(str(pets), frames="all", seed=seed)
        rest, validation = data.cut_validation(0.2, seed)
        parts = (rest, validation, data.test)
        files = [{name.partition("#")[0] for name in part.names} for part in parts]
        assert sum(map(len, files)) == len(set.union(*files)) == 12
        assert sum(map(len, parts)) == 32
        assert all(np.bincount(part.labels, minlength=2).min() > 0 for part in parts)


def test_a_large_share_of_test_images_is_explained_by_long_files(tmp_path):
    for c, name in enumerate(("cat", "dog")):
        for k in range(3):
            pages(tmp_path / "pets" / name / f"{k}.tif", *noise([c, k], 8, *SIZE))
    data = load(str(tmp_path / "pets"), frames="all")
    note = "16 of 48 images (33%) are test images, because the frames of a file stay together: "
    assert len(data.test) == 16 and f"{note}add files" in data.notes


def test_images_of_two_files_are_too_few_for_three_parts(pets):
    for name in ("0.tif", "1.tif", "2.tif", "one.png"):
        (pets / "cat" / name).unlink()
    said = refusal(pets, frames="all")
    assert "class 'cat'" in said and "has 2 images, but at least 3 are needed" in said


def test_an_animation_is_read(tmp_path):
    root = folder_of(tmp_path / "pets", {"cat": 4, "dog": 4})
    frames = [Image.fromarray(noise(k, *SIZE, 3)) for k in range(4)]
    frames[0].save(root / "cat/x.gif", save_all=True, append_images=frames[1:])
    assert "cat/x.gif contains 4 images" in refusal(root)
    names = all_of(load(str(root), frames="all"))
    assert {f"cat/x.gif#{k}" for k in range(4)} < set(names) and len(names) == 12


def test_nothing_changes_without_such_files(tmp_path):
    root = str(folder_of(tmp_path / "pets", {"cat": 4, "dog": 5}))
    plain = load(root)
    for frames in ("first", "all"):
        data = load(root, frames=frames)
        assert data.train.sha256() == plain.train.sha256()
        assert data.test.names.tolist() == plain.test.names.tolist()


def test_a_run_on_all_images_goes_on_and_is_evaluated(pets, capsys):
    folder = run("--data", "pets", "--frames", "all", "--limit", "16")
    split = json.loads((folder / "split.json").read_text())
    go_on(folder, "--epochs", "2")
    assert measured(folder)["right"] == summary(folder)["test_right"]
    assert list(predictions(folder / "evaluation")) == split["test"]
    other = pets.rename(pets.with_name("other"))
    assert measured(folder, "--data", other, "--frames", "first")["samples"] == 12
    capsys.readouterr()
    assert "--frames" in refused(capsys, "--frames", "all", code=2)  # drawn digits
    said = refused(capsys, "--data", "other", "--frames", "all", "--compose", "2", code=2)
    assert "the frames of other cannot be composed" in said


def test_the_data_command_takes_frames(pets, capsys):
    assert command.main(["pets", "--frames", "first"]) == 0
    assert "pets: 10 training and 2 test images" in capsys.readouterr().out
