"""Test custom data in arrays, .npz or IDX files: correct reading, and errors."""

import shutil
import zipfile

import numpy as np
import pytest
from idx_files import FILES, arrays_of, idx_bytes, zipped
from own_files import all_of, grey_arrays, noise, npz, refusal

from minicaps.data import load
from minicaps.data.images import Target
from minicaps.data.own import read
from minicaps.errors import DataError

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
        ((12, 3, 28, 3), lambda a: a),  # ambiguous: the second axis holds the channels
    ],
)
def test_the_axis_of_size_1_or_3_has_the_channels(tmp_path, shape, move):
    images = noise(0, *shape)
    found = read(npz(tmp_path / "a.npz", images=images, labels=np.arange(12) % 3))
    whole, notes = found.parts["all"], found.notes
    np.testing.assert_allclose(whole.images, move(images) / 255, rtol=1e-6)
    axes = {(1,): "channels, height, width)", (3,): "height, width, channels)"}
    where = tuple(k for k in (1, 3) if len(shape) == 4 and shape[k] in (1, 3))[:1]
    assert axes.get(where, "(images, height, width)") in notes[0]


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
    "few bits in floats": (np.array([0, 4, 16, 1.0]), 16),
    "few bits in whole numbers": (np.array([0, 4, 15, 1], np.uint8), 15),
    "resized few bits": (np.array([0, 4, 15.5, 1.25], np.float32), 15.5),
    "resized bytes": (np.array([0, 51, 250.5, 1.25]), 255),
    "12 bits in floats": (np.array([0, 51, 4000, 1.0]), 4000),
    "rounded floats": (np.array([-1e-7, 1 + 1e-7, 0.5, 0]), 1),
}


def pixels(numbers):
    """Make 12 images of 2×2 pixels that all have these four values."""
    return {"images": np.tile(numbers.reshape(1, 2, 2), (12, 1, 1)), "labels": np.arange(12) % 3}


@pytest.mark.parametrize("name", PLAIN)
def test_pixels_with_a_plain_meaning_are_scaled(tmp_path, name):
    numbers, white = PLAIN[name]
    found = read(npz(tmp_path / "a.npz", **pixels(numbers)))
    whole, notes = found.parts["all"], found.notes
    assert whole.images.dtype == np.float32
    np.testing.assert_allclose(whole.images[3].ravel(), numbers / white, atol=1e-6)
    assert whole.images.min() >= 0 and whole.images.max() <= 1
    assert ("0 is black, 1 is white" if white == 1 else f"divided by {white}") in notes[0]


def test_negative_pixels_are_scaled_by_their_range(tmp_path):
    found = read(npz(tmp_path / "a.npz", **pixels(np.array([-1, 1, 0, 0.5]))))
    whole, notes = found.parts["all"], found.notes
    np.testing.assert_allclose(whole.images[3].ravel(), [0, 1, 0.5, 0.75])
    assert whole.scale == (-1, 1) and "pixels -1 to 1, scaled from -1 to 1" in notes[0]


@pytest.mark.parametrize("factor", [1e-30, 0.01, 1e30, 1e300])
def test_floats_of_any_size_are_scaled_to_the_same_images(tmp_path, factor):
    found = read(npz(tmp_path / "a.npz", **pixels(factor * np.array([0, 1, 0.5, 0.25]))))
    whole = found.parts["all"]
    np.testing.assert_allclose(whole.images[3].ravel(), [0, 1, 0.5, 0.25], rtol=1e-6)
    assert whole.scale == (0, pytest.approx(factor))


def test_a_range_beyond_floating_point_is_refused(tmp_path):
    path = npz(tmp_path / "a.npz", **pixels(1.7e308 * np.array([-1, 1, 0, 0.5])))
    with pytest.raises(DataError, match="the range exceeds floating-point numbers"):
        read(path)


def test_other_arrays_are_scaled_like_those_of_training(tmp_path):
    def scaled(numbers, scale, **options):
        target = Target(classes=("0", "1", "2"), scale=scale, **options)
        found = read(npz(tmp_path / "a.npz", **pixels(np.array(numbers))), target)
        whole, notes = found.parts["all"], found.notes
        assert ("as in training" in notes[0]) == (scale is not None and whole.scale == scale)
        return whole.images[3].ravel().tolist()

    assert scaled([0, 15.0, 8, 4], (0, 16)) == [0, 0.9375, 0.5, 0.25]
    assert scaled(np.array([0, 15, 8, 4], np.uint8), (0, 16)) == [0, 0.9375, 0.5, 0.25]
    assert scaled([0, 17.0, 8, 4], (0, 16)) == [0, 1, 0.5, 0.25]
    assert scaled([-1.5, 1, 0, 0.5], (-2.0, 2.0)) == [0.125, 0.75, 0.5, 0.625]
    assert scaled(np.array([0, 30, 51, 0], np.uint8), (0, 255)) == pytest.approx(
        [0, 2 / 17, 0.2, 0]
    )
    # not in the range of training
    assert scaled([0, 0.5, 1, 0.25], (0, 16)) == [0, 0.5, 1, 0.25]
    assert scaled([0, 255.0, 51, 0], (0, 16)) == pytest.approx([0, 1, 0.2, 0])
    assert scaled([0, 8.0, 16, 4], None, older=True) == pytest.approx(np.array([0, 8, 16, 4]) / 255)
    with pytest.raises(DataError, match=r"pixels from 0 to 2\.5"):
        scaled([0, 2.5, 1, 1], None, older=True)


