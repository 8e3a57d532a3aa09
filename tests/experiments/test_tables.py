"""Tables, keys and figures of the experiments, for made-up results."""

import importlib
import re
from pathlib import Path

import made_up
import pytest
from thinning import thinned

from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.experiments import __main__ as command
from minicaps.experiments import lab, results

NETWORKS_DRAWN = {"adversarial", "dimensions", "overlap"}


def module(name):
    return importlib.import_module(f"minicaps.experiments.{name}")


@pytest.mark.parametrize("name", thinned(sorted(set(command.NAMES) - NETWORKS_DRAWN)))
@pytest.mark.filterwarnings("error")
def test_networks_without_any_error_are_drawn(name, monkeypatch):
    """An error of zero has no place on a logarithmic axis."""
    monkeypatch.setattr(lab, "QUICK_TRAINING", 800)
    if name in ("affine", "samples"):
        monkeypatch.setattr(module(name), "DATA", "strokes")
    there = lab.Lab(Path("runs"), True, choose_device("cpu"), None, StopRequest())
    parts = module(name).parts(True)
    module(name).draw(made_up.results(name, parts, right=1.0), Path("one.png"), there)
    assert Path("one.png").stat().st_size > 10_000


OBVIOUS = {"", "%", "squash", "MNIST", "Fashion-MNIST", "rotation", "scale", "shear", "thickness"}


def explained(title, key):
    """Tell whether a title, or each of its parts between : and commas, is obvious or in the key."""
    known = OBVIOUS | key.keys()
    return title in known or all(
        piece in known or any(piece.startswith(word) for word in key)
        for piece in re.split("[:,] ", title)
    )


@pytest.mark.parametrize("name", command.NAMES)
def test_a_key_explains_the_columns_and_nothing_that_is_not_there(name):
    table = module(name).table(made_up.results(name, module(name).parts(False)))
    header, *rows = table
    assert len(set(header)) == len(header)
    assert {len(row) for row in rows} == {len(header)}
    key = results.key(module(name), table)
    assert not [title for title in header if not explained(title, key)]
    words = [cell for row in table for cell in row]
    assert not [word for word in module(name).KEY if not any(word in cell for cell in words)]
    assert module(name).KEY.keys() <= key.keys()
    lines = [f"{word}  {said}" for word, said in key.items()]
    assert max(map(len, lines)) <= 110 and all(map(str.strip, key.values()))


@pytest.mark.parametrize("name", command.NAMES)
def test_the_names_of_rows_are_explained(name):
    """A row needs at least one word of the key in its name."""
    parts = module(name).parts(False)
    table = module(name).table(made_up.results(name, parts))
    key = results.key(module(name), table)
    assert not [row[0] for row in table[1:] if not any(word in row[0] for word in key)]


@pytest.mark.parametrize("name", command.NAMES)
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_a_table_of_any_number_of_seeds(name, seeds):
    made = made_up.results(name, module(name).parts(True), seeds=seeds)
    table = module(name).table(made)
    assert all(isinstance(cell, str) for row in table for cell in row)
    spreads = [cell for row in table[1:] for cell in row if "±" in cell]
    of_source = {"0.34 ± 0.032", "0.29 ± 0.011", "0.35 ± 0.036", "0.25 ± 0.005"}
    key = results.key(module(name), table)
    assert bool(set(spreads) - of_source) == (seeds > 2)
    assert ("±" in key) == bool(spreads)
    assert ("·" in key) == (seeds == 2)
    assert {row[3] for row in module(name).headline(made)} == {str(seeds)}


def test_a_single_network_has_an_interval_and_two_have_none():
    """Of 10,000 pairs, 34.73% lie in [33.80%, 35.67%] by Wilson's formula."""
    assert results.percent([0.3473], count=10_000) == "34.7 [33.8, 35.7]"
    assert results.percent([0.3473, 0.36], count=10_000) == "34.7 · 36.0"
    assert results.percent([0.3473]) == "34.7"
    assert results.error([{"accuracy": 1.0, "tested": 20}]) == "0.00 [0.00, 16.11]"


def test_the_images_learned_are_unknown_in_old_results():
    assert results.images_learned([{"learned": 1000}, {"learned": 1000}]) == "1,000"
    assert results.images_learned([{"learned": 1000}, {"learned": 990}]) == "1,000 · 990"
    assert results.images_learned([{"learned": 1000}, {}]) == "–"


@pytest.mark.parametrize("name", command.NAMES)
def test_the_networks_compared_are_measured(name):
    parts = module(name).parts(False)
    assert all(part in parts for pair in module(name).COMPARED for part in pair)
    assert len(f"tested on  {module(name).TESTED}") <= 110


def test_a_key_is_printed_in_two_columns(capsys):
    results.print_key({"R²": "a share", "slant": "an angle"})
    assert capsys.readouterr().out == "R²     a share\nslant  an angle\n"
