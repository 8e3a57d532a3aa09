"""Test custom data: reading, splitting, training, and errors."""

import io
import json
import os
import re
import shutil
import sys
import time

import numpy as np
import pytest
from evaluations import table
from own_files import SIZE, all_of, grey_arrays, noise, npz, refusal, write
from PIL import Image
from tiny_runs import go_on, refused, run, saved, summary

from minicaps.data import __main__ as command
from minicaps.data import load
from minicaps.data.finding import find_images
from minicaps.data.images import read_picture
from minicaps.data.own import class_folders
from minicaps.evaluate import __main__ as evaluate
from minicaps.train import __main__ as train
from minicaps.train.ancestry import fingerprints

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def pets(tmp_path):
    """Create a folder with three classes of 4, 5 and 6 color images."""
    root = tmp_path / "pets"
    for count, name in enumerate(("cat", "dog", "eel"), start=4):
        for k in range(count):
            write(root / name / f"{k}.png", noise(10 * count + k, *SIZE, 3))
    return root


# ---- folders


def test_every_picture_is_read_once_and_has_the_class_of_its_folder(pets):
    data = load(str(pets))
    assert (data.name, data.class_names) == ("pets", ("cat", "dog", "eel"))
    assert data.train.images.shape[1:] == (3, *SIZE)
    pictures = all_of(data)
    files = {str(path.relative_to(pets)): path for path in pets.rglob("*.png")}
    assert pictures.keys() == files.keys() and len(data.train) + len(data.test) == len(files)
    for name, (image, label) in pictures.items():
        written = np.asarray(Image.open(files[name])).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(image, written, rtol=1e-6)
        assert data.class_names[label] == name.split("/")[0]


def test_the_seed_splits_and_every_class_is_in_every_part(pets):
    data, again, other = load(pets), load(pets), load(pets, seed=1)
    assert data.test.names.tolist() == again.test.names.tolist() != other.test.names.tolist()
    for seed in range(20):
        data = load(pets, seed=seed)
        rest, validation = data.cut_validation(3, seed)
        for part, counts in (
            (data.test, [1, 1, 1]),
            (validation, [1, 1, 1]),
            (rest, [2, 3, 4]),
        ):
            assert np.bincount(part.labels, minlength=3).tolist() == counts
        names = [*rest.names, *validation.names, *data.test.names]
        assert len(set(names)) == len(names) == 15


def test_a_validation_split_that_would_leave_a_class_without_training_is_refused(pets):
    with pytest.raises(ValueError, match="no training image of class 'cat': make it smaller"):
        load(pets).cut_validation(11)


def test_a_fifth_is_for_testing_of_each_class_in_proportion(tmp_path):
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    data = load(npz(tmp_path / "a.npz", images=noise(0, 100, 4, 4), labels=labels))
    assert np.bincount(data.test.labels).tolist() == [10, 6, 4]
    rest, _ = data.cut_validation(0.5)
    assert np.bincount(rest.labels).tolist() == [20, 12, 8]


def test_limit_takes_some_of_each_class_and_leaves_the_test_whole(pets):
    data, few = load(pets), load(pets, limit=6)
    assert np.bincount(few.train.labels).tolist() == [2, 2, 2]
    assert set(few.train.names) < set(data.train.names)
    assert few.test.names.tolist() == data.test.names.tolist()
    for limit in (2, 13):
        with pytest.raises(ValueError, match=r"12 training images in 3 classes .* choose 3 to 12"):
            load(pets, limit=limit)


def test_grey_pictures_have_one_channel_and_join_coloured_ones(pets):
    for path in pets.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert load(pets).train.images.shape[1:] == (1, *SIZE)
    write(pets / "dog/0.png", noise(0, *SIZE, 3))
    data = load(pets)
    image, _ = all_of(data)["cat/0.png"]
    assert image.shape == (3, *SIZE) and np.array_equal(image[0], image[2])
    assert data.notes == ("14 of 15 images are grayscale: their channel is used for all colors",)


