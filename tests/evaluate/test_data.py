"""Tests of `minicaps.evaluate` on custom data: the test set that was split off, and other data."""

import json
import shutil

import numpy as np
import pytest
from evaluations import folder_of, measured, predictions, refusal
from own_files import SIZE, noise, write
from tiny_runs import edit, run, summary

from minicaps.backend import choose_device
from minicaps.cli.command import WrongUsage
from minicaps.data import load
from minicaps.data.images import fit, read_picture
from minicaps.evaluate import select
from minicaps.runs.run import open_run

pytestmark = pytest.mark.usefixtures("undrawn")
CPU = choose_device("cpu")


@pytest.fixture
def pets(tmp_path):
    return folder_of(tmp_path / "pets", {"cat": 4, "dog": 5, "eel": 6})


@pytest.fixture
def trained(pets):
    return run("--data", "pets", "--limit", "12", "--validation", "3")


def chosen(folder, *arguments, **options):
    return select.choose(open_run(folder, CPU), *arguments, **options)


def split_of(folder):
    return json.loads((folder / "split.json").read_text())


# ---- the run's own data


def test_each_part_is_what_split_json_names(trained, pets):
    for part in ("test", "validation", "train"):
        found = chosen(trained, part=part)
        assert found.split.names.tolist() == split_of(trained)[part]
        for name, image, label in zip(
            found.split.names, found.split.images, found.split.labels, strict=True
        ):
            assert np.array_equal(image, read_picture(pets / name))
            assert ("cat", "dog", "eel")[label] == name.split("/")[0]
    assert measured(trained)["right"] == summary(trained)["test_right"]


def test_new_pictures_do_not_change_which_are_for_testing(pets, capsys):
    limited = run("--data", "pets", "--validation", "3", "--limit", "11")
    edit(limited / "best.npz", lambda meta: meta["options"].update(limit=None))
    before = measured(limited)
    capsys.readouterr()
    assert measured(limited)["confusion"] == before["confusion"]
    assert "since training are ignored: 1\n" in capsys.readouterr().out  # not left out by --limit
    write(pets / "cat/new.png", noise(7, *SIZE, 3))
    assert measured(limited)["confusion"] == before["confusion"]
    assert "since training are ignored: 2\n" in capsys.readouterr().out
    edit(limited / "best.npz", lambda meta: meta["options"].update(limit=11))
    measured(limited)
    assert "are ignored" not in capsys.readouterr().out  # perhaps left out by --limit


def test_pictures_that_are_gone_are_told(trained, pets, capsys):
    first = split_of(trained)["test"][0]
    (pets / first).unlink()
    said = refusal(capsys, trained)
    assert f"1 of the 3 test images listed in {trained}/split.json are not in {pets}" in said
    assert first in said and "restore them, or evaluate other data with --data" in said
    measured(trained, "--part", "validation")
    shutil.rmtree(pets)
    said = refusal(capsys, trained)
    assert f"{pets} no longer exists, but this run was trained on it" in said


def test_pictures_that_changed_are_told(trained, pets, capsys):
    path, whole = trained / "split.json", chosen(trained)
    path.write_text(json.dumps(split_of(trained) | {"sha256": {"test": whole.split.sha256()}}))
    assert not chosen(trained).notes
    write(pets / split_of(trained)["test"][0], noise(99, *SIZE, 3))
    (note,) = chosen(trained).notes
    assert "have changed since training" in note


def test_data_that_moved_are_the_same(trained, pets, tmp_path, capsys):
    before = measured(trained)
    pets.rename(tmp_path / "moved")
    found = measured(trained, "--data", "moved", "--part", "test")
    assert found["confusion"] == before["confusion"] and found["part"] == "test"
    capsys.readouterr()
    assert measured(trained, "--data", "moved", "--part", "train")["samples"] == 9


def test_data_that_moved_and_count_as_a_whole_are_told(pets, tmp_path, capsys):
    trained = run("--data", "pets", "--limit", "12")
    pets.rename(tmp_path / "moved")
    assert measured(trained, "--data", "moved")["samples"] == 15
    said = capsys.readouterr().out
    assert (
        "the same names as the run's own data: if they are the same images, use --part test" in said
    )


def test_the_same_data_by_another_path_are_the_run_s_own(trained, tmp_path):
    (tmp_path / "link").symlink_to("pets")
    assert measured(trained, "--data", "link")["part"] == "test"
    assert measured(trained, "--data", "./pets/.")["part"] == "test"