@pytest.mark.parametrize(
    ("numbers", "seen"),
    [
        (np.array([0, 4095, 3, 1], np.uint16), "uint16 pixels from 0 to 4095"),
        (np.array([0, 65536, 3, 1], np.int64), "int64 pixels from 0 to 65536"),
        (np.array([0, -3, 3, 100], np.int8), "int8 pixels from -3 to 100"),
        (np.zeros(4, np.uint8), "uint8 pixels from 0 to 0"),
        (np.array([-0.0, -0.0, 0.0, 0]), "float64 pixels from 0 to 0"),
        (np.full(4, -2.5), "float64 pixels from -2.5 to -2.5"),
        (np.array([0, np.nan, 0, 1]), "have the pixel value nan in image 0"),
        (np.array([0, np.inf, 0, 1]), "have the pixel value inf in image 0"),
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
        (np.arange(12) % 3 - 1, "have -1 at index 0, but class numbers are 0, 1, 2, … (4 of 12"),
        (np.arange(12) % 3 + 0.5, "have 0.5 at index 0"),
        (np.where(np.arange(12) == 5, np.nan, 0), "have nan at index 5"),
        (np.arange(12) % 3 + 1, "has no image of class 0, but labels up to 3"),
        (np.arange(12) % 3 * 2, "has no image of class 1, but labels up to 4"),
        (np.where(np.arange(12) == 5, np.inf, 0), "have inf at index 5"),
        (np.full(12, 1e300), "have 1e+300 at index 0"),
        (np.full(12, 2**64 - 1, np.uint64), "have 18446744073709551615 at index 0"),
        (np.full(12, 2**30), "has no image of class 0"),
        (np.zeros(12, int), "has only one class"),
        (np.arange(11) % 3, "have shape (11,), but there are 12 images"),
        (np.eye(3)[np.arange(12) % 3] * 2, "of shape (12, 3) are not all 0 or 1"),
        (np.array(["cat", "dog", ""] * 4), "has an empty label: give each image the name"),
        (np.array([["cat", "dog"]] * 12), "of shape (12, 2) are not all 0 or 1"),
        (np.array(["cat"] * 12), "has only one class"),
        (np.array(["cat", "dog", "e\x1b[2J"] * 4), "a class named 'e\\x1b[2J'"),
    ],
)
def test_wrong_labels_are_refused(tmp_path, labels, said):
    assert said in refusal(npz(tmp_path / "a.npz", images=noise(0, 12, 4, 4), labels=labels))


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
def test_labels_may_be_names(tmp_path, shape):
    labels = np.array(["eel", "cat", "dög"] * 4).reshape(shape)
    arrays = {"images": noise(0, 12, 4, 4), "labels": labels}
    found = read(npz(tmp_path / "a.npz", **arrays))
    assert found.class_names == ("cat", "dög", "eel")
    assert found.parts["all"].labels.tolist() == [2, 0, 1] * 4
    assert found.parts["all"].labels.dtype == np.int64
    stored = arrays | {"labels": np.char.encode(labels, "utf-8")}
    again = read(npz(tmp_path / "b.npz", **stored))
    assert again.class_names == found.class_names
    ordered = read(npz(tmp_path / "c.npz", **arrays, class_names=["dög", "eel", "cat"]))
    assert ordered.class_names == ("dög", "eel", "cat")
    assert ordered.parts["all"].labels.tolist() == [1, 2, 0] * 4
    said = refusal(npz(tmp_path / "d.npz", **arrays, class_names=["cat", "eel"]))
    assert "has the label 'dög', which is not one of class_names" in said


def test_names_that_are_numbers_are_sorted_by_value(tmp_path):
    labels = np.array(["10", "9", "2"] * 4)
    found = read(npz(tmp_path / "a.npz", images=noise(0, 12, 4, 4), labels=labels))
    assert found.class_names == ("2", "9", "10")


def test_names_are_matched_to_those_of_a_network(tmp_path):
    path = npz(tmp_path / "a.npz", images=noise(0, 2, 4, 4), labels=np.array(["eel", "cat"]))
    found = read(path, Target((4, 4), 1, classes=("dog", "cat", "eel")))
    assert found.parts["all"].labels.tolist() == [2, 1]
    with pytest.raises(DataError, match="has the classes 'eel', but the network knows cat"):
        read(path, Target((4, 4), 1, classes=("cat", "dog")))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("shape", [(12,), (12, 1)])