def test_classes_named_by_numbers_are_in_the_order_of_numbers(tmp_path):
    for name in ("10", "9", "2"):
        for k in range(3):
            write(tmp_path / "n" / name / f"{k}.png", noise(k, 4, 4))
    assert load(tmp_path / "n").class_names == ("2", "9", "10")


def test_different_sizes_are_refused_unless_a_size_is_given(pets):
    write(pets / "dog/3.png", noise(0, 40, 20, 3))
    said = refusal(pets)
    for part in (f"{pets}/cat/0.png is 25×29", f"{pets}/dog/3.png is 40×20", "--size 25x29"):
        assert part in said
    data = load(pets, size=(30, 32))
    assert data.train.images.shape[1:] == (3, 30, 32)
    image, _ = all_of(data)["dog/3.png"]
    bars = image[..., [*range(8), *range(24, 32)]]
    assert np.ptp(bars, axis=(1, 2)).max() == 0 and bars.min() > 0.2  # the border's color
    assert np.ptp(image[..., 8:23]) > 0


def test_all_files_that_cannot_be_read_are_named(pets):
    content = (pets / "cat/0.png").read_bytes()
    (pets / "cat/0.png").write_bytes(content[: len(content) // 2])
    assert f"{pets}/cat/0.png is damaged" in refusal(pets)
    (pets / "dog/notes.png").write_text("Rex\n")
    (pets / "eel/zero.png").write_bytes(b"")
    for size in (None, (28, 28)):
        said = refusal(pets, size=size)
        assert "files cannot be used:\n" in said
        assert f"{pets}/dog/notes.png is not a readable image" in said
        assert f"{pets}/eel/zero.png is empty" in said
    for k in range(9):
        (pets / f"dog/notes{k}.txt").write_text("Rex\n")
    assert refusal(pets, size=(28, 28)).splitlines()[0] == "12 of 26 files cannot be used:"
    assert "and 7 more" in refusal(pets, size=(28, 28))


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.slow
def test_reading_that_takes_long_shows_a_bar_at_a_terminal(pets, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    load(pets, size=SIZE)
    assert "files" not in sys.stderr.getvalue()
    slow = lambda path: time.sleep(0.1) or read_picture(path)  # noqa: E731
    monkeypatch.setattr(class_folders, "read_picture", slow)
    load(pets, size=SIZE)
    assert "15 [00:01" in sys.stderr.getvalue()


def test_hidden_files_are_skipped_and_said(pets):
    for name in (".DS_Store", "cat/Thumbs.db", "dog/._0.png", ".cache/x.png", "__MACOSX/cat/0.png"):
        (pets / name).parent.mkdir(parents=True, exist_ok=True)
        (pets / name).write_bytes(b"junk")
    data = load(pets)
    assert len(data.train) + len(data.test) == 15 and len(data.class_names) == 3
    (note,) = data.notes
    assert note.startswith("skipped 5 hidden entries: ")
    for name in (".DS_Store", "cat/Thumbs.db", "dog/._0.png", ".cache", "__MACOSX"):
        assert name in note


def test_images_in_subfolders_belong_to_the_class(pets):
    write(pets / "cat/day1/0.png", noise(0, *SIZE, 3))
    write(pets / "cat/day2/am/0.png", noise(1, *SIZE, 3))
    (pets / "cat/day2/loop").symlink_to(pets / "cat")
    (pets / "dog/.thumbs").mkdir()
    (pets / "dog/empty").mkdir()
    data = load(str(pets))
    pictures = all_of(data)
    assert len(pictures) == 17
    for name in ("cat/day1/0.png", "cat/day2/am/0.png"):
        image, label = pictures[name]
        assert label == 0
        assert np.array_equal(image, read_picture(pets / name))
    assert data.notes == (
        "skipped 2 hidden entries: cat/day2/loop, dog/.thumbs",
        "2 images in subfolders of a class folder count as images of the class: cat/day1,"
        " cat/day2/am",
    )


def test_links_between_classes_repeat_no_image(pets):
    """Else, an image could be in the training and in the test set."""
    for place in ("cat", "dog", "eel"):
        for other in {"cat", "dog", "eel"} - {place}:
            (pets / place / f"to-{other}").symlink_to(pets / other)
    (pets / "cat/to-day").symlink_to(pets / "eel/day")
    write(pets / "eel/day/x.png", noise(99, *SIZE, 3))
    assert len(find_images([pets])[0]) == 16  # for predictions
    data = load(str(pets))
    assert len(pictures := all_of(data)) == 16 == len(data.train) + len(data.test)
    assert pictures["eel/day/x.png"][1] == 2  # the class of its own folder
    assert data.notes[0].startswith("skipped 7 hidden entries: cat/to-day, cat/to-dog, cat/to-eel")


def test_a_linked_folder_from_elsewhere_is_read(pets, tmp_path):
    (pets / "dog").rename(tmp_path / "dogs")
    (pets / "dog").symlink_to(tmp_path / "dogs")
    write(tmp_path / "more/x.png", noise(99, *SIZE, 3))
    (pets / "cat/more").symlink_to(tmp_path / "more")
    (pets / "eel/more").symlink_to(tmp_path / "more")
    pictures = all_of(load(str(pets)))
    assert {"dog/0.png", "cat/more/x.png"} < set(pictures) and len(pictures) == 16


def test_folders_that_are_no_data_set_are_refused(pets, tmp_path):
    (pets / "fox").mkdir()
    assert f"{pets}/fox contains no images: add images or remove the folder" in refusal(pets)
    (pets / "fox/.DS_Store").write_bytes(b"junk")
    assert f"{pets}/fox contains no images" in refusal(pets)
    shutil.rmtree(pets / "fox")
    (pets / "read.me").write_text("mine")
    assert "files outside of class folders: read.me" in refusal(pets)
    (pets / "read.me").unlink()
    shutil.rmtree(pets / "cat")
    shutil.rmtree(pets / "dog")
    assert f"{pets} has 1 class folder: a classifier needs at least 2" in refusal(pets)
    shutil.rmtree(pets / "eel")
    assert "has 0 class folders" in refusal(pets)
    write(pets / "1.png", noise(0, *SIZE))
    assert "files outside of class folders: 1.png" in refusal(pets)


def test_a_class_needs_a_picture_for_each_part(pets):
    for k in (0, 1):
        (pets / f"cat/{k}.png").unlink()
    assert "class 'cat' of" in (said := refusal(pets)) and "has 2 images, but at least 3" in said


def test_a_class_name_that_cannot_be_shown_is_refused(pets):
    (pets / "cat").rename(pets / "c\nat")
    assert r"a class named 'c\nat': give it a printable name" in refusal(pets)


def test_pictures_that_are_all_nearly_black_are_refused(pets):
    for path in pets.rglob("*.png"):
        write(path, noise(1, *SIZE, high=2))  # bytes with the values 0 and 1
    assert "the brightest pixel of all 15 images" in refusal(pets)
    write(pets / "cat/0.png", noise(1, *SIZE))
    assert load(pets).train.images.max() <= 1


@pytest.mark.slow
def test_pictures_that_would_fill_the_machine_are_refused(pets, tmp_path):
    path = npz(tmp_path / "a.npz", **grey_arrays())
    for data in (pets, path, "strokes"):
        assert "choose a smaller --size" in refusal(data, size=(99999, 99999))


# ---- the commands


def test_train_on_a_folder_writes_the_split_and_the_names(pets, tmp_path):
    folder = run("--data", "pets", "--seed", "3", "--limit", "12")
    meta = saved(folder, "best.npz")[1]
    assert meta["preprocessing"]["class_names"] == ["cat", "dog", "eel"]
    assert meta["model"]["input_shape"] == [3, *SIZE]
    assert meta["options"]["data"] == str(pets)  # even from another folder
    split = json.loads((folder / "split.json").read_text())
    data = load(pets, seed=3)
    rest, validation = data.cut_validation(0.1, 3)
    parts = {"train": rest, "validation": validation, "test": data.test}
    sums = {name: part.sha256() for name, part in parts.items()}
    assert split.pop("sha256") == sums
    assert split.pop("train_fingerprints") == fingerprints(parts["train"])
    assert split == {name: part.names.tolist() for name, part in parts.items()}
    assert summary(folder)["test_samples"] == len(data.test)


def test_train_on_an_npz_file_writes_indices(tmp_path):
    npz(tmp_path / "a.npz", **grey_arrays())
    folder = run("--data", "a.npz", "--limit", "9", "--validation", "0", "--size", "30x32")
    split = json.loads((folder / "split.json").read_text())
    assert split["validation"] == []
    assert sorted(split["train"] + split["test"]) == list(range(12))
    assert saved(folder)[1]["model"]["input_shape"] == [1, 30, 32]
    assert not (run(out="known") / "split.json").exists()


def test_size_is_that_of_all_pictures():
    assert saved(run("--size", "31"))[1]["model"]["input_shape"] == [1, 31, 31]


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_pictures_only(pets, monkeypatch, tmp_path, capsys):
    folder = run("--data", "pets", "--limit", "12").absolute()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    go_on(folder, "--epochs", "2")
    write(pets / "cat/new.png", noise(0, *SIZE, 3))
    capsys.readouterr()
    said = refused(capsys, "--resume", str(folder), "--epochs", "3", code=1)
    assert f"the images in {pets} differ from those listed in {folder}/split.json" in said
    (pets / "cat/new.png").unlink()
    go_on(folder, "--epochs", "3")
    before = (pets / "cat/0.png").read_bytes()
    write(pets / "cat/0.png", noise(9, *SIZE, 3))
    capsys.readouterr()
    said = refused(capsys, "--resume", str(folder), "--epochs", "4", code=1)
    assert f"some images in {pets} have changed since this run began" in said
    (pets / "cat/0.png").write_bytes(before)
    (folder / "split.json").write_text("{")
    capsys.readouterr()
    assert "split.json, with" in refused(capsys, "--resume", str(folder), code=1)


def test_what_train_says_of_data_that_it_cannot_use(pets, tmp_path, capsys):
    for arguments, code, part in (
        (["--size", "5"], 2, "images of 5×5 pixels are too small for this network"),
        (["--data-dir", "."], 2, "leave --data-dir out"),
        (["--out", "pets/run"], 2, "must not be in the data: choose another --out"),
        (["--limit", "2"], 2, "choose 3 to 12"),
        (["--validation", "11"], 2, "would leave no training image of class"),
    ):
        assert part in refused(capsys, "--data", "pets", *arguments, code=code)
    (pets / "cat/0.png").write_bytes(b"")
    assert "cat/0.png is empty" in refused(capsys, "--data", "pets", code=1)
    assert not (tmp_path / "runs").exists()


def test_train_says_what_was_skipped(pets, capsys):
    (pets / ".DS_Store").write_bytes(b"junk")
    arguments = ["--data", "pets", "--epochs", "1", "--device", "cpu"]
    assert train.main(arguments) == 0
    assert "Note: skipped 1 hidden entry: .DS_Store\n" in (said := capsys.readouterr().out)
    assert re.search(r"Results: runs/pets-capsnet-small-\d+-\d+/ ", said)


def test_show_counts_classes_and_draws_samples(pets, tmp_path, capsys):
    (pets / "cat/Thumbs.db").write_bytes(b"junk")
    (pets / "eel").rename(pets / "a rather long name")
    assert command.main(["pets"]) == 0
    said = capsys.readouterr().out
    assert "Note: skipped 1 hidden entry: cat/Thumbs.db" in said
    assert "pets: 12 training and 3 test images" in said
    assert "3 channels, 25 pixels high, 29 wide" in said
    assert re.search(r"^a rather long name +5 +1$", said, re.MULTILINE)
    picture = np.asarray(Image.open(tmp_path / "pets-samples.png"))
    assert picture[..., :3].std() > 20


def test_show_draws_large_and_grey_pictures(tmp_path, capsys):
    bright = np.full((12, 200, 300), 250, np.uint8)
    npz(tmp_path / "a.npz", images=bright, labels=np.arange(12) % 3)
    assert command.main(["a.npz", "--out", "b.png", "--seed", "2"]) == 0
    assert "(images, height, width), pixels 250 to 250, divided by 255" in capsys.readouterr().out
    picture = np.asarray(Image.open(tmp_path / "b.png"))[..., 0]
    assert (picture == 250).sum() > 10_000  # light stays light
    assert command.main(["a.npz", "--size", "20x30"]) == 0
    assert "20 pixels high, 30 wide" in capsys.readouterr().out


def test_show_refuses(pets, capsys, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        command.main(["petz"])
    assert stopped.value.code == 2
    assert "'petz' is neither a path nor a known name: choose" in capsys.readouterr().err
    monkeypatch.chdir(pets)
    assert command.main(["."]) == 1
    assert "pets-samples.png would be inside the data folder" in capsys.readouterr().err
    (pets / "cat/0.png").write_bytes(b"")
    assert command.main(["../pets", "--out", "../x.png"]) == 1
    assert "cat/0.png is empty" in capsys.readouterr().err


def test_a_large_share_of_test_images_is_told(tmp_path):
    """Every class needs one: of 3 images a class, a third are for testing."""
    for k in range(10):
        for j in range(3):
            write(tmp_path / f"many/{k}" / f"{j}.png", noise(10 * k + j, *SIZE, 3))
    data = load(str(tmp_path / "many"))
    assert len(data.test) == 10
    note = "10 of 30 images (33%) are test images, because every class needs one: add images"
    assert note in data.notes


@pytest.mark.parametrize(("counts", "told"), [((8, 2), ()), ((6, 4), ("40%",)), ((19, 1), ("5%",))])
def test_an_unusual_share_of_given_test_images_is_told(tmp_path, counts, told):
    for part, count in zip(("train", "test"), counts, strict=True):
        for c in "ab":
            for k in range(count):
                seed = [ord(part[1]), ord(c), k]
                write(tmp_path / "x" / part / c / f"{k}.png", noise(seed, 4, 4))
    notes = load(str(tmp_path / "x")).notes
    assert len(notes) == len(told)
    for note, share in zip(notes, told, strict=True):
        assert (
            f"images ({share}) are test images, as the data specifies; about 20% is usual" in note
        )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("b", "no test images of the classes a, c: their accuracy is not measured"),
        ("bc", "no test images of class a: its accuracy is not measured"),
    ],
)
def test_classes_without_test_images_are_named(tmp_path, given, told):
    for part, names, count in (("train", "abc", 4), ("test", given, 2)):
        for c in names:
            for k in range(count):
                seed = [ord(part[1]), ord(c), k]
                write(tmp_path / "x" / part / c / f"{k}.png", noise(seed, 4, 4))
    (note,) = load(str(tmp_path / "x")).notes
    assert note == told


def test_two_classes_of_three_images_train(tmp_path, capsys):
    for c in "ab":
        for k in range(3):
            write(tmp_path / "few" / c / f"{k}.png", noise(k, *SIZE))
    arguments = ["--data", "few", "--epochs", "1", "--device", "cpu", "--out", "run"]
    assert train.main(arguments) == 0
    assert "2 training, 2 validation, 2 test images" in capsys.readouterr().out
    split = json.loads((tmp_path / "run/split.json").read_text())
    for part in ("train", "validation", "test"):
        assert sorted(name[0] for name in split[part]) == ["a", "b"]


def test_two_images_are_enough_beside_a_validation_set(tmp_path):
    for part, count in (("train", 2), ("val", 1)):
        for c in "ab":
            for k in range(count):
                write(tmp_path / "few" / part / c / f"{k}.png", noise(k, *SIZE))
    data = load(str(tmp_path / "few"))
    assert [len(part) for part in (data.train, data.validation, data.test)] == [2, 2, 2]
    (tmp_path / "few/train/a/0.png").unlink()
    said = refusal(tmp_path / "few")
    assert "has 1 image, but at least 2 are needed for training and test" in said


EVIL = "x\x1b[2J\nminicaps: all is well"


def test_names_of_files_cannot_control_the_terminal(pets, capsys):
    (pets / f".{EVIL}").write_bytes(b"junk")
    write(pets / "cat" / EVIL / "1.png", noise(0, *SIZE, 3))
    assert command.main(["pets", "--out", "x.png"]) == 0
    (pets / EVIL).write_bytes(b"junk")
    (pets / "dog" / f"{EVIL}.png").write_bytes(b"junk")
    assert command.main(["pets"]) == 1
    assert command.main(["pets", "--skip-bad", "--out", "x.png"]) == 0
    said = "".join(capsys.readouterr())
    assert said.count(r"x\x1b[2J\nminicaps: all is well") >= 6
    assert "\x1b" not in said and "\nminicaps: all is well" not in said


def test_class_names_are_no_formulas_in_tables(pets, tmp_path):
    (pets / "cat").rename(pets / "=1+1")
    folder = run("--data", "pets", "--limit", "12")
    assert evaluate.main([str(folder), "--device", "cpu", "--quiet"]) == 0
    cells = [cell for file in folder.rglob("*.csv") for row in table(file) for cell in row]
    assert "'=1+1" in cells and not any(cell.startswith("=") for cell in cells)


@pytest.mark.parametrize("size", [20, (20, 20), [20, 20], np.int64(20), np.array([20, 20])])
def test_one_number_is_the_size_of_a_square(tmp_path, size):
    path = npz(tmp_path / "a.npz", **grey_arrays())
    assert load(path, size=size).train.images.shape[2:] == (20, 20)
    assert load("strokes", limit=1, size=size).train.images.shape[2:] == (20, 20)


@pytest.mark.parametrize("size", [0, "28", (28,), (28, 0), (28, 28, 1), 28.0, [28.0, 28.0]])
def test_what_is_no_size_is_refused(tmp_path, size):
    path = npz(tmp_path / "a.npz", **grey_arrays())
    with pytest.raises(ValueError, match=r"size must be N or \(height, width\)"):
        load(path, size=size)


@pytest.mark.skipif(os.name != "posix", reason="requires pipes and links")
def test_what_never_ends_is_refused(tmp_path):
    """A pipe or a device may have no end, and links may lead back to a folder."""
    for kind in ("pipe", "device"):
        write(tmp_path / kind / "0.png", noise(0, *SIZE))
    os.mkfifo(tmp_path / "pipe" / "labels.csv")
    (tmp_path / "device" / "labels.csv").symlink_to("/dev/zero")
    for kind in ("pipe", "device"):
        said = f"{tmp_path / kind}/labels.csv is not a regular file: replace or remove it"
        assert refusal(tmp_path / kind) == said
    idx = tmp_path / "idx"
    idx.mkdir()
    for part in ("train", "t10k"):
        for what in ("images-idx3", "labels-idx1"):
            os.mkfifo(idx / f"{part}-{what}-ubyte")
    assert "train-images-idx3-ubyte is not a regular file" in refusal(idx)


@pytest.mark.skipif(os.name != "posix", reason="requires links")
def test_links_that_lead_back_are_not_followed(tmp_path):
    """A table may name a file by its own folder and by a link to the folder."""
    root = tmp_path / "multi"
    names = [f"{place}/{k}.png" for place in ("a", "b") for k in range(6)]
    for k, name in enumerate(names):
        write(root / name, noise(k, *SIZE))
    (root / "a" / "back").symlink_to(root)
    (root / "a" / "x").symlink_to(root / "b")
    (root / "b" / "y").symlink_to(root / "a")  # a/x/y is a, b/y/x is b
    names += [f"{name[0]}/{'x' if name[0] == 'a' else 'y'}/{name[2:]}" for name in names]
    lines = [f"{name},{k % 2},{1 - k % 2}" for k, name in enumerate(names)]
    (root / "labels.csv").write_text("\n".join(["file,p,q", *lines]))
    data = load(root)
    assert sorted([*data.train.names, *data.test.names]) == sorted(names)
    (root / "labels.csv").write_text("\n".join(["file,p,q", *lines[:12]]))
    data = load(root)  # the table need not list files again under the names of links
    assert sorted([*data.train.names, *data.test.names]) == sorted(names[:12])