def test_without_split_json_the_seed_splits(trained, capsys):
    names = split_of(trained)
    (trained / "split.json").unlink()
    for part in ("test", "validation"):
        assert chosen(trained, part=part).split.names.tolist() == names[part]
    capsys.readouterr()
    measured(trained)
    assert "has no split.json" in capsys.readouterr().out
    (trained / "split.json").write_text("{}")
    assert f"{trained}/split.json, which lists the images of each part, is damaged" in refusal(
        capsys, trained
    )


def test_without_split_json_changed_data_are_refused(trained, pets, capsys):
    (trained / "split.json").unlink()
    shutil.rmtree(pets / "eel")
    assert "cannot be split as it was for" in refusal(capsys, trained)  # 9 images for --limit 12
    folder_of(pets, {"fox": 6})
    assert "restore the original data" in refusal(capsys, trained)


@pytest.mark.slow
def test_no_validation(pets, capsys):
    trained = run("--data", "pets", "--limit", "12", "--validation", "0")
    said = refusal(capsys, trained, "--part", "validation", code=2)
    assert "was trained without a validation set: choose another --part" in said
    strokes = run("--validation", "0", out="strokes")
    assert "without a validation set" in refusal(capsys, strokes, "--part", "validation", code=2)


def test_idx_and_npz_of_the_run(tmp_path):
    labels = np.arange(15) % 3
    np.savez("a.npz", images=noise(0, 15, *SIZE), labels=labels)
    trained = run("--data", "a.npz", "--limit", "12")
    found = measured(trained)
    assert found["samples"] == 3 and found["right"] == summary(trained)["test_right"]
    names = [int(name) for name in predictions(trained / "evaluation")]
    assert names == split_of(trained)["test"]


# ---- other data


def test_classes_are_matched_by_name(trained, tmp_path):
    """Test class folders in another order, and a single one."""
    root = folder_of(tmp_path / "new", {"eel": 2, "cat": 3}, start=50)
    found = chosen(trained, source=str(root))
    assert found.part == "all" and len(found.split) == 5
    for name, label in zip(found.split.names, found.split.labels, strict=True):
        assert ("cat", "dog", "eel")[label] == name.split("/")[0]
    result = measured(trained, "--data", root)
    assert [row["pictures"] for row in result["classes"]] == [3, 0, 2]
    shutil.rmtree(root / "cat")
    assert measured(trained, "--data", root)["samples"] == 2


def test_classes_of_an_npz_file_are_matched_by_name(trained, tmp_path):
    images, labels = noise(0, 4, *SIZE, 3), np.array([1, 2, 2, 1])
    np.savez("named.npz", images=images, labels=labels, class_names=["fox", "eel", "cat"])
    assert chosen(trained, source="named.npz").split.labels.tolist() == [2, 0, 0, 2]
    np.savez("numbered.npz", images=images, labels=labels)
    assert chosen(trained, source="numbered.npz").split.labels.tolist() == [1, 2, 2, 1]


def test_unknown_classes_are_refused_with_both_lists(trained, tmp_path, capsys):
    root = folder_of(tmp_path / "new", {"cat": 1, "fox": 1, "owl": 1})
    said = refusal(capsys, trained, "--data", root)
    assert "has the classes 'fox', 'owl', but the network knows cat, dog, eel" in said
    np.savez("b.npz", images=noise(0, 2, *SIZE), labels=[0, 3])
    said = refusal(capsys, trained, "--data", "b.npz")
    assert "has label 3, but the network knows 3 classes, 0 to 2: cat, dog, eel" in said
    said = refusal(capsys, trained, "--data", "strokes", "--part", "test")
    assert "strokes has the classes '0', '1'" in said and "knows cat, dog, eel" in said


def test_pictures_are_fitted_to_the_network(trained, tmp_path):
    """Test images of mixed sizes, in grayscale, for a network trained in color."""
    write(tmp_path / "new/cat/grey.png", noise(0, 50, 20))
    write(tmp_path / "new/cat/large.png", noise(1, 99, 300, 3))
    found = chosen(trained, source="new").split
    assert found.images.shape == (2, 3, *SIZE)
    for k, name in enumerate(("grey", "large")):
        wanted = fit(read_picture(tmp_path / f"new/cat/{name}.png"), SIZE, 3)
        np.testing.assert_array_equal(found.images[k], wanted)


