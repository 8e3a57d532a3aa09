"""Pictures of one's own: read, split and trained on as they are meant, or refused by name."""

import io
import json
import re
import shutil
import sys
import time

import numpy as np
import pytest
from idx_files import FILES, arrays_of, idx_bytes, zipped
from PIL import Image
from tiny_runs import (
    go_on,
    refused,
    run,
    saved,
    summary,
    tiny,  # noqa: F401 (used by every test here)
)

from minicaps import train
from minicaps.data import DataError, load, own
from minicaps.data import __main__ as command
from minicaps.data.own import read
from minicaps.data.pictures import read_picture

SIZE = (28, 30)  # as large as the tiny network needs, and not square


def write(path, numbers):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbers).save(path)


def noise(seed, *shape, high=256):
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.uint8)


@pytest.fixture
def pets(tmp_path):
    """A folder with three classes of 4, 5 and 6 pictures in colour."""
    root = tmp_path / "pets"
    for count, name in enumerate(("cat", "dog", "eel"), start=4):
        for k in range(count):
            write(root / name / f"{k}.png", noise(10 * count + k, *SIZE, 3))
    return root


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def grey_arrays(n=12, classes=3, size=SIZE):
    return {"images": noise(0, n, *size), "labels": np.arange(n) % classes}


def refusal(path, **options):
    with pytest.raises(DataError) as caught:
        load(path, **options)
    return str(caught.value)


def all_of(data):
    """Every picture's bytes by its name, from both parts."""
    parts = (data.train, data.test)
    return {n: (i, k) for p in parts for n, i, k in zip(p.names, p.images, p.labels, strict=True)}


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
    with pytest.raises(ValueError, match="no training picture of class 'cat': make it smaller"):
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
        with pytest.raises(
            ValueError, match=r"12 training pictures in 3 classes .* choose 3 to 12"
        ):
            load(pets, limit=limit)


def test_grey_pictures_have_one_channel_and_join_coloured_ones(pets):
    for path in pets.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert load(pets).train.images.shape[1:] == (1, *SIZE)
    write(pets / "dog/0.png", noise(0, *SIZE, 3))
    data = load(pets)
    image, _ = all_of(data)["cat/0.png"]
    assert image.shape == (3, *SIZE) and np.array_equal(image[0], image[2])
    assert data.notes == ("14 of 15 pictures are grey: their grey is used in all colours",)


def test_classes_named_by_numbers_are_in_the_order_of_numbers(tmp_path):
    for name in ("10", "9", "2"):
        for k in range(3):
            write(tmp_path / "n" / name / f"{k}.png", noise(k, 4, 4))
    assert load(tmp_path / "n").class_names == ("2", "9", "10")


def test_different_sizes_are_refused_unless_a_size_is_given(pets):
    write(pets / "dog/3.png", noise(0, 40, 20, 3))
    said = refusal(pets)
    for part in (f"{pets}/cat/0.png is 28×30", f"{pets}/dog/3.png is 40×20", "--size 28x30"):
        assert part in said
    data = load(pets, size=(30, 32))
    assert data.train.images.shape[1:] == (3, 30, 32)
    image, _ = all_of(data)["dog/3.png"]
    assert not image[..., :8].any() and not image[..., 24:].any() and image[..., 8:23].any()


