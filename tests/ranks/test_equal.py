"""Several ranks train the same network as one process, up to rounding."""

from pathlib import Path

import numpy as np
import pytest
from mpi import needs_mpi, run
from rank_cases import cases
from thinning import thinned

PROGRAM = Path(__file__).parents[1] / "helpers" / "rank_cases.py"
FEW = ("capsnet agreement margin", "capsnet multi-label", "matrix-capsnet batch norm")
CLOSE = {"matrix-capsnet": 1e-8}  # its routing, EM, divides by small variances
pytestmark = needs_mpi


def trained(ranks, folder, *names):
    """Train cases on some ranks and, with each rank alone, on one; return both by case."""
    run(ranks, PROGRAM, folder / "found.npz", *names)
    with np.load(folder / "found.npz") as file:
        arrays = {key: file[key] for key in file.files}
    found = {}
    for key, array in arrays.items():
        way, name, kind = key.split("/", 2)
        found.setdefault(name, {}).setdefault(way, {})[kind] = array
    return found


def assert_close(found):
    for name, ways in found.items():
        close = CLOSE.get(name.split()[0], 1e-10)
        for kind, alone in ways["alone"].items():
            together = ways["together"][kind]
            if kind in ("right", "counts"):
                np.testing.assert_array_equal(together, alone, err_msg=f"{name}: {kind}")
            else:
                wrong = abs(together - alone).max() / max(1, abs(alone).max())
                assert wrong <= close, f"{name}: {kind} differs by {wrong}"


@pytest.mark.parametrize("ranks", thinned([3, 2]))
def test_ranks_train_the_same_network(tmp_path, ranks):
    assert_close(trained(ranks, tmp_path, *FEW))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_train_the_same_network_in_every_case(tmp_path, ranks):
    found = trained(ranks, tmp_path)
    assert found.keys() == cases().keys()
    assert_close(found)


@pytest.mark.slow
def test_the_same_ranks_repeat_every_bit(tmp_path):
    names = ("capsnet agreement margin", "capsule-cnn batch norm", "capsnet composed")
    one, other = (trained(3, tmp_path, *names) for _ in range(2))
    for name in names:
        for kind, array in one[name]["together"].items():
            np.testing.assert_array_equal(array, other[name]["together"][kind], err_msg=kind)
