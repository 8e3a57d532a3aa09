"""Training runs that start from the parameters of another run."""

from pathlib import Path

import pytest
from thinning import thinned_rows
from tiny_runs import TINY, go_on, parameters, refused, run, same, summary

from minicaps.train import __main__ as train

STILL = ("--learning-rate", "1e-30")  # a step too small to survive rounding


@pytest.mark.slow
def test_a_run_starts_from_the_best_parameters_of_another():
    first = run("--model", "capsule-cnn", "--iterations", "2")
    second = run(
        "--model", "capsule-cnn", "--iterations", "3", *STILL, "--start-from", str(first), out="two"
    )
    assert same(parameters(second), parameters(first))
    third = run("--model", "capsule-cnn", "--iterations", "2", *STILL, out="fresh")
    assert not same(parameters(third), parameters(first))


@pytest.mark.slow
def test_few_pictures_are_enough_for_what_has_learned_already(capsys):
    assert train.main([*TINY[:-1], "--out", "run"]) == 0  # not quiet
    assert "few to learn much" in capsys.readouterr().out
    assert train.main([*TINY[:-1], "--start-from", "run", "--out", "two"]) == 0
    assert "few to learn much" not in capsys.readouterr().out


@pytest.mark.slow
def test_the_checkpoint_itself_may_be_named_too():
    first = run()
    second = run("--start-from", str(first / "best.npz"), *STILL, out="two")
    assert same(parameters(second), parameters(first))


@pytest.mark.slow
def test_it_goes_on_by_itself_when_the_other_run_is_gone():
    first = run()
    second = run("--start-from", str(first), "--epochs", "1", out="two")
    for file in first.iterdir():
        file.unlink()
    assert summary(go_on(second, "--epochs", "2"))["epochs"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    thinned_rows(
        [
            (
                ("--start-from", "run", "--model", "pooling-cnn"),
                2,
                "run/best.npz contains a different network: model is capsnet in the checkpoint,"
                " but pooling-cnn in this run; give the same options",
            ),
            (
                ("--start-from", "run", "--reconstruction", "0", "--precision", "float64"),
                2,
                "network: precision is float32 in the checkpoint, but float64 in this run; decoder"
                " is True in the checkpoint, but False in this run; give",
            ),
            (("--start-from", "nowhere"), 1, "no checkpoint nowhere: give the folder of a run"),
            (
                ("--start-from", "."),
                1,
                ". has no best.npz: it contains runs; choose one of them, such as run",
            ),
        ]
    ),
)
def test_what_does_not_fit_is_refused(capsys, arguments, code, message):
    run()
    capsys.readouterr()
    assert message in refused(capsys, *TINY, *arguments, "--out", "two", code=code)
    assert not Path("two").exists()