def test_all_files_that_cannot_be_read_are_named(pets):
    content = (pets / "cat/0.png").read_bytes()
    (pets / "cat/0.png").write_bytes(content[: len(content) // 2])
    assert f"{pets}/cat/0.png is damaged" in refusal(pets)
    (pets / "dog/notes.png").write_text("Rex\n")
    (pets / "eel/zero.png").write_bytes(b"")
    for size in (None, (28, 28)):
        said = refusal(pets, size=size)
        assert "files cannot be used:\n" in said
        assert f"{pets}/dog/notes.png is no picture" in said
        assert f"{pets}/eel/zero.png is empty" in said
    for k in range(9):
        (pets / f"dog/notes{k}.txt").write_text("Rex\n")
    assert refusal(pets, size=(28, 28)).splitlines()[0] == "12 of 26 files cannot be used:"
    assert "and 7 more" in refusal(pets, size=(28, 28))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_reading_that_takes_long_shows_a_bar_at_a_terminal(pets, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    load(pets, size=SIZE)
    assert "files" not in sys.stderr.getvalue()
    monkeypatch.setattr(own, "read_picture", lambda path: time.sleep(0.1) or read_picture(path))
    load(pets, size=SIZE)
    assert "15 [00:01" in sys.stderr.getvalue()


def test_hidden_files_are_skipped_and_said(pets):
    for name in (".DS_Store", "cat/Thumbs.db", "dog/._0.png", ".cache/x.png", "__MACOSX/cat/0.png"):
        (pets / name).parent.mkdir(parents=True, exist_ok=True)
        (pets / name).write_bytes(b"junk")
    data = load(pets)
    assert len(data.train) + len(data.test) == 15 and len(data.class_names) == 3
    (note,) = data.notes
    assert note.startswith("skipped 5 hidden: ")
    for name in (".DS_Store", "cat/Thumbs.db", "dog/._0.png", ".cache", "__MACOSX"):
        assert name in note


def test_folders_that_are_no_data_set_are_refused(pets, tmp_path):
    (pets / "fox").mkdir()
    assert f"{pets}/fox has no pictures: fill the folder, or remove it" in refusal(pets)
    (pets / "fox/.DS_Store").write_bytes(b"junk")
    assert f"{pets}/fox has no pictures" in refusal(pets)
    shutil.rmtree(pets / "fox")
    (pets / "read.me").write_text("mine")
    assert "files outside of class folders: read.me" in refusal(pets)
    (pets / "read.me").unlink()
    write(pets / "cat/more/1.png", noise(0, *SIZE))
    assert f"{pets}/cat holds folders: more" in refusal(pets)
    shutil.rmtree(pets / "cat")
    shutil.rmtree(pets / "dog")
    assert f"{pets} has 1 class folder(s): a classifier needs at least 2" in refusal(pets)
    shutil.rmtree(pets / "eel")
    assert "has 0 class folder(s)" in refusal(pets)
    write(pets / "1.png", noise(0, *SIZE))
    assert "files outside of class folders: 1.png" in refusal(pets)


def test_a_class_needs_a_picture_for_each_part(pets):
    for k in (0, 1):
        (pets / f"cat/{k}.png").unlink()
    assert "class 'cat' of" in (said := refusal(pets)) and "has 2 picture(s): at least 3" in said


def test_a_class_name_that_cannot_be_shown_is_refused(pets):
    (pets / "cat").rename(pets / "c\nat")
    assert r"a class with the name 'c\nat': give it a readable one" in refusal(pets)


def test_pictures_that_are_all_nearly_black_are_refused(pets):
    for path in pets.rglob("*.png"):
        write(path, noise(1, *SIZE, high=2))  # 0 and 1 in bytes
    assert "the brightest pixel of all 15 pictures" in refusal(pets)
    write(pets / "cat/0.png", noise(1, *SIZE))
    assert load(pets).train.images.max() <= 1


def test_pictures_that_would_fill_the_machine_are_refused(pets, tmp_path):
    path = npz(tmp_path / "a.npz", **grey_arrays())
    for data in (pets, path, "strokes"):
        assert "give a smaller --size" in refusal(data, size=(99999, 99999))


# ---- .npz files


def test_arrays_are_read_with_their_names(tmp_path):
    arrays = grey_arrays()
    data = load(npz(tmp_path / "mine.npz", **arrays, class_names=["a", "b", "c"]))
    assert (data.name, data.class_names) == ("mine", ("a", "b", "c"))
    pictures = all_of(data)
    assert sorted(pictures) == list(range(12))
    for k, (image, label) in pictures.items():
        np.testing.assert_allclose(image[0], arrays["images"][k] / 255, rtol=1e-6)
        assert label == arrays["labels"][k]
    assert load(npz(tmp_path / "b.npz", **arrays)).class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("shape", "move"),
    [
        ((12, 28, 30), lambda a: a[:, None]),
        ((12, 1, 28, 30), lambda a: a),
        ((12, 3, 28, 30), lambda a: a),
        ((12, 28, 30, 1), lambda a: a.transpose(0, 3, 1, 2)),
        ((12, 28, 30, 3), lambda a: a.transpose(0, 3, 1, 2)),
        ((12, 3, 28, 3), lambda a: a),  # both: the second axis has the channels
    ],
)
def test_the_axis_of_size_1_or_3_has_the_channels(tmp_path, shape, move):
    images = noise(0, *shape)
    (whole,), _, notes = read(npz(tmp_path / "a.npz", images=images, labels=np.arange(12) % 3))
    np.testing.assert_allclose(whole.images, move(images) / 255, rtol=1e-6)
    axes = {(1,): "channels, height, width)", (3,): "height, width, channels)"}
    where = tuple(k for k in (1, 3) if len(shape) == 4 and shape[k] in (1, 3))[:1]
    assert axes.get(where, "(pictures, height, width)") in notes[0]


BITS = np.array([0, 1, 1, 0])
PLAIN = {
    "bytes": (np.array([0, 51, 255, 1], np.uint8), 255),
    "bytes in whole numbers": (np.array([0, 51, 255, 1], np.int64), 255),
    "bytes in floats": (np.array([0, 51, 254, 1], np.float64), 255),
    "16 bits": (np.array([0, 51, 65535, 1], np.uint16), 65535),
    "16 bits in whole numbers": (np.array([0, 51, 5000, 1], np.int32), 65535),
    "floats": (np.array([0, 0.25, 0.5, 0.125], np.float64), 1),
    "half floats": (np.array([0, 0.25, 1, 0.125], np.float16), 1),
    "truth": (BITS.astype(bool), 1),
    "bits": (BITS.astype(np.uint8), 1),
    "rounded floats": (np.array([-1e-7, 1 + 1e-7, 0.5, 0]), 1),
}


def pixels(numbers):
    """12 pictures of 2×2 that all have these four pixels."""
    return {"images": np.tile(numbers.reshape(1, 2, 2), (12, 1, 1)), "labels": np.arange(12) % 3}


@pytest.mark.parametrize("name", PLAIN)
def test_pixels_with_a_plain_meaning_are_scaled(tmp_path, name):
    numbers, white = PLAIN[name]
    (whole,), _, notes = read(npz(tmp_path / "a.npz", **pixels(numbers)))
    assert whole.images.dtype == np.float32
    np.testing.assert_allclose(whole.images[3].ravel(), numbers / white, atol=1e-6)
    assert whole.images.min() >= 0 and whole.images.max() <= 1
    assert ("0 is black, 1 white" if white == 1 else f"divided by {white}") in notes[0]


@pytest.mark.parametrize(
    ("numbers", "seen"),
    [
        (np.array([-1, 1, 0, 0.5]), "float64 pixels from -1 to 1"),
        (np.array([0, 254.5, 0, 1]), "float64 pixels from 0 to 254.5"),
        (np.array([0, 2.5, 0, 1], np.float32), "float32 pixels from 0 to 2.5"),
        (np.array([0, 4095, 3, 1], np.uint16), "uint16 pixels from 0 to 4095"),
        (np.array([0, 65536, 3, 1], np.int64), "int64 pixels from 0 to 65536"),
        (np.array([0, -3, 3, 100], np.int8), "int8 pixels from -3 to 100"),
        (np.zeros(4, np.uint8), "uint8 pixels from 0 to 0"),
        (np.array([0, np.nan, 0, 1]), "have the pixel nan in picture 0"),
        (np.array([0, np.inf, 0, 1]), "have the pixel inf in picture 0"),
        (np.array([0, 1j, 0, 1]), "are of type complex128"),
        (np.array(["0", "1", "1", "1"]), "are of type <U1"),
    ],
)
def test_other_pixels_are_refused_with_the_range_seen(tmp_path, numbers, seen):
    said = refusal(npz(tmp_path / "a.npz", **pixels(numbers)))
    assert said.startswith(f"images in {tmp_path}/a.npz ") and seen in said


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.arange(12) % 3 - 1, "have -1 at index 0: class numbers are 0, 1, 2, … (4 of 12 are"),
        (np.arange(12) % 3 + 0.5, "have 0.5 at index 0"),
        (np.where(np.arange(12) == 5, np.nan, 0), "have nan at index 5"),
        (np.arange(12) % 3 + 1, "has no picture of class 0, but labels up to 3"),
        (np.arange(12) % 3 * 2, "has no picture of class 1, but labels up to 4"),
        (np.where(np.arange(12) == 5, np.inf, 0), "have inf at index 5"),
        (np.full(12, 1e300), "have 1e+300 at index 0"),
        (np.full(12, 2**64 - 1, np.uint64), "have 18446744073709551615 at index 0"),
        (np.full(12, 2**30), "has no picture of class 0"),
        (np.zeros(12, int), "has one class only"),
        (np.arange(11) % 3, "have shape (11,), but there are 12 pictures"),
        (np.eye(3)[np.arange(12) % 3] * 2, "of shape (12, 3) are not zeros and ones"),
        (np.array(["cat", "dog", "eel"] * 4), "are of type <U3: expected class numbers"),
    ],
)
def test_wrong_labels_are_refused(tmp_path, labels, said):
    assert said in refusal(npz(tmp_path / "a.npz", images=noise(0, 12, 4, 4), labels=labels))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("shape", [(12,), (12, 1)])
