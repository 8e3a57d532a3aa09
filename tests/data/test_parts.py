"""Test custom data whose folders define the training, validation and test images."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from evaluations import folder_of, measured
from own_files import SIZE, noise, refusal, write
from tiny_runs import go_on, refused, run, saved, summary

from minicaps.data import __main__ as command
from minicaps.data import load, own
from minicaps.data.images import Target

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def pets(tmp_path):
    """Create a folder with 12 training, 3 validation and 6 test images of three classes."""
    for start, (part, count) in enumerate((("train", 4), ("val", 1), ("test", 2))):
        names = dict.fromkeys(("cat", "dog", "eel"), count)
        folder_of(tmp_path / "pets" / part, names, start=10 * start)
    return tmp_path / "pets"


def names_in(root, folder):
    return {path.relative_to(root).as_posix() for path in (root / folder).rglob("*.png")}


def split_of(run):
    return json.loads((run / "split.json").read_text())


def test_each_part_holds_the_images_of_its_folder(pets):
    data = load(str(pets))
    assert data.class_names == ("cat", "dog", "eel")
    rest, validation = data.cut_validation()
    for part, folder in ((rest, "train"), (validation, "val"), (data.test, "test")):
        assert set(part.names.tolist()) == names_in(pets, folder)
        for name, label in zip(part.names, part.labels, strict=True):
            assert data.class_names[label] == name.split("/")[1]
    again = load(str(pets), seed=5)
    assert again.test.names.tolist() == data.test.names.tolist()


@pytest.mark.parametrize("name", ["validation", "val", "valid"])
def test_the_validation_folder_has_three_names(pets, name):
    if name != "val":
        (pets / "val").rename(pets / name)
    assert set(load(str(pets)).validation.names.tolist()) == names_in(pets, name)


def test_parts_without_a_folder_are_cut_from_training(pets):
    shutil.rmtree(pets / "test")
    data = load(str(pets))
    assert (len(data.train), len(data.validation), len(data.test)) == (9, 3, 3)
    assert set(data.test.names.tolist()) < names_in(pets, "train")
    shutil.rmtree(pets / "val")
    data = load(str(pets))
    assert data.validation is None
    assert [len(part) for part in data.cut_validation(3)] == [6, 3]


def test_another_validation_set_is_refused(pets, capsys):
    for size in (0.1, 3):
        with pytest.raises(ValueError, match="has its own validation set of 3 images"):
            load(str(pets)).cut_validation(size)
    for size in ("0.1", "3", "0"):
        said = refused(capsys, "--data", "pets", "--validation", size, code=2)
        assert "pets has its own validation set of 3 images: leave --validation out" in said


def test_classes_must_be_in_training(pets):
    write(pets / "test/fox/1.png", noise(0, *SIZE, 3))
    write(pets / "val/owl/1.png", noise(0, *SIZE, 3))
    said = refusal(pets)
    assert f"{pets}/train lacks training images of the classes fox, owl, which" in said


def test_faults_in_parts_are_told(pets):
    (pets / "read.me").write_text("mine")
    write(pets / "test/1.png", noise(0, *SIZE, 3))
    (pets / "train/dog/10.txt").write_text("Rex")
    said = refusal(pets)
    assert f"{pets} contains files outside of class folders: read.me" in said
    assert f"{pets}/test contains files outside of class folders: 1.png" in said
    assert "train/dog/10.txt is not a readable image" in said
    data = load(str(pets), skip_bad=True)
    assert [name for name, _ in data.skipped] == ["read.me", "test/1.png", "train/dog/10.txt"]
    assert (len(data.train), len(data.test)) == (12, 6)


@pytest.mark.parametrize("extra", ["valid", "unlabeled"])
def test_folders_beside_the_parts_are_refused(pets, extra):
    """A second validation set, or images of unknown class that would become a class."""
    shutil.copytree(pets / "val", pets / extra)
    said = refusal(pets)
    assert f"has the folders {', '.join(sorted(['test', 'train', 'val', extra]))}: keep one" in said


@pytest.mark.parametrize(
    "rename", [str.title, str.upper, {"train": "Training", "test": "Testing"}.get]
)
def test_parts_may_have_other_names(pets, rename):
    before = load(str(pets))
    for part in ("train", "val", "test"):
        (pets / part).rename(pets / (rename(part) or part))
    data = load(str(pets))
    assert data.class_names == before.class_names
    assert [len(part) for part in (data.train, data.validation, data.test)] == [12, 3, 6]


def test_a_class_may_be_called_like_a_part(tmp_path):
    for name in ("test", "train station", "cat"):
        folder_of(tmp_path / "x", {name: 4})
    assert load(str(tmp_path / "x")).class_names == ("cat", "test", "train station")


def test_classes_may_be_called_train_and_test(tmp_path):
    folder_of(tmp_path / "trips", {"train": 4, "test": 4})
    assert load(str(tmp_path / "trips")).class_names == ("test", "train")
    folder_of(tmp_path / "other", {"train": 4, "plane": 4})
    write(tmp_path / "other/plane/1.png", noise(0, *SIZE, 3))
    assert load(str(tmp_path / "other")).class_names == ("plane", "train")


def test_a_run_uses_the_parts_and_goes_on(pets, capsys):
    folder = run("--data", "pets", "--limit", "9", "--epochs", "2")
    split = split_of(folder)
    assert set(split["test"]) == names_in(pets, "test")
    assert set(split["validation"]) == names_in(pets, "val")
    assert len(split["train"]) == 9 and set(split["train"]) < names_in(pets, "train")
    assert saved(folder)[1]["options"]["validation"] is None
    go_on(folder, "--epochs", "3")
    assert measured(folder)["right"] == summary(folder)["test_right"]
    for part, count in (("validation", 3), ("train", 9), ("test", 6)):
        assert measured(folder, "--part", part)["samples"] == count
    before = measured(folder)
    shutil.copytree(pets, "moved")
    assert measured(folder, "--data", "moved", "--part", "test")["confusion"] == before["confusion"]
    assert measured(folder, "--data", "moved", "--part", "train")["samples"] == 9
    assert measured(folder, "--data", "moved")["samples"] == 21
    write(pets / "val/cat/more.png", noise(0, *SIZE, 3))
    assert measured(folder, "--part", "validation")["samples"] == 3
    capsys.readouterr()
    assert "differ from those listed in" in refused(capsys, "--resume", str(folder), code=1)
    (pets / "val/cat/more.png").unlink()
    (folder / "split.json").unlink()
    assert measured(folder)["confusion"] == before["confusion"]
    assert measured(folder, "--part", "validation")["samples"] == 3


def test_a_trained_network_is_evaluated_on_test_images_alone(pets, tmp_path, capsys):
    folder = run("--data", "pets", "--limit", "9")
    shutil.copytree(pets / "test", "only/test")
    found = measured(folder, "--data", "only", "--part", "test")
    assert (found["samples"], found["right"]) == (6, summary(folder)["test_right"])
    assert measured(folder, "--data", "only")["samples"] == 6
    names = [path.relative_to("only") for path in sorted(Path("only").rglob("*.png"))]
    lines = ["file,label,split", *(f"{name},{name.parts[1]},test" for name in names)]
    Path("only/labels.csv").write_text("\n".join(lines))
    again = measured(folder, "--data", "only", "--part", "test")
    assert again["confusion"] == found["confusion"]
    capsys.readouterr()
    assert "has no training images" in refused(capsys, "--data", "only", code=1)
    Path("only/labels.csv").unlink()
    assert "has 1 class folder" in refused(capsys, "--data", "only", code=1)


def test_a_folder_named_like_a_part_may_be_a_class(tmp_path):
    folder_of(tmp_path / "trips", {"train/far": 2, "test/far": 2, "test/near": 1})
    (tmp_path / "trips/train").rename(tmp_path / "trips/val")
    found = own.read(tmp_path / "trips", Target(SIZE, 3, classes=("test", "train", "val")))
    assert found.parts["all"].labels.tolist() == [0, 0, 0, 2, 2]


def test_a_class_with_a_single_training_image_cannot_be_validated(tmp_path, capsys):
    folder_of(tmp_path / "few/train", {"cat": 1, "dog": 3})
    folder_of(tmp_path / "few/test", {"cat": 1, "dog": 1}, start=20)
    said = refused(capsys, "--data", "few", code=2)
    assert "class 'cat' has too few training images to hold one out for validation" in said
    assert "add images, or give --validation 0" in said
    run("--data", "few", "--validation", "0", "--limit", "4")


def test_a_part_cut_from_training_stays_the_same(pets):
    shutil.rmtree(pets / "test")
    folder = run("--data", "pets", "--limit", "9")
    split = split_of(folder)
    assert set(split["test"] + split["train"]) == names_in(pets, "train")
    write(pets / "train/cat/more.png", noise(0, *SIZE, 3))
    assert measured(folder)["right"] == summary(folder)["test_right"]
    assert measured(folder, "--part", "validation")["samples"] == 3


def test_composed_images_keep_to_their_parts(pets):
    data = load(str(pets), compose=2)
    singles = {data.test: "test", data.validation: "val", data.train: "train"}
    for part, folder in singles.items():
        assert set(part.single.names.tolist()) == names_in(pets, folder)


def test_the_data_command_counts_every_part(pets, capsys):
    assert command.main(["pets"]) == 0
    said = capsys.readouterr().out
    assert "pets: 12 training, 3 validation and 6 test images" in said
    lines = [line.split() for line in said.splitlines()]
    assert ["class", "training", "validation", "test"] in lines
    assert ["dog", "4", "1", "2"] in lines


def test_pictures_are_read_from_their_folder(pets):
    write(pets / "test/cat/20.png", np.full((*SIZE, 3), 51, np.uint8))
    data = load(str(pets))
    image = data.test.images[data.test.names.tolist().index("test/cat/20.png")]
    assert np.allclose(image, 0.2)
