"""Test `python -m minicaps.data` as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from commands import ROOT, run_data
from idx_files import FILES, Tiny, arrays_of, idx_bytes, isolate
from own_files import crosses_and_rings

from minicaps.data import __main__ as command
from minicaps.data import load
from minicaps.data.images import read_picture


@pytest.mark.slow
def test_strokes(tmp_path):
    done = run_data(tmp_path, "strokes")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "10,000 training and 2,000 test images" in done.stdout
    assert re.search(r"^7 +1,000 +200$", done.stdout, re.MULTILINE)
    assert re.search(r"^rotation +-2[45]\.\d\d .* 2[45]\.\d\d$", done.stdout, re.MULTILINE)
    linear, nearest = (
        float(share) for share in re.findall(r"([\d.]+)%$", done.stdout, re.MULTILINE)
    )
    assert 50 < linear <= 85
    assert 80 < nearest <= 93
    picture = matplotlib.image.imread(tmp_path / "strokes.png")
    assert min(picture.shape[:2]) > 500
    assert picture[..., :3].std() > 0.05


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "COMMAND"),
        (["mnits"], "fashion-mnist"),
        (["fetch", "strokes"], "choose from"),
        (["strokes", "--seed", "-1"], "must be a whole number of at least 0, not '-1'"),
        (["strokes", "--out", "picture.doc"], "must be a .png file, got 'picture.doc'"),
        (["strokes", "--data-dir", "."], "unrecognized arguments"),
        (["export", "strokes", "to", "--data-dir", "."], "strokes, which is drawn, not read"),
    ],
)
def test_bad_usage(capsys, arguments, said):
    with pytest.raises(SystemExit) as exit:
        command.main(arguments)
    assert exit.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_missing_data_is_one_message_and_no_traceback(tmp_path):
    # Not fashion-mnist, which exists if the Debian package is installed
    done = run_data(tmp_path, "fetch", "mnist")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("minicaps.data: mnist was not found")
    assert str(tmp_path / "cache") in done.stderr


def test_help_names_every_data_set(capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(["--help"])
    assert exit.value.code == 0
    shown = capsys.readouterr().out
    assert all(
        word in shown
        for word in ("list", "fetch", "strokes", "mnist", "fashion-mnist", "MINICAPS_DATA")
    )


# ---- in this process, with tiny files under the names of the real ones


@pytest.fixture
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return isolate(monkeypatch, tmp_path)


def test_list_says_what_is_where(here, monkeypatch, capsys):
    Tiny(monkeypatch, "mnist", arrays_of(0)).write(here / "told")
    fashion = Tiny(monkeypatch, "fashion-mnist", arrays_of(1))
    assert command.main(["list"]) == 0
    strokes, mnist, _ = capsys.readouterr().out.splitlines()
    assert re.match(r"strokes +10,000 \+ +2,000", strokes)
    assert re.match(r"mnist +20 \+ +7 +not found, 4 of 4 files missing: .* fetch mnist", mnist)

    assert command.main(["list", "--data-dir", "told"]) == 0
    assert re.search(r"^mnist .* in told$", capsys.readouterr().out, re.MULTILINE)

    fashion.write(here / "cache" / "fashion-mnist")
    (here / "cache" / "fashion-mnist" / f"{FILES[0]}.gz").unlink()
    command.main(["list"])
    assert re.search(
        r"fashion-mnist .* in \S*cache\S*, 1 of 4 files missing", capsys.readouterr().out
    )


def test_list_is_not_deceived_by_files_of_the_same_name(here, monkeypatch, capsys):
    Tiny(monkeypatch, "mnist", arrays_of(0)).write(here / "told")
    Tiny(monkeypatch, "fashion-mnist", arrays_of(1))
    assert command.main(["list", "--data-dir", "told"]) == 0
    _, mnist, fashion = capsys.readouterr().out.splitlines()
    assert mnist.endswith("in told") and "not found, 4 of 4 files missing" in fashion


def test_fetch_checks_the_files(here, monkeypatch, capsys):
    Tiny(monkeypatch, "mnist", arrays_of(0)).write(here / "told")
    assert command.main(["fetch", "mnist", "--data-dir", "told"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"told/{file}.gz: checked" for file in FILES]
    (here / "told" / f"{FILES[3]}.gz").write_bytes(idx_bytes(np.zeros(7, dtype=np.uint8)))
    assert command.main(["fetch", "mnist", "--data-dir", "told"]) == 1
    assert f"told/{FILES[3]}.gz is not the file of mnist" in capsys.readouterr().err


def test_show_counts_classes_and_writes_a_picture(here, monkeypatch, capsys):
    arrays = arrays_of(0) | {FILES[1]: np.repeat(np.arange(5, dtype=np.uint8), 4)}
    Tiny(monkeypatch, "mnist", arrays).write(here / "told")
    assert command.main(["mnist", "--data-dir", "told", "--out", "told/sheet.png"]) == 0
    shown = capsys.readouterr().out
    assert "20 training and 7 test images" in shown
    assert "4 pixels high, 5 wide" in shown
    assert re.search(r"^3 +4 +\d$", shown, re.MULTILINE)
    assert re.search(r"^9 +0 +\d$", shown, re.MULTILINE)  # a class without images
    assert matplotlib.image.imread("told/sheet.png").size


def several(folder):
    """Write 30 images, image k with gray level k/30; classes "low" (k < 20), "even" and "all"."""
    k = np.arange(30)
    labels = np.stack([k < 20, k % 2 == 0, k >= 0], axis=1).astype(np.uint8)
    images = np.broadcast_to(k[:, None, None] / 30, (30, 8, 8))
    names = np.array(["low", "even", "all"])
    np.savez(folder / "several.npz", images=images, labels=labels, class_names=names)
    return labels


def test_pictures_of_several_classes_count_for_each(here, capsys):
    labels = several(here)
    assert command.main(["several.npz"]) == 0
    said = capsys.readouterr().out
    rows = [re.search(rf"^{name} +(\d+) +(\d+)$", said, re.M) for name in ("low", "even", "all")]
    counts = np.array([[int(row[1]), int(row[2])] for row in rows])
    assert counts.sum(axis=1).tolist() == labels.sum(axis=0).tolist() == [20, 15, 30]
    assert counts[2].tolist() == [24, 6]
    assert Path("several-samples.png").is_file()


def test_dark_drawings_are_inverted_unless_told(here, capsys):
    images, labels = crosses_and_rings(20)
    np.savez("paper.npz", images=images, labels=labels)
    for how, note in (
        ([], "all images are inverted, because they show dark ink"),
        (["--invert", "yes"], "all images are inverted\n"),
        (["--invert", "no"], ""),
    ):
        assert command.main(["paper.npz", *how]) == 0
        said = capsys.readouterr().out
        assert f"Note: {note}" in said or not note
        assert ("inverted" in said) == bool(note)


def test_exported_pictures_of_a_given_size(here, capsys):
    assert command.main(["export", "strokes", "to", "--size", "20x30"]) == 0
    assert {read_picture(path).shape for path in Path("to").iterdir()} == {(1, 20, 30)}


def test_a_long_name_of_a_figure_is_a_sentence(here, capsys):
    several(here)
    assert command.main(["several.npz", "--out", "x" * 300 + ".png"]) == 1
    assert "png: File name too long; choose another --out" in capsys.readouterr().err


def test_the_exported_picture_has_the_class_of_its_name(here, capsys):
    labels = several(here)
    assert command.main(["export", "several.npz", "to"]) == 0
    assert "3 test images, one of each class" in capsys.readouterr().out
    test = load("several.npz").test
    for column, name in enumerate(("low", "even", "all")):
        grey = matplotlib.image.imread(f"to/{name}.png").mean()
        first = next(k for k in test.names if labels[k, column])
        assert abs(grey - first / 30) < 1 / 255


def test_a_folder_that_cannot_be_written(here, capsys):
    several(here)
    Path("file").touch()
    assert command.main(["export", "several.npz", "file"]) == 1
    told = "cannot write file: a file exists where a folder is needed; choose another FOLDER"
    assert capsys.readouterr().err == f"minicaps.data: {told}\n"


@pytest.mark.parametrize("name", ["strokes", "mnist", "fashion-mnist", "several.npz"])
def test_a_place_that_cannot_be_written_is_told_before_any_work(name, here, monkeypatch, capsys):
    several(here)
    Path("file").touch()
    monkeypatch.setattr(command, "load", lambda *_, **__: pytest.fail("work was done"))
    for out, why in (
        ("file/a.png", "a file exists where a folder is needed"),
        ("taken.png", "it exists and is not a regular file"),
    ):
        Path("taken.png").mkdir(exist_ok=True)
        assert command.main([name, "--out", out]) == 1
        told = f"minicaps.data: cannot write {out}: {why}; choose another --out\n"
        assert capsys.readouterr().err == told


def test_the_folder_of_a_figure_is_created(here):
    several(here)
    assert command.main(["several.npz", "--out", "new/folder/a.png"]) == 0
    assert Path("new/folder/a.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written(here, monkeypatch, capsys):
    Tiny(monkeypatch, "mnist", arrays_of(0)).write(here / "told")

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "contact_sheet", full)
    assert command.main(["mnist", "--data-dir", "told"]) == 1
    assert (
        capsys.readouterr().err
        == "minicaps.data: cannot write mnist.png: No space left on device; choose another --out\n"
    )


def test_interrupted(here, monkeypatch, capsys):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "load", interrupt)
    assert command.main(["mnist"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_importing_the_data_sets_imports_only_numpy():
    code = """