def test_whole_numbers_of_any_kind_are_labels(tmp_path, kind, shape):
    labels = (np.arange(12) % 3).astype(kind).reshape(shape)
    (whole,), _, _ = read(npz(tmp_path / "a.npz", images=noise(0, 12, 4, 4), labels=labels))
    assert whole.labels.tolist() == [0, 1, 2] * 4


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "b"], "labels up to 2 and the class names a, b"),
        (["a", "b", "a"], "expected one name, its own, for each class"),
        (["a", "b", "c", "d"], "has no picture of class 3 (d)"),
        ([0, 1, 2], "expected one row of text"),
        (["a", "b", "c\x07"], "a class with the name"),
    ],
)
def test_wrong_class_names_are_refused(tmp_path, names, said):
    assert said in refusal(npz(tmp_path / "a.npz", **grey_arrays(), class_names=names))


def test_wrong_keys_and_shapes_are_refused(tmp_path):
    images, labels = grey_arrays().values()
    said = refusal(npz(tmp_path / "a.npz", x=images, y=labels))
    assert "has no images and no labels, but x, y" in said and "np.savez" in said
    assert "has no labels, but images" in refusal(npz(tmp_path / "b.npz", images=images))
    for wrong in (
        images[0],
        images.reshape(12, -1),
        images[..., None, None],
        images[:, None, None],
    ):
        said = refusal(npz(tmp_path / "c.npz", images=wrong, labels=labels))
        assert "shape" in said
    said = refusal(npz(tmp_path / "d.npz", images=noise(0, 12, 8, 8, 4), labels=labels))
    assert "with 1 or 3 channels second or last" in said
    said = refusal(npz(tmp_path / "e.npz", images=images[:0], labels=labels[:0]))
    assert "there are none" in said
    more = npz(tmp_path / "f.npz", images=images, labels=labels, poses=labels)
    assert f"not used of {more}: poses" in load(more).notes