def test_colours_become_grey_for_a_grey_network(tmp_path):
    trained = run()
    root = folder_of(tmp_path / "new", {"7": 2, "3": 1}, size=(28, 28))
    found = chosen(trained, source=str(root)).split
    assert found.images.shape == (3, 1, 28, 28) and found.labels.tolist() == [3, 7, 7]
    red, green, blue = read_picture(root / "3/0.png")
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    np.testing.assert_allclose(found.images[0, 0], grey, atol=1e-6)


def test_inverted_pictures_have_dark_edges(tmp_path, capsys):
    """Ink on paper is inverted before it is letterboxed, in folders and in arrays."""
    trained = run()
    paper = np.full((20, 40), 255, np.uint8)
    paper[8:12, 10:30] = 0
    write(tmp_path / "new/1/a.png", paper)
    np.savez("new.npz", images=paper[None], labels=[1])
    for source in ("new", "new.npz"):
        image = chosen(trained, source=source, invert=True).split.images[0, 0]
        np.testing.assert_allclose(
            image, fit(1 - paper[None] / np.float32(255), (28, 28))[0], atol=1e-6
        )
        assert image[0].max() == image[-1].max() == 0 and image.max() == 1
        found = chosen(trained, source=source, invert=False)
        assert not found.inverted and found.split.images[0, 0, 14, 0] == 1
    assert measured(trained, "--data", "new", "--invert")["inverted"] is True
    said = refusal(capsys, trained, "--invert", code=2)
    assert "--invert applies only to data other than the run's own" in said


@pytest.mark.slow
def test_another_named_data_set_counts_as_a_whole_or_by_part(tmp_path, monkeypatch):
    digits = load("strokes", limit=20).test
    monkeypatch.setattr("minicaps.data.drawn.TRAIN_SIZE", 50)
    names = dict.fromkeys(map(str, range(10)), 3)
    root = folder_of(tmp_path / "ten", names, channels=(), size=(29, 25))
    trained = run("--data", str(root), "--limit", "20")
    found = chosen(trained, source="strokes")
    assert (len(found.split), found.part) == (80, "all")
    assert found.split.names[[0, 50]].tolist() == ["train/0", "test/0"]
    assert len(set(found.split.names)) == 80
    found = chosen(trained, source="strokes", part="test")
    assert np.array_equal(found.split.labels, digits.labels)
    assert found.split.images.shape == (30, 1, 29, 25)
    with pytest.raises(WrongUsage, match="the parts train and test, not validation"):
        chosen(trained, source="strokes", part="validation")
    with pytest.raises(WrongUsage, match="in one way only: leave out --frames and --skip-bad"):
        chosen(trained, source="strokes", frames="all", skip_bad=True)


def test_what_does_not_fit_together(trained, tmp_path, capsys):
    root = folder_of(tmp_path / "new", {"cat": 1})
    for arguments, part in (
        (["--data-dir", "."], "--data-dir has no effect on"),
        (["--data", root, "--data-dir", "."], "--data-dir has no effect on"),
        (["--data", "nowhere"], "must be an existing path or one of strokes"),
        (["--part", "all"], "invalid choice"),
        (["--batch-size", "0"], "must be a whole number of at least 1"),
        (["--data", root, "--out", root / "x"], "is inside the data folder: choose another --out"),
        (["--data", root, "--out", root], "is inside the data folder: choose another --out"),
    ):
        assert part in refusal(capsys, trained, *arguments, code=2)
    assert [path.name for path in root.iterdir()] == ["cat"]
    said = refusal(capsys, trained, "--data", root, "--part", "test")
    assert "are not in" in said
    lone = tmp_path / "lone.npz"
    shutil.copy(trained / "best.npz", lone)
    said = refusal(capsys, lone, "--data", root, "--part", "test", code=2)
    assert "is not divided into parts: leave --part out" in said


def test_other_data_leave_the_results_of_the_run_alone(trained, tmp_path):
    before = measured(trained)
    root = folder_of(tmp_path / "new", {"cat": 1, "dog": 2})
    measured(trained, "--data", root)
    measured(trained, "--part", "train")
    assert sorted(path.name for path in trained.glob("evaluation*")) == [
        "evaluation",
        "evaluation-new",
        "evaluation-train",
    ]
    assert json.loads((trained / "evaluation/evaluation.json").read_text()) == before


def results(folder):
    """Return {folder: (data, part)} of all evaluations in a run folder."""
    found = {}
    for path in folder.glob("evaluation*/evaluation.json"):
        result = json.loads(path.read_text())
        found[path.parent.name] = (result["data"], result["part"])
    return found


