"""Options of custom data are chosen by its images, and networks that die are restarted."""

import numpy as np
import pytest
from tiny_runs import go_on, run, saved, summary

from minicaps.data import Dataset, Split
from minicaps.runs.configuration import Options
from minicaps.train import resume, trainer
from minicaps.train.defaults import settled
from minicaps.train.options import BY_THE_DATA, complete
from minicaps.train.step import Learner

CUSTOM = "somewhere/cats.npz"


def made_up(n, classes=3, side=28):
    """Return a data set of `n` training images."""
    labels = np.arange(n) % classes
    part = Split(np.zeros((n, 1, side, side), np.float32), labels)
    return Dataset("cats", part, part, tuple(map(str, range(classes))), by_class=True)


def chosen(n, classes=3, side=28, **given):
    """Return the options chosen for `n` training images, and the last note."""
    options, data = settled(complete({"data": CUSTOM} | given), made_up(n, classes, side))
    return options, data.notes[-1] if data.notes else None


def steps(options, n):
    own = options.optimization
    return own.epochs * -(-n // own.batch_size)


@pytest.mark.parametrize("n", [6, 40, 144, 1123, 5000, 60_000])
@pytest.mark.parametrize("classes", [2, 26, 100])
def test_every_choice_is_made_and_training_is_long_enough(n, classes):
    options, _ = chosen(n := max(n, 2 * classes), classes, validation=0)
    flat = options.to_dict()
    assert not [name for name in BY_THE_DATA if flat[name] is None]
    assert steps(options, n) >= 1400 or options.optimization.epochs == 300
    assert options.optimization.warm_up <= steps(options, n) / 5


def test_small_data_has_small_batches_and_changed_images_and_large_data_does_not():
    small, large = (chosen(n)[0] for n in (144, 60_000))
    assert small.optimization.batch_size < large.optimization.batch_size == 64
    assert (small.data.shift, small.data.rotate > 0, small.data.zoom > 0) == (2, True, True)
    assert (large.data.shift, large.data.rotate, large.data.zoom) == (0, 0, 0)


def test_every_option_that_is_given_is_kept():
    given = {"batch_size": 3, "epochs": 2, "warm_up": 0}
    given |= {"shift": 0, "rotate": 0.0, "zoom": 0.0, "balance": False}
    assert given.keys() == BY_THE_DATA
    options, note = chosen(144, **given)
    assert {name: options.to_dict()[name] for name in given} == given
    assert note is None


def test_a_given_learning_rate_or_decay_is_meant():
    assert chosen(144, learning_rate=0.01)[0].optimization.restarts == 0
    assert chosen(144, decay=0.9)[0].optimization.schedule == "exponential"
    for name in ("strokes", "mnist"):
        assert complete({"data": name, "decay": 0.9}).optimization.schedule == "exponential"
        assert complete({"data": name}).optimization.schedule == "cosine"


def test_the_note_says_what_was_chosen_and_for_which_images():
    options, note = chosen(144, 10, epochs=7, zoom=0.0)
    assert note.startswith("chosen for 130 training images of 10 classes: batches of 16, ")
    assert "rotations of up to 10°" in note and "7 epochs" not in note and "zoom" not in note
    assert f"{options.optimization.warm_up} steps of warm-up" in note


@pytest.mark.parametrize(
    ("validation", "left"), [(None, 130), (0, 144), (0.0, 144), (0.25, 108), (20, 124)]
)
def test_the_note_counts_the_images_beside_the_validation_set(validation, left):
    assert chosen(144, validation=validation)[1].startswith(f"chosen for {left} training images")


def test_patience_is_checked_once_the_epochs_are_known():
    with pytest.raises(ValueError, match="--patience 400 has no effect in 300 epoch"):
        chosen(6, patience=400)


def test_built_in_data_keeps_its_defaults():
    options = complete({"data": "mnist"})
    assert settled(options, data := made_up(6)) == (options, data)


def test_the_learning_rate_rises_over_the_steps_of_the_warm_up():
    options = Options().replace(learning_rate=0.8, schedule="constant", warm_up=4)
    learner = object.__new__(Learner)
    learner.optimization, learner.batches = options.optimization, 3
    rates = [learner.learning_rate(epoch, batch) for epoch in range(2) for batch in range(3)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


# ---- in a run


@pytest.fixture
def cats(tmp_path):
    """Write 30 images of three classes."""
    images = np.random.default_rng(0).integers(0, 256, (30, 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "cats.npz", images=images, labels=np.arange(30) % 3)
    return str(tmp_path / "cats.npz")


TWO = ("--limit", "24", "--epochs", "2")


def test_the_choices_are_stored_and_kept_when_a_run_is_resumed(cats):
    folder = run("--data", cats, "--limit", "24", "--rotate", "5")
    options = saved(folder)[1]["options"]
    assert (options["rotate"], options["restarts"]) == (5, 2)
    assert options["batch_size"] == 8  # given
    assert summary(folder)["notes"][-1].startswith("chosen for 22 training images of 3 classes")
    go_on(folder, "--epochs", "2")
    assert saved(folder)[1]["options"] == options | {"epochs": 2, "resume": "run"}


def test_several_seeds_choose_alike(cats):
    folder = run("--data", cats, "--limit", "24", "--seeds", "2")
    chosen = [summary(folder / f"seed-{seed}")["options"] for seed in (0, 1)]
    assert chosen[0] | {"seed": 1, "out": chosen[1]["out"]} == chosen[1]


def test_a_dead_network_is_restarted_with_a_lower_rate_as_often_as_allowed(
    cats, monkeypatch, capsys
):
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: (0.81, 1))  # as if it were dead
    folder = run("--data", cats, *TWO)
    said = capsys.readouterr().err
    rates = [0.003 / 4, 0.003 / 16]
    for rate in rates:
        assert said.count(f"Restarting with learning rate {rate:g}") == 1
    found = summary(folder)
    assert found["options"]["learning_rate"] == rates[-1] and found["options"]["restarts"] == 0
    assert sum("Restarting" in text for text in found["warnings"]) == 2
    assert sum("network is dead" in text for text in found["warnings"]) == 3  # also the last time


def test_a_network_that_recovers_is_finished_and_says_that_it_was_restarted(cats, monkeypatch):
    losses = iter([0.81, 0.81, 0.3, 0.3, 0.3])  # dead, then alive
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: (next(losses), 1))
    found = summary(run("--data", cats, *TWO))
    assert found["options"]["learning_rate"] == 0.003 / 4
    told = [text for text in found["warnings"] if "Restarting" in text]
    assert len(told) == 1 and told[0].startswith("after epoch 2, the margin loss is 0.81")


def test_a_loss_that_explodes_leads_to_a_restart_too(cats, monkeypatch):
    monkeypatch.setattr(resume, "SLOWER", 1e-33)
    found = summary(run("--data", cats, *TWO, "--learning-rate", "1e30", "--restarts", "1"))
    assert found["options"]["learning_rate"] == pytest.approx(0.001)