class Trap:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["images", "labels", "class_names", "other"])
def test_objects_are_never_unpickled(tmp_path, name):
    objects = np.array([Trap(tmp_path / "sprung")] * 3, dtype=object)
    path = tmp_path / "a.npz"
    np.savez(path, allow_pickle=True, **grey_arrays() | {name: objects})
    assert f"{name} in {path} holds Python objects, which are not loaded" in refusal(path)
    assert not (tmp_path / "sprung").exists()


def test_faulty_files_are_refused(tmp_path):
    path = npz(tmp_path / "a.npz", **grey_arrays())
    content = path.read_bytes()
    for wrong in (b"", b"text", content[:-100], content[:100], content.replace(b"NUMPY", b"NUMPX")):
        path.write_bytes(wrong)
        assert "is not a whole .npz file" in refusal(path)
    np.save(tmp_path / "b.npy", np.zeros(3))
    (tmp_path / "b.npy").rename(path)
    assert "is not a whole .npz file" in refusal(path)
    (tmp_path / "c.csv").write_text("1,2\n")
    assert "c.csv is no data set: expected a folder with a folder for each" in refusal(
        tmp_path / "c.csv"
    )


def test_arrays_are_fitted_to_a_size(tmp_path):
    path = npz(tmp_path / "a.npz", **grey_arrays())
    assert load(path, size=(10, 12)).test.images.shape[1:] == (1, 10, 12)
    data = load("strokes", limit=5, size=(40, 36))
    assert data.train.images.shape == (5, 1, 40, 36) and data.test.images.shape[2:] == (40, 36)
    assert not data.train.images[:, :, :2].any()


