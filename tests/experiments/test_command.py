"""The experiments: their measurements, their command, and resuming after a stop."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from PIL import Image
from tiny_runs import send_in_call

from minicaps import data
from minicaps.data import strokes
from minicaps.experiments import __main__ as command
from minicaps.experiments import dimensions, lab, pairs, routing
from minicaps.experiments.results import Results, percent, print_table


def test_the_measures_of_pairs_by_hand():
    labels = np.array([[1, 0, 1], [1, 1, 0], [1, 1, 0], [0, 1, 1]], np.uint8)
    lengths = np.array([[0.9, 0.2, 0.6], [0.9, 0.4, 0.1], [0.8, 0.9, 0.6], [0.9, 0.8, 0.1]])
    assert pairs.answers(lengths, labels) == [3 / 4, 2 / 4, 1 / 4]


def test_mean_and_spread():
    assert percent([0.93, 0.94, 0.95]) == "94.0 ± 1.0"
    assert percent([0.5]) == "50.0"


def test_a_table_has_columns(capsys):
    print_table([["a", "bcd"], ["long", "1"]])
    assert capsys.readouterr().out == "a     bcd\nlong    1\n"


def test_the_names_are_listed(capsys):
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == command.NAMES
    assert "pairs" in command.NAMES


def test_help_fits_on_a_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert len(capsys.readouterr().out.splitlines()) <= 60


@pytest.fixture
def tiny_pairs(monkeypatch):
    """Use drawn digits, one epoch and two networks; return the settings of the parts."""
    settings = {"data": "strokes", "validation": 10, "shift": 0, "epochs": 1, "seed": 0}
    settings |= {"batch_size": 8, "model": "capsule-cnn"}
    parts = {
        "spherical": settings | {"update": "spherical"},
        "pooling-on-pairs": settings | {"model": "pooling-cnn", "compose": 2, "layout": "below"},
    }
    monkeypatch.setattr(pairs, "parts", lambda quick: parts)
    return parts


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(pairs, "draw", lambda *_: None)


QUICK = ["pairs", "--quick", "--device", "cpu"]
FOLDER = Path("runs/experiments/pairs-quick")


@pytest.mark.slow
def test_an_experiment_measures_prints_and_writes(tiny_pairs, monkeypatch, capsys):
    assert command.main(QUICK) == 0
    out = capsys.readouterr().out
    assert command.QUICK in out
    report = json.loads((FOLDER / "pairs.json").read_text())
    assert [row[0] for row in report["table"]] == ["%", "spherical", "pooling-on-pairs"]
    assert report["command"] == "python -m minicaps.experiments pairs --quick --device cpu"
    assert report["seeds"] == {"spherical": 1, "pooling-on-pairs": 1}
    assert report["hours_of_training"] >= 0
    assert (FOLDER / "pairs.png").stat().st_size > 10_000
    assert not Path("lessons").exists()  # where the full results are
    figures = json.loads((FOLDER / "pairs/seed-0.json").read_text())["spherical"]["figures"]
    assert len(figures["curve"]) == 1
    for right, sure, only in (figures["below"], figures["beside"], *figures["curve"]):
        assert 0 <= only <= sure <= right <= 1
    # a second run reuses the results
    monkeypatch.setattr(pairs, "measure", lambda *_: pytest.fail("measured again"))
    assert command.main(QUICK) == 0
    again = capsys.readouterr().out
    assert f"2 of 2 networks already have results in {FOLDER}\n" in again
    assert again.splitlines()[-8:] == out.splitlines()[-8:]
    assert command.main(["pairs", "--seeds", "1", "--device", "cpu", "--out", str(FOLDER)]) == 0
    assert f"in {FOLDER}; to train all of them, choose another --out\n" in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_name_experiments_are_listed_with_their_headlines(tiny_pairs, undrawn, capsys):
    assert command.main([]) == 0
    listed = capsys.readouterr().out
    assert f"pairs        {pairs.TITLE}" in listed and "|" not in listed
    assert command.main(QUICK) == 0
    report = json.loads((FOLDER / "pairs.json").read_text())
    capsys.readouterr()
    assert command.main(["--out", str(FOLDER)]) == 0
    *_, header, rule, spherical, _ = capsys.readouterr().out.splitlines()
    assert header.count("|") == rule.count("|") == spherical.count("|") == 7
    what = "spherical: pairs, one below the other, with both found / and both above ½"
    assert f"| pairs (quick) | {what} | ≈ 95 / ≈ 95 % | " in spherical
    below = report["table"][1][2]
    assert f"| {below} / " in spherical and " %" in spherical
    (FOLDER / "pairs.json").write_text("{}")
    assert command.main(["--out", str(FOLDER)]) == 1
    assert "pairs.json is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_quick_figures_go_where_they_are_wanted(tiny_pairs, undrawn, capsys):
    assert command.main([*QUICK, "--out", "here"]) == 0
    assert json.loads(Path("here/pairs.json").read_text())["quick"]
    assert not (FOLDER / "pairs.json").exists()


@pytest.mark.parametrize("what", [["--quick"], ["--seeds", "2"], ["--no-training"]])
def test_what_asks_for_an_experiment_needs_its_name(what, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(what)
    assert stopped.value.code == 2
    assert "and --no-training require the NAME of an experiment" in capsys.readouterr().err


def test_the_readme_has_the_headlines(capsys):
    """The README has them exactly as `python -m minicaps.experiments` prints them."""
    assert command.main(["--out", str(ROOT / "lessons/results/experiments")]) == 0
    table = [row for row in capsys.readouterr().out.splitlines() if row.startswith("|")]
    assert "\n".join(table) in (ROOT / "minicaps/experiments/README.md").read_text()


@pytest.mark.slow
def test_a_stopped_experiment_goes_on_as_if_it_had_not(tiny_pairs, undrawn, monkeypatch, capsys):
    assert command.main(QUICK) == 0
    whole = json.loads((FOLDER / "pairs/seed-0.json").read_text())
    FOLDER.rename("whole")
    send_in_call(monkeypatch, lab.Trainer, "_step", call=6)  # in the second network
    assert command.main(QUICK) == 130
    assert (
        f"Resume with:\n  python -m minicaps.experiments {' '.join(QUICK)}"
        in capsys.readouterr().err
    )
    assert command.main(QUICK) == 0
    again = json.loads((FOLDER / "pairs/seed-0.json").read_text())
    for part in tiny_pairs:
        was, now = whole[part]["figures"], again[part]["figures"]
        del was["seconds"], now["seconds"]
        assert was == now


@pytest.mark.slow
def test_figures_and_networks_of_other_settings_are_refused(tiny_pairs, undrawn, capsys):
    assert command.main(QUICK) == 0
    tiny_pairs["spherical"]["epochs"] = 2
    capsys.readouterr()
    assert command.main(QUICK) == 1
    assert "results of spherical with settings other than" in capsys.readouterr().err
    (FOLDER / "pairs/seed-0.json").unlink()
    assert command.main(QUICK) == 1
    assert "spherical-seed-0 holds a network with epochs 1, not 2" in capsys.readouterr().err


def test_damaged_figures_are_refused(tiny_pairs, capsys):
    path = FOLDER / "pairs/seed-0.json"
    path.parent.mkdir(parents=True)
    for damage in ("{", '{"spherical": 1}', "[]"):
        path.write_text(damage)
        assert command.main(QUICK) == 1
        assert "is damaged" in capsys.readouterr().err


def test_two_networks_are_compared_image_by_image(tiny_pairs, undrawn, monkeypatch, capsys):
    """Results that were stored without the misclassified images are reported as untested."""
    figures = {"single": 0.9, "below": [0.5] * 3, "beside": [0.5] * 3, "curve": [[0.5] * 3]}
    figures |= {"seconds": 1.0, "parameters": 7, "learned": 30, "tested": 8}
    wrong = {"spherical": "1 5", "pooling-on-pairs": "0 1 2 3 4 6"}
    monkeypatch.setattr(pairs, "COMPARED", (tuple(wrong),))
    monkeypatch.setattr(pairs, "measure", lambda _, part, *__: figures | {"wrong": wrong[part]})
    assert command.main(QUICK) == 0
    cells = ["0", "1", "5", "-4", "0.22"]
    assert re.search(r"spherical / pooling-on-pairs +" + " +".join(cells), capsys.readouterr().out)
    path = FOLDER / "pairs/seed-0.json"
    old = json.loads(path.read_text())
    del old["spherical"]["figures"]["wrong"]
    path.write_text(json.dumps(old))
    assert command.main(QUICK) == 0
    assert "No paired test of 1 comparisons" in capsys.readouterr().out


def test_without_training_only_existing_results_are_reported(tiny_pairs, monkeypatch, capsys):
    figures = {"single": 0.9, "below": [0.5] * 3, "beside": [0.5] * 3, "curve": [[0.5] * 3]}
    figures |= {"seconds": 1.0, "parameters": 7, "learned": 30, "tested": 20}
    Results(FOLDER, "pairs", tiny_pairs).make_folders()
    Results(FOLDER, "pairs", tiny_pairs).job("spherical", 0, lambda: figures).work()
    monkeypatch.setattr(pairs, "measure", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(pairs, "draw", lambda *_: pytest.fail("drawn"))
    assert command.main([*QUICK, "--no-training"]) == 0
    assert "spherical  90.0 [69.9, 97.2]" in capsys.readouterr().out
    report = json.loads((FOLDER / "pairs.json").read_text())
    assert report["command"] == f"python -m minicaps.experiments {' '.join(QUICK)}"


def test_without_results_and_training_there_is_nothing_to_report(tiny_pairs, capsys):
    assert command.main([*QUICK, "--no-training"]) == 1
    assert "pairs has no results yet: train its networks first" in capsys.readouterr().err
    assert not (FOLDER / "pairs.json").exists()


def test_moments_by_hand():
    """Two pixels of ink 3 and 1, two columns and one row apart."""
    image = np.zeros((1, 1, 3, 4), np.float32)
    image[0, 0, 0, 1], image[0, 0, 1, 3] = 3, 1
    split = data.Split(image, np.zeros(1, int))
    expected = [[4, 1.5, 0.25, 0.75, 0.1875, 0.375]]
    np.testing.assert_allclose(dimensions.moments(split), expected)


def drawn(n, seed):
    random = np.random.default_rng(seed)
    images = np.zeros((n, 1, 4, 4), np.float32)
    labels, poses = random.integers(0, 2, n), random.normal(size=(n, 6))
    return data.Split(images, labels, poses)


def test_a_pose_that_the_features_hold_is_found_and_no_other():
    """The features hold the first four poses, mixed by a different matrix in each class."""
    mix = np.random.default_rng(0).normal(size=(2, 4, 5))
    training, test = drawn(300, 1), drawn(400, 2)
    known, asked = (
        np.einsum("np,npf->nf", split.poses[:, :4], mix[split.labels]) + 3
        for split in (training, test)
    )
    scores = dimensions.scored(known, training, asked, test)
    np.testing.assert_allclose(scores[:4], 1, atol=1e-9)
    assert max(scores[4:6]) < 0.05
    one = dimensions.scored(known, training, asked, test, dimensions.ONE)
    assert max(one) < 0.9  # one number cannot hold four poses


def test_a_pose_that_is_one_of_the_features_is_found_in_it():
    """Beside 40 numbers without meaning, one is the pose itself; it has less spread than they."""
    training, test = drawn(300, 1), drawn(400, 2)
    known, asked = (
        np.column_stack([9 * np.random.default_rng(n).normal(size=(len(split), 40)), split.poses])
        for n, split in enumerate((training, test))
    )
    alone = dimensions.scored(known, training, asked, test, dimensions.ONE)
    np.testing.assert_allclose(alone[:6], 1, atol=1e-9)
    few = dimensions.scored(known, training, asked, test, dimensions.FEW)
    assert max(few[:6]) < 0.5  # the 16 directions of largest spread hold no pose


def test_a_map_that_bends_fails_beyond_the_rotations_of_the_fit():
    """A feature that grows with the rotation holds it everywhere, one that saturates does not."""
    rotation = np.random.default_rng(0).uniform(-25, 25, 4000)
    poses = np.column_stack([rotation, np.random.default_rng(1).normal(size=(4000, 5))])
    splits = [
        data.Split(np.zeros((2000, 1, 4, 4), np.float32), np.zeros(2000, int), part)
        for part in (poses[:2000], poses[2000:])
    ]
    beyond = {}
    for name, bend in (("straight", lambda x: x), ("bent", lambda x: np.clip(x, -12.5, 12.5))):
        found = dimensions._scores(lambda split, f=bend: f(split.poses[:, :1]), *splits, ["R²"])
        beyond[name] = found["R²"]["beyond"]
    # bent: 12.5 is read for every rotation between 12.5 and 25, uniform: the error is u, the
    # deviation from the mean 12.5 + u with u in (0, 12.5), so 1 − (1/3) / (1 + 1 + 1/3) = 6/7
    assert beyond["straight"] == pytest.approx(1, abs=1e-9)
    assert beyond["bent"] == pytest.approx(6 / 7, abs=0.01)


def test_the_slant_is_the_angle_of_a_digits_height():
    """Compare with the places of the points (0, −1) and (0, 1), above and below the middle."""
    poses = np.array([[20, 1, 0, 0, 0, 2], [0, 0.8, 0.3, 0, 1, 2], [-20, 1, 0.3, 2, 0, 2]])
    top, bottom = strokes._place(np.array([(0.0, -1.0), (0.0, 1.0)]), poses).swapaxes(0, 1)
    across, up = (top - bottom).T * [[1], [-1]]
    split = data.Split(np.zeros((3, 1, 4, 4), np.float32), np.zeros(3, int), poses)
    slant = dimensions.all_poses(split)[:, 6]
    np.testing.assert_allclose(slant, np.degrees(np.arctan2(across, up)), atol=1e-9)


def test_r_squared_of_the_mean_is_zero():
    training, test = drawn(20_000, 1), drawn(20_000, 2)
    nothing = np.zeros((20_000, 3))
    scores = dimensions.scored(nothing, training, nothing, test)
    np.testing.assert_allclose(scores, 0, atol=1e-3)


@pytest.mark.slow
def test_dimensions_are_measured_and_drawn(monkeypatch, capsys):
    monkeypatch.setattr(lab, "QUICK_TRAINING", 150)
    small = {"data": "strokes", "validation": 30, "epochs": 1}
    parts = {
        "capsules": small | {"model": "capsnet", "batch_size": 64},
        "untrained": small | {"model": "capsnet", "epochs": 0},
        "masked": small | {"model": "dense-cnn", "reconstruction": 0.05, "batch_size": 64},
        "pooling": small | {"model": "pooling-cnn", "batch_size": 64},
    }
    monkeypatch.setattr(dimensions, "parts", lambda quick: parts)
    assert command.main(["dimensions", *QUICK[1:]]) == 0
    report = json.loads(Path("runs/experiments/dimensions-quick/dimensions.json").read_text())
    first = [row[0] for row in report["table"]]
    networks = ["capsules, R²", "capsules, R² of one", "untrained, R²", "masked, R²"]
    networks += ["masked, R² of one", "pooling, R²", "pooling, R² of 16"]
    assert first == ["", *networks]
    right = report["table"][0].index("right class")
    assert all(0 <= float(row[right]) <= 1 for row in report["table"][1:] if row[right] != "–")
    assert "pooling, R² of 16" in capsys.readouterr().out
    with Image.open("runs/experiments/dimensions-quick/dimensions-sweep.png") as sweep:
        grid = np.asarray(sweep, int).reshape(16, sweep.height // 16, 11, -1)
    middle = grid[:, :, 5]  # the unchanged capsule, in each row
    assert np.abs(middle - middle[0]).max() <= 1 < np.abs(grid[:, :, 0] - middle).max()


def test_entropy_of_couplings_by_hand():
    equal, sharp = np.full((2, 3, 4), 0.25), np.zeros((2, 3, 4))
    sharp[..., 1] = 1
    half = np.broadcast_to([0.5, 0.5, 0, 0], (2, 3, 4))
    entropies = [routing.entropy(c) for c in (equal, sharp, half)]
    np.testing.assert_allclose(entropies, [1, 0, 0.5], atol=1e-12)


@pytest.mark.slow
def test_iterations_are_compared_and_drawn(monkeypatch, capsys):
    monkeypatch.setattr(routing, "ROUTINGS", dict(list(routing.ROUTINGS.items())[:2]))
    monkeypatch.setattr(routing, "GRADIENTS", {})
    whole = routing.parts
    short = {"validation": 10, "epochs": 1, "batch_size": 16}
    monkeypatch.setattr(
        routing, "parts", lambda quick: {part: own | short for part, own in whole(quick).items()}
    )
    assert command.main(["routing", *QUICK[1:]]) == 0
    figures = json.loads(Path("runs/experiments/routing-quick/routing/seed-0.json").read_text())
    assert figures["one-iteration"]["figures"]["entropy"] == pytest.approx(1)
    assert "moves" not in figures["one-iteration"]["figures"]
    for part in routing.ROUTINGS:
        found = figures[f"{part}-3"]["figures"]
        assert len(found["entropies"]) == routing.LONG == len(found["moves"]) + 1
        assert found["entropies"][2] == pytest.approx(found["entropy"])  # as in the network itself
    assert Path("runs/experiments/routing-quick/routing.png").stat().st_size > 10_000
