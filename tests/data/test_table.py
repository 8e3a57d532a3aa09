"""Test custom data with a table of labels, and labels of zeros and ones."""

import json

import numpy as np
import pytest
from evaluations import measured
from own_files import SIZE, noise
from PIL import Image
from tiny_runs import edit, go_on, run, saved, summary

from minicaps.data import __main__ as command
from minicaps.data import load, own
from minicaps.data.images import Target
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


def test_classes_that_always_occur_together_leave_images_for_training(tmp_path):
    data = load(save(tmp_path / "x.npz", np.ones((4, 4)), n=4))
    assert (len(data.train), len(data.test)) == (3, 1)
    assert [len(part) for part in data.cut_validation()] == [2, 1]


def test_many_classes_do_not_take_most_images_for_testing(tmp_path):
    labels = np.random.default_rng(0).random((100, 80)) < 0.5
    data = load(save(tmp_path / "x.npz", labels, n=100))
    assert len(data.test) <= 50


def test_one_image_per_class_is_too_few(tmp_path):
    with pytest.raises(DataError, match="has 1 image, but at least 3 are needed"):
        load(save(tmp_path / "x.npz", np.eye(4), n=4))


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


# ---- one class per image


@pytest.fixture
def shelf(tmp_path):
    """Create 20 images of three classes, in folders that do not tell the class."""
    names = [f"{'ab'[k % 2]}/{k}.png" for k in range(20)]
    pictures(tmp_path, names)
    return tmp_path, names


OBJECTS = ("spoon", "cup", "plate")


@pytest.mark.parametrize("file", sorted(table.FILE))
@pytest.mark.parametrize("label", sorted(table.LABEL))
def test_a_table_may_name_the_class_of_each_image(shelf, file, label):
    root, names = shelf
    lines = [f"{name},{OBJECTS[k % 3]}" for k, name in enumerate(names)]
    write(root, lines, f"{file.title()},{label}\n")
    data = load(str(root))
    assert not data.multi and data.class_names == ("cup", "plate", "spoon")
    assert len(data.train) + len(data.test) == 20
    for split in (data.train, data.test):
        for image, k, name in zip(split.images, split.labels, split.names, strict=True):
            number = int(name[2:-4])
            assert data.class_names[k] == OBJECTS[number % 3]
            assert image[0, 0, 0] == np.float32(100 + number) / np.float32(255)


def test_classes_of_a_table_may_be_numbers(shelf):
    root, names = shelf
    write(root, [f"{k % 2 + 9},{name}" for k, name in enumerate(names)], "label,file\n")
    assert load(str(root)).class_names == ("9", "10")
    write(root, [f"{name},{k % 2}" for k, name in enumerate(names)], "file,label\n")
    data = load(str(root))
    assert not data.multi and data.class_names == ("0", "1")


def test_a_table_may_define_the_split(shelf):
    root, names = shelf
    parts = ["train"] * 12 + ["val"] * 3 + ["Test"] * 5
    lines = [f"{n},{OBJECTS[k % 3]},{parts[k]}" for k, n in enumerate(names)]
    write(root, lines, "file,label,split\n")
    data = load(str(root))
    assert data.train.names.tolist() == names[:12]
    assert data.validation.names.tolist() == names[12:15]
    assert data.test.names.tolist() == names[15:]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a/0.png,", "b/1.png,cup"], "line 2 of .* has no label: write the name of a class"),
        (["a/0.png,cup,more"], "line 2 of .* has 3 fields, but the header has 2"),
        (
            ["a/0.png,", "b/1.png"],
            r"has 2 faulty lines:\n    line 2 .* no label.*\n    line 3 .* has 1",
        ),
    ],
)
def test_faulty_lines_of_a_single_label_table_are_named(shelf, lines, message):
    write(shelf[0], lines, "file,label\n")
    with pytest.raises(DataError, match=message):
        load(str(shelf[0]))


def test_faulty_splits_are_named(shelf):
    root, names = shelf
    write(root, [f"{name},cup,dev" for name in names], "file,label,split\n")
    with pytest.raises(DataError, match=r"has 20 faulty lines:\n.* split 'dev': write train"):
        load(str(root))
    lines = [f"{n},{OBJECTS[k % 3]},{'test' if k % 3 else 'train'}" for k, n in enumerate(names)]
    write(root, lines, "file,label,split\n")
    with pytest.raises(DataError, match="lacks training images of the classes cup, plate"):
        load(str(root))
    write(root, [line.replace("train", "test") for line in lines], "file,label,split\n")
    with pytest.raises(DataError, match="has no training images"):
        load(str(root))


