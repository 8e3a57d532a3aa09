"""Test multi-label custom data: a table of labels, or labels of zeros and ones."""

import numpy as np
import pytest
from PIL import Image

from minicaps.data import load, own
from minicaps.data.own import table
from minicaps.errors import DataError

HEADER = "file,cup,spoon,plate\n"


def write(root, lines, header=HEADER, encoding="utf-8"):
    (root / "labels.csv").write_text(header + "".join(f"{line}\n" for line in lines), encoding)


def pictures(root, names):
    for k, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (6, 4), 100 + k).save(root / name)


@pytest.fixture
def kitchen(tmp_path):
    """Create 20 images in two folders, with 0 to 3 classes each; one in ten shows a plate."""
    names = [f"{'ab'[k % 2]}/{k}.png" for k in range(30)]
    pictures(tmp_path, names)
    write(tmp_path, [f"{n},{k % 2},{k // 2 % 2},{int(k % 10 == 0)}" for k, n in enumerate(names)])
    return tmp_path


def test_each_picture_has_the_labels_of_its_line(kitchen):
    data = load(str(kitchen))
    assert data.multi and data.class_names == ("cup", "spoon", "plate")
    assert (len(data.train), len(data.test)) == (24, 6)
    for split in (data.train, data.test):
        assert split.labels.dtype == np.uint8
        for image, row, name in zip(split.images, split.labels, split.names, strict=True):
            k = int(name[2:-4])
            assert row.tolist() == [k % 2, k // 2 % 2, k % 10 == 0]
            assert image[0, 0, 0] == np.float32(100 + k) / np.float32(255)
    assert any(not row.any() for row in data.train.labels)


def test_a_rare_class_is_in_every_part(kitchen):
    for seed in range(10):
        data = load(str(kitchen), seed=seed)
        rest, validation = data.cut_validation(5, seed)
        for part in (rest, validation, data.test):
            assert part.labels[:, 2].sum() == 1


def test_a_limit_keeps_some_of_each_class(kitchen):
    train = load(str(kitchen), limit=5).train
    assert len(train) == 5 and train.labels.any(axis=0).all()


def test_a_class_that_validation_would_take_away_is_named(tmp_path):
    names = [f"{k}.png" for k in range(12)]
    pictures(tmp_path, names)
    write(tmp_path, [f"{n},1,{k % 2},{int(k < 3)}" for k, n in enumerate(names)])
    with pytest.raises(ValueError, match="no training image of class 'plate'"):
        load(str(tmp_path)).cut_validation(0.8)


def test_what_excel_writes_is_read(kitchen):
    text = (kitchen / "labels.csv").read_text()
    (kitchen / "labels.csv").write_bytes(
        text.replace("\n", "\r\n").replace("a/", "a\\").encode("utf-8-sig") + b",,,\r\n\r\n"
    )
    assert len(own.read(kitchen).parts["all"]) == 30


FAULTY = [
    (["a/0.png,1,0,0", "a/0.png,0,1,0"], "line 3 of .* repeats a/0.png from line 2"),
    (["a/0.png,1,0"], "line 2 of .* has 3 fields, but the header has 4"),
    (["a/0.png,1,0,yes"], "line 2 of .* has 'yes' for a class: write 1"),
    (["a/0.png,1,,0"], "line 2 of .* has '' for a class"),
    (["a/0.png,1,0,2"], "line 2 of .* has '2'"),
    ([], "lists no images"),
]


@pytest.mark.parametrize(("lines", "message"), FAULTY)
def test_faulty_lines_are_named(tmp_path, lines, message):
    write(tmp_path, lines)
    with pytest.raises(DataError, match=message):
        table.read_table(tmp_path / "labels.csv")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "it is empty"),
        ("a/0.png,1,0,1\n", "has no header .*'a/0.png,1,0,1'"),
        ("file;cup;spoon\n", "separated by commas"),
        ("file\n", "has no header"),
        ("file,cup,cup\n", "a distinct, non-empty name"),
        ("file,cup,\n", "a distinct, non-empty name"),
    ],
)
def test_faulty_headers(tmp_path, header, message):
    write(tmp_path, [], header)
    with pytest.raises(DataError, match=message):
        table.read_table(tmp_path / "labels.csv")


def test_a_table_in_another_encoding(tmp_path):
    write(tmp_path, ["ä.png,1,0,0"], encoding="latin-1")
    with pytest.raises(DataError, match="save it as CSV UTF-8"):
        table.read_table(tmp_path / "labels.csv")


def test_a_table_that_cannot_be_read(tmp_path):
    (tmp_path / "labels.csv").mkdir()
    with pytest.raises(DataError, match=r"cannot read .*labels\.csv"):
        load(str(tmp_path))


def test_files_that_are_missing_or_have_no_line_are_named(kitchen):
    (kitchen / "a/0.png").unlink()
    with pytest.raises(DataError, match=r"lists missing files: a/0\.png"):
        load(str(kitchen))
    pictures(kitchen, ["a/0.png", "b/deep/new.png", "other.png"])
    with pytest.raises(DataError, match=r"has no line for: b/deep/new\.png, other\.png"):
        load(str(kitchen))


def test_a_class_without_pictures_and_a_single_class(tmp_path):
    names = [f"{k}.png" for k in range(9)]
    pictures(tmp_path, names)
    write(tmp_path, [f"{name},1,0,1" for name in names])
    with pytest.raises(DataError, match=r"no image of class 1 \(spoon\)"):
        load(str(tmp_path))
    write(tmp_path, [f"{name},1" for name in names], "file,cup\n")
    with pytest.raises(DataError, match="only one class"):
        load(str(tmp_path))


# ---- arrays


def save(path, labels, n=20, **arrays):
    np.savez(path, images=np.linspace(0, 1, n * 20).reshape(n, 4, 5), labels=labels, **arrays)
    return str(path)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32])
def test_an_npz_with_zeros_and_ones(tmp_path, dtype):
    labels = np.random.default_rng(0).integers(0, 2, (20, 3))
    data = load(save(tmp_path / "x.npz", labels.astype(dtype), class_names=["a", "b", "c"]))
    assert data.multi and data.class_names == ("a", "b", "c")
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.labels, labels[split.names])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((20, 3), 2), "not all 0 or 1"),
        (np.full((20, 3), np.nan), "not all 0 or 1"),
        (np.full((20, 3), "1"), "not all 0 or 1"),
        (np.ones((19, 3)), "19 rows, but there are 20 images"),
        (np.ones((20, 3)) * [1, 0, 1], "no image of class 1"),
    ],
)
def test_faulty_zeros_and_ones(tmp_path, labels, message):
    with pytest.raises(DataError, match=message):
        load(save(tmp_path / "x.npz", labels))