# ---- IDX files


@pytest.fixture
def idx(tmp_path):
    def make(pack=bytes, suffix="", **changed):
        folder = tmp_path / "idx"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        labels = {FILES[1]: np.arange(20) % 3, FILES[3]: np.arange(7) % 2}
        arrays = arrays_of(0) | labels | {FILES[int(k[1:])]: v for k, v in changed.items()}
        for name, array in arrays.items():
            array = np.asarray(array, np.uint8)
            (folder / f"{name}{suffix}").write_bytes(pack(idx_bytes(array)))
        return folder, arrays

    return make


@pytest.mark.parametrize(("pack", "suffix"), [(bytes, ""), (zipped, ".gz")])
def test_idx_files_say_themselves_what_is_for_testing(idx, pack, suffix):
    folder, arrays = idx(pack, suffix)
    (folder / ".DS_Store").write_bytes(b"junk")
    data = load(folder, seed=5)
    for part, images in ((data.train, FILES[0]), (data.test, FILES[2])):
        np.testing.assert_allclose(part.images[:, 0], arrays[images] / 255, rtol=1e-6)
        assert part.names.tolist() == list(range(len(part)))
    assert data.class_names == ("0", "1", "2")
    assert data.notes[0] == "skipped 1 hidden: .DS_Store"


def test_incomplete_idx_files_are_refused(idx):
    folder, _ = idx()
    (folder / FILES[3]).unlink()
    assert f"{folder} has no IDX file of the test labels" in refusal(folder)
    folder, _ = idx()
    (folder / "readme.txt").write_text("mine")
    assert "has a file too many, readme.txt" in refusal(folder)
    folder, _ = idx()
    (folder / f"letters-{FILES[0]}").write_bytes((folder / FILES[0]).read_bytes())
    assert "has a file too many" in refusal(folder)
    folder, _ = idx(_3=np.full(7, 3))
    assert f"{FILES[3]} has label 3: the training labels are 0 to 2" in refusal(folder)
    folder, _ = idx(_2=noise(0, 7, 5, 5))
    assert "differ: training (1, 4, 5), test (1, 5, 5)" in refusal(folder)
    folder, _ = idx(_1=np.arange(19) % 3)
    assert f"{FILES[1]} have shape (19,), but there are 20 pictures" in refusal(folder)
    (folder / FILES[0]).write_bytes(b"nothing")
    assert "is not an IDX file" in refusal(folder)


# ---- the commands


def test_train_on_a_folder_writes_the_split_and_the_names(pets, tmp_path):
    folder = run("--data", "pets", "--seed", "3", "--limit", "12")
    meta = saved(folder, "best.npz")[1]
    assert meta["preprocessing"]["class_names"] == ["cat", "dog", "eel"]
    assert meta["model"]["input_shape"] == [3, *SIZE]
    assert meta["options"]["data"] == str(pets)  # also from another folder
    split = json.loads((folder / "split.json").read_text())
    data = load(pets, seed=3)
    rest, validation = data.cut_validation(0.1, 3)
    parts = {"train": rest, "validation": validation, "test": data.test}
    sums = {name: part.sha256() for name, part in parts.items()}
    assert split.pop("sha256") == sums
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