def test_a_table_with_one_class_per_image_fits_a_network(shelf):
    """Its classes are matched by name, and need not all occur."""
    root, names = shelf
    write(root, [f"{name},{OBJECTS[k % 2]}" for k, name in enumerate(names)], "file,label\n")
    found = own.read(root, Target((4, 6), 1, classes=("plate", "spoon", "cup")))
    assert found.parts["all"].labels.tolist() == [1, 2] * 10
    with pytest.raises(
        DataError, match=r"has the classes 'spoon', but the network knows cup, plat"
    ):
        own.read(root, Target((4, 6), 1, classes=("cup", "plate")))


# ---- labels of zeros and ones with a single 1


ONE_HOT = np.eye(3, dtype=np.uint8)[np.arange(20) % 3]


def test_one_hot_labels_are_single_label(tmp_path):
    data = load(save(tmp_path / "x.npz", ONE_HOT, class_names=["a", "b", "c"]))
    assert not data.multi and data.class_names == ("a", "b", "c")
    for split in (data.train, data.test):
        assert split.labels.tolist() == (split.names % 3).tolist()
    assert data.notes[-1] == (
        "every image has exactly one class, so the data is single-label; give --multi-label to"
        " treat it as multi-label"
    )


def test_one_hot_labels_are_multi_label_on_request(tmp_path):
    data = load(save(tmp_path / "x.npz", ONE_HOT), multi_label=True)
    assert data.multi and not any("single-label" in note for note in data.notes)
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.labels, ONE_HOT[split.names])


def test_one_row_more_makes_labels_multi_label(tmp_path):
    for row in ([1, 1, 0], [0, 0, 0]):
        assert load(save(tmp_path / "x.npz", [*ONE_HOT[1:], row])).multi


def test_a_one_hot_table_is_single_label(tmp_path):
    names = [f"{k}.png" for k in range(12)]
    pictures(tmp_path, names)
    write(tmp_path, [f"{n},{int(k % 3 == 0)},{int(k % 3 == 1)},0" for k, n in enumerate(names)])
    with pytest.raises(DataError, match=r"no image of class 2 \(plate\)"):
        load(str(tmp_path))
    rows = np.eye(3, dtype=int)[np.arange(12) % 3]
    write(tmp_path, [",".join([n, *map(str, row)]) for n, row in zip(names, rows, strict=True)])
    data = load(str(tmp_path))
    assert not data.multi and data.class_names == ("cup", "spoon", "plate")
    for name, label in zip(data.train.names, data.train.labels, strict=True):
        assert label == int(name[:-4]) % 3
    assert load(str(tmp_path), multi_label=True).multi


def test_one_class_per_image_is_never_multi_label(tmp_path, capsys):
    path = save(tmp_path / "x.npz", np.arange(20) % 3)
    with pytest.raises(ValueError, match="a single class for each image: leave --multi-label out"):
        load(path, multi_label=True)
    with pytest.raises(SystemExit):
        command.main([path, "--multi-label"])
    assert "leave --multi-label out" in capsys.readouterr().err


def large(path, labels):
    np.savez(path, images=noise(0, len(labels), *SIZE), labels=labels)
    return str(path)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("multi", [False, True])
def test_a_run_keeps_to_its_kind_of_labels(tmp_path, multi):
    large(tmp_path / "x.npz", ONE_HOT)
    option = ["--multi-label"] if multi else []
    folder = run("--data", "x.npz", "--limit", "14", *option)
    assert saved(folder)[1]["preprocessing"]["multi"] is multi
    go_on(folder, "--epochs", "2")
    assert measured(folder)["right"] == summary(folder)["test_right"]
    large(tmp_path / "y.npz", ONE_HOT[:5])
    found = measured(folder, "--data", "y.npz")
    assert found["samples"] == 5 and ("confusion" not in found) is multi


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("count", [[], ["--seeds", "2"]])
def test_old_runs_on_one_hot_labels_stay_multi_label(tmp_path, count):
    """They have no option `multi_label`, but the checkpoint knows."""
    large(tmp_path / "x.npz", ONE_HOT)
    folder = run("--data", "x.npz", "--limit", "14", "--multi-label", *count)
    seeds = sorted(folder.glob("seed-*")) or [folder]
    for path in seeds:
        for name in ("best.npz", "last.npz"):
            edit(path / name, lambda meta: meta["options"].pop("multi_label"))
    if count:
        config = json.loads((folder / "config.json").read_text())
        del config["options"]["multi_label"]
        (folder / "config.json").write_text(json.dumps(config))
    before = measured(seeds[0])
    assert "confusion" not in before
    go_on(folder, "--epochs", "2", *(["--seeds", "3"] if count else []))
    assert all(saved(path)[1]["preprocessing"]["multi"] for path in folder.glob("**/seed-*"))
    assert saved(seeds[0])[1]["options"]["multi_label"] is True