import sys
import minicaps.data, minicaps.data.batches, minicaps.data.download
print([name for name in ("matplotlib", "pooch", "requests", "tqdm", "cupy") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_augmented_samples_are_shown_below_the_samples(here, capsys):
    """Each class then has two rows, and the images of a class of few fill the row."""
    random = np.random.default_rng(0)
    images = np.zeros((12, 20, 20), np.float32)
    images[:, 5:15, 5:15] = random.uniform(0.5, 1, (12, 10, 10))
    np.savez(here / "two.npz", images=images, labels=np.arange(12) % 2)
    assert command.main(["two.npz", "--out", "plain.png"]) == 0
    assert "below each row" not in capsys.readouterr().out
    options = ["--shift", "2", "--rotate", "15", "--zoom", "0.2", "--flip", "both"]
    assert command.main(["two.npz", "--out", "more.png", *options]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == (
        "below each row: its images as training with --shift 2 --rotate 15 --zoom 0.2 --flip both"
        " might see them"
    )
    plain, more = (matplotlib.image.imread(name) for name in ("plain.png", "more.png"))
    assert 1.7 < len(more) / len(plain) < 2
    lit = [(x[..., :3].min(axis=2) > 0.4) & (x[..., :3].max(axis=2) < 0.99) for x in (plain, more)]
    half = lit[0].shape[1] // 2
    assert not lit[0][:, half + 200 :].any() and lit[1][:, half + 200 :].any()


@pytest.mark.parametrize("name", ["strokes", "mnist", "two.npz"])
def test_a_shift_beyond_the_images_is_refused(here, monkeypatch, capsys, name):
    Tiny(monkeypatch, "mnist", arrays_of(0)).write(here / "told")
    images = np.random.default_rng(0).random((12, 20, 20))
    np.savez(here / "two.npz", images=images, labels=np.arange(12) % 2)
    folder = ["--data-dir", "told"] if name == "mnist" else []
    with pytest.raises(SystemExit):
        command.main([name, "--shift", "28", *folder])
    assert "pixels for these images, got 28" in capsys.readouterr().err
    assert not list(here.glob("*.png"))