def test_a_run_goes_on_with_the_same_pictures_only(pets, monkeypatch, tmp_path, capsys):
    folder = run("--data", "pets", "--limit", "12").absolute()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    go_on(folder, "--epochs", "2")
    write(pets / "cat/new.png", noise(0, *SIZE, 3))
    capsys.readouterr()
    said = refused(capsys, "--resume", str(folder), "--epochs", "3", code=1)
    assert f"{pets} has other pictures than {folder}/split.json names" in said
    (pets / "cat/new.png").unlink()
    go_on(folder, "--epochs", "3")
    before = (pets / "cat/0.png").read_bytes()
    write(pets / "cat/0.png", noise(9, *SIZE, 3))
    capsys.readouterr()
    said = refused(capsys, "--resume", str(folder), "--epochs", "4", code=1)
    assert f"some pictures of {pets} have changed since this run began" in said
    (pets / "cat/0.png").write_bytes(before)
    (folder / "split.json").write_text("{")
    capsys.readouterr()
    assert "split.json names" in refused(capsys, "--resume", str(folder), code=1)


def test_what_train_says_of_data_that_it_cannot_use(pets, tmp_path, capsys):
    for arguments, code, part in (
        (["--size", "5"], 2, "images of 5×5 pixels are too small for this network"),
        (["--data-dir", "."], 2, "leave --data-dir out"),
        (["--out", "pets/run"], 2, "must not lie in the data: choose another --out"),
        (["--limit", "2"], 2, "choose 3 to 12"),
        (["--validation", "11"], 2, "would leave no training picture of class"),
    ):
        assert part in refused(capsys, "--data", "pets", *arguments, code=code)
    (pets / "cat/0.png").write_bytes(b"")
    assert "cat/0.png is empty" in refused(capsys, "--data", "pets", code=1)
    assert not (tmp_path / "runs").exists()


def test_train_says_what_was_skipped(pets, capsys):
    (pets / ".DS_Store").write_bytes(b"junk")
    arguments = ["--data", "pets", "--epochs", "1", "--device", "cpu"]
    assert train.main(arguments) == 0
    assert "Note: skipped 1 hidden: .DS_Store\n" in (said := capsys.readouterr().out)
    assert re.search(r"Results: runs/pets-capsnet-small-\d+-\d+/ ", said)


def test_show_counts_classes_and_draws_samples(pets, tmp_path, capsys):
    (pets / "cat/Thumbs.db").write_bytes(b"junk")
    (pets / "eel").rename(pets / "a rather long name")
    assert command.main(["pets"]) == 0
    said = capsys.readouterr().out
    assert "Note: skipped 1 hidden: cat/Thumbs.db" in said
    assert "pets: 12 training and 3 test images" in said
    assert "3 channel(s), 28 pixels high, 30 wide" in said
    assert re.search(r"^a rather long name +5 +1$", said, re.MULTILINE)
    picture = np.asarray(Image.open(tmp_path / "pets-samples.png"))
    assert picture[..., :3].std() > 20


def test_show_draws_large_and_grey_pictures(tmp_path, capsys):
    bright = np.full((12, 200, 300), 250, np.uint8)
    npz(tmp_path / "a.npz", images=bright, labels=np.arange(12) % 3)
    assert command.main(["a.npz", "--out", "b.png", "--seed", "2"]) == 0
    assert "(pictures, height, width), pixels 250 to 250, divided by 255" in capsys.readouterr().out
    picture = np.asarray(Image.open(tmp_path / "b.png"))[..., 0]
    assert (picture == 250).sum() > 10_000  # light is light
    assert command.main(["a.npz", "--size", "20x30"]) == 0
    assert "20 pixels high, 30 wide" in capsys.readouterr().out


def test_show_refuses(pets, capsys, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        command.main(["petz"])
    assert stopped.value.code == 2
    assert "'petz' is not there, and no name: choose from list, fetch" in capsys.readouterr().err
    monkeypatch.chdir(pets)
    assert command.main(["."]) == 1
    assert "pets-samples.png would lie in the data" in capsys.readouterr().err
    (pets / "cat/0.png").write_bytes(b"")
    assert command.main(["../pets", "--out", "../x.png"]) == 1
    assert "cat/0.png is empty" in capsys.readouterr().err