def test_no_evaluation_replaces_that_of_other_images(trained, pets, tmp_path):
    """Test data named like a part, like other data, like the run's own, and with another ending."""
    one = folder_of(tmp_path / "one/new", {"cat": 2})
    two = folder_of(tmp_path / "two/new", {"dog": 2})
    part = folder_of(tmp_path / "train", {"eel": 2})
    own = folder_of(tmp_path / "copy/pets", {"cat": 2})
    np.savez("new.npz", images=noise(0, 2, *SIZE, 3), labels=[0, 1])
    shutil.copytree(pets, tmp_path / "moved")
    for _ in range(2):  # the second time, each replaces its own
        for arguments in (
            (),
            ("--top", "2"),
            ("--data", pets),
            ("--data", one),
            ("--data", two),
            ("--data", "new.npz"),
            ("--data", part),
            ("--part", "train"),
            ("--data", own),
            ("--data", "moved"),
            ("--data", "moved", "--part", "test"),
        ):
            measured(trained, *arguments)
    assert results(trained) == {
        "evaluation": (str(pets), "test"),
        "evaluation-new": (str(one), "all"),
        "evaluation-new-2": (str(two), "all"),
        "evaluation-new-3": (str(tmp_path / "new.npz"), "all"),
        "evaluation-train": (str(part), "all"),
        "evaluation-train-2": (str(pets), "train"),
        "evaluation-pets": (str(own), "all"),
        "evaluation-moved": (str(tmp_path / "moved"), "all"),
        "evaluation-moved-test": (str(tmp_path / "moved"), "test"),
    }


def test_a_chosen_folder_is_not_replaced_by_other_images_either(trained, tmp_path, capsys):
    before, root = measured(trained), folder_of(tmp_path / "new", {"cat": 1})
    for arguments in (("--data", root), ("--part", "train")):
        said = refusal(capsys, trained, *arguments, "--out", trained / "evaluation", code=2)
        assert f"holds an evaluation of {tmp_path}/pets (test): choose another --out" in said
    assert json.loads((trained / "evaluation/evaluation.json").read_text()) == before
    assert measured(trained, out=trained / "evaluation")["samples"] == before["samples"]


def test_names_of_files_cannot_control_the_terminal(tmp_path, capsys):
    root = folder_of(tmp_path / "pe\x1bts", {"cat": 4, "dog": 5})
    trained = run("--data", str(root), "--limit", "6", "--validation", "2", out="r\x1bun")
    edit(trained / "best.npz", lambda meta: meta["options"].update(limit=None))
    folder_of(root, {"cat": 1}, start=80)
    measured(trained)
    said = capsys.readouterr().out
    assert "Note: images added to " in said and "pe\\x1bts since training" in said
    assert "\x1b" not in said


def test_a_long_name_of_the_data_is_cut(trained, tmp_path):
    folder_of(tmp_path / ("n" * 250), {"cat": 1})
    measured(trained, "--data", "n" * 250)
    assert list(results(trained)) == ["evaluation-" + "n" * 100]


def test_the_baselines_of_the_run_are_reported_for_its_test_images_only(trained, tmp_path, capsys):
    stored = summary(trained)["baselines"]
    most, linear = stored["majority"], stored["linear"]
    line = f"Baselines: always {most['class']!r} {most['accuracy']:.2%}"
    accuracy, balanced = (linear[key] for key in ("accuracy", "balanced_accuracy"))
    whole = f"{line}, linear classifier {accuracy:.2%} (balanced {balanced:.2%}"
    capsys.readouterr()
    found = measured(trained)
    assert found["baselines"] == stored and whole in capsys.readouterr().out
    assert found["balanced_accuracy"] == summary(trained)["test_balanced_accuracy"]
    root = folder_of(tmp_path / "new", {"cat": 1, "eel": 3}, start=50)
    found = measured(trained, "--data", root)
    assert found["baselines"] == {"majority": {"class": most["class"], "accuracy": 0.75}}
    recalls = [row["recall"] for row in found["classes"] if row["pictures"]]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert "linear" not in capsys.readouterr().out


def test_a_run_without_stored_baselines_compares_with_the_most_frequent_class(trained, tmp_path):
    (trained / "summary.json").unlink()
    root = folder_of(tmp_path / "new", {"cat": 1, "dog": 4})
    majority = {"class": "dog", "accuracy": 0.8}
    assert measured(trained, "--data", root)["baselines"] == {"majority": majority}


def test_built_in_data_have_no_baselines(capsys):
    assert "baselines" not in measured(run())
    assert "aselines" not in capsys.readouterr().out