def test_whole_numbers_of_any_kind_are_labels(tmp_path, kind, shape):
    labels = (np.arange(12) % 3).astype(kind).reshape(shape)
    whole = read(npz(tmp_path / "a.npz", images=noise(0, 12, 4, 4), labels=labels)).parts["all"]
    assert whole.labels.tolist() == [0, 1, 2] * 4


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "b"], "labels up to 2 and the class names a, b"),
        (["a", "b", "a"], "expected a distinct name for each class"),
        (["a", "b", "c", "d"], "has no image of class 3 (d)"),
        ([0, 1, 2], "expected a 1-D array of text"),
        (["a", "b", "c\x07"], "a class named"),
    ],
)
def test_wrong_class_names_are_refused(tmp_path, names, said):
    assert said in refusal(npz(tmp_path / "a.npz", **grey_arrays(), class_names=names))


def test_wrong_keys_and_shapes_are_refused(tmp_path):
    images, labels = grey_arrays().values()
    said = refusal(npz(tmp_path / "a.npz", x=images, y=labels))
    assert "contains no images and no labels, only x, y" in said and "np.savez" in said
    assert "contains no labels, only images" in refusal(npz(tmp_path / "b.npz", images=images))
    for wrong in (
        images[0],
        images.reshape(12, -1),
        images[..., None, None],
        images[:, None, None],
    ):
        said = refusal(npz(tmp_path / "c.npz", images=wrong, labels=labels))
        assert "shape" in said
    said = refusal(npz(tmp_path / "d.npz", images=noise(0, 12, 8, 8, 4), labels=labels))
    assert "last axis with 1 or 3 channels" in said
    said = refusal(npz(tmp_path / "e.npz", images=images[:0], labels=labels[:0]))
    assert "are empty: their shape" in said
    more = npz(tmp_path / "f.npz", images=images, labels=labels, poses=labels)
    assert f"unused arrays in {more}: poses" in load(more).notes


def test_members_that_are_no_arrays_are_refused(tmp_path):
    path = npz(tmp_path / "a.npz", images=noise(0, 12, 4, 4))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("labels", b"0 1 2")
    assert "contains labels, which is not an array: save the file with np.savez" in refusal(path)


def test_names_of_arrays_cannot_control_the_terminal(tmp_path):
    arrays = grey_arrays() | {"x\x1b[2J\ny": np.zeros(3)}
    note, _ = load(npz(tmp_path / "a.npz", **arrays)).notes
    assert note.endswith(r"x\x1b[2J\ny")


class Trap:
    """Object that writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["images", "labels", "class_names", "other"])
def test_objects_are_never_unpickled(tmp_path, name):
    objects = np.array([Trap(tmp_path / "sprung")] * 3, dtype=object)
    path = tmp_path / "a.npz"
    np.savez(path, allow_pickle=True, **grey_arrays() | {name: objects})
    assert f"{path} contains Python objects as {name}, which are not loaded" in refusal(path)
    assert not (tmp_path / "sprung").exists()


def test_faulty_files_are_refused(tmp_path):
    path = npz(tmp_path / "a.npz", **grey_arrays())
    content = path.read_bytes()
    for wrong in (b"", b"text", content[:-100], content[:100], content.replace(b"NUMPY", b"NUMPX")):
        path.write_bytes(wrong)
        assert "is not a valid .npz file" in refusal(path)
    np.save(tmp_path / "b.npy", np.zeros(3))
    (tmp_path / "b.npy").rename(path)
    assert "is not a valid .npz file" in refusal(path)
    (tmp_path / "c.csv").write_text("1,2\n")
    assert "c.csv is not a data set: expected a folder with one subfolder per" in refusal(
        tmp_path / "c.csv"
    )


@pytest.mark.slow
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
    assert data.notes[0] == "skipped 1 hidden entry: .DS_Store"


def test_incomplete_idx_files_are_refused(idx):
    folder, _ = idx()
    (folder / FILES[3]).unlink()
    assert f"{folder} has no IDX file with test labels" in refusal(folder)
    folder, _ = idx()
    (folder / "readme.txt").write_text("mine")
    assert "contains an unexpected file, readme.txt" in refusal(folder)
    folder, _ = idx()
    (folder / f"letters-{FILES[0]}").write_bytes((folder / FILES[0]).read_bytes())
    assert "contains an unexpected file" in refusal(folder)
    folder, _ = idx(_3=np.full(7, 3))
    assert f"{FILES[3]} has label 3, but the training labels are 0 to 2" in refusal(folder)
    folder, _ = idx(_2=noise(0, 7, 5, 5))
    assert "differ in shape: training (1, 4, 5), test (1, 5, 5)" in refusal(folder)
    folder, _ = idx(_1=np.arange(19) % 3)
    assert f"labels in {folder / FILES[1]} have shape (19,), but there are 20 images" in refusal(
        folder
    )
    (folder / FILES[0]).write_bytes(b"nothing")
    assert "is not an IDX file" in refusal(folder)
