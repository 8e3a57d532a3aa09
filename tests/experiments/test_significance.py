"""Intervals and tests of the experiments, compared with SciPy and computed by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp

from minicaps.experiments import lab
from minicaps.experiments.results import Results
from minicaps.experiments.significance import listed, margin, mcnemar, only, paired_t, wilson


@pytest.mark.parametrize("wrong, count", [(0, 20), (1, 20), (69, 10_000), (257, 10_000), (20, 20)])
def test_a_wilson_interval_is_that_of_scipy(wrong, count):
    expected = binomtest(wrong, count).proportion_ci(method="wilson")
    assert wilson(wrong / count, count) == pytest.approx((expected.low, expected.high), abs=1e-6)


SINGLE = ["mnist_paper", "capsule_cnn", "pooling_cnn", "matrix_capsnet"]


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_result_on_the_page_has_its_interval(name):
    root = Path(__file__).parents[2]
    found = json.loads((root / f"lessons/results/{name}.json").read_text())
    last = found.get("runs", [found])[-1]
    ends = wilson(last["test_right"] / last["test_samples"], last["test_samples"])
    result = "{:.2%} [{:.2f}, {:.2f}]".format(last["test_accuracy"], *(100 * end for end in ends))
    assert result in (root / "minicaps/train/README.md").read_text("utf-8")


@pytest.mark.parametrize("first, second", [(0, 0), (1, 5), (5, 1), (3, 3), (40, 71), (700, 812)])
def test_mcnemar_is_the_exact_binomial_test_of_scipy(first, second):
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_by_hand():
    """Of six tosses, at least five alike: (1 + 6) outcomes of 64 at each end."""
    assert mcnemar(1, 5) == 2 * (1 + 6) / 64


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 8, 13])
def test_the_paired_t_test_is_that_of_scipy(seeds):
    differences = list(np.random.default_rng(seeds).normal(0.5, 1, seeds))
    assert paired_t(differences) == pytest.approx(ttest_1samp(differences, 0).pvalue, rel=1e-6)
    low, high = ttest_1samp(differences, 0).confidence_interval()
    assert 2 * margin(differences) == pytest.approx(high - low, rel=1e-6)


def test_differences_that_do_not_vary_are_certain_or_nothing():
    assert paired_t([0, 0, 0]) == 1
    assert paired_t([2, 2, 2]) == pytest.approx(0, abs=1e-12)
    assert margin([2, 2, 2]) == 0


def test_images_that_only_one_network_gets_wrong_are_counted():
    first, second = np.array([1, 1, 0, 1, 0], bool), np.array([0, 1, 1, 0, 0], bool)
    assert listed(first) == "0 1 3"
    assert only(listed(first), listed(second)) == (2, 1)
    assert only(listed(~first & first), listed(second)) == (0, 2)


def test_three_seeds_have_a_t_test_over_seeds(tmp_path):
    """Seeds with 3, 5 and 4 more errors of the first network: t = 4 √3 with 2 degrees."""
    parts = {"one": {}, "two": {}}
    results = Results(tmp_path, "made-up", parts)
    results.make_folders()
    for seed, more in enumerate((3, 5, 4)):
        for part, count in (("one", more), ("two", 0)):
            wrong = listed(np.arange(10) < count)
            results.job(part, seed, lambda wrong=wrong: {"tested": 10, "wrong": wrong}).work()
    *_, last = results._paired(range(3), [("one", "two")])
    assert last == ["one / two", "all (t)", "4.0", "0.0", "+4.0 ± 2.5", "0.02"]
    assert len(results._paired(range(2), [("one", "two")])) == 3


def test_kinds_of_images_are_compared_one_by_one(tmp_path):
    """The second network of seed 1 was stored before the kinds were told apart."""
    results = Results(tmp_path, "made-up", {"one": {}, "two": {}})
    results.make_folders()
    right = {
        "one": {"far": [True, False, False], "near": [True, True, False]},
        "two": {"far": [True, True, True], "near": [True, True, True]},
    }
    for part, kinds in right.items():
        found = lab.tested({kind: np.array(one) for kind, one in kinds.items()})
        assert found["tested"] == 3
        results.job(part, 0, lambda found=found: found).work()
    results.job("one", 1, lambda: lab.tested({"far": np.full(3, True)})).work()
    results.job("two", 1, lambda: lab.tested(np.full(3, True))).work()
    _, *rows = results._paired(range(2), [("one", "two")])
    assert rows == [
        ["one / two, far", "0", "2", "0", "+2", "0.5"],
        ["one / two, near", "0", "1", "0", "+1", "1"],
        ["one / two", "1", "–", "–", "–", "–"],
    ]
