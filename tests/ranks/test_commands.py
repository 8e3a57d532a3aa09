"""Commands and library functions that several ranks share."""

import json
from pathlib import Path

import numpy as np
import pytest
from mpi import needs_mpi, run
from tiny_runs import run as train_alone

from minicaps import data
from minicaps.data.images import write_picture

pytestmark = needs_mpi

FIT = """
import sys
import numpy as np
from minicaps import ranks
from minicaps.evaluate import evaluate
from minicaps.train import fit
rng = np.random.default_rng(0)
images, labels = rng.random((60, 28, 28)), np.arange(60) % 3
options = {"epochs": 1, "batch_size": 8, "quiet": True, "device": "cpu", "precision": "float64"}
options |= {"restarts": 0}
network = fit(images, labels, validation=0.2, **options)
every = ranks.gather(network.state_dict())
assert all(np.array_equal(every[0][k], one[k]) for one in every for k in every[0])
found = evaluate(network, images, labels)
with ranks.alone():
    assert evaluate(network, images, labels) == found
    alone = fit(images, labels, validation=0.2, **options).state_dict()
assert all(abs(alone[k] - every[0][k]).max() < 1e-10 for k in alone)
assert ranks.gather(found["accuracy"]) == [found["accuracy"]] * ranks.count()
print("done")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a network of the usual size on few digits; return its folder."""
    folder = tmp_path_factory.mktemp("run")
    options = ("--limit", "40", "--epochs", "1", "--quiet", "--out", folder / "first")
    run(1, "-m", "minicaps.train", *options)
    return folder / "first"


def test_ranks_evaluate_as_one_process_does(trained, tmp_path):
    """The test images are 8 batches, which three ranks cannot share equally."""
    said = [
        run(n, "-m", "minicaps.evaluate", trained, "--out", tmp_path / str(n))[0] for n in (1, 3)
    ]
    assert said[0].replace(str(tmp_path / "1"), "") == said[1].replace(str(tmp_path / "3"), "")
    found = [json.loads((tmp_path / n / "evaluation.json").read_text()) for n in "13"]
    for result in found:
        del result["command"]
    assert found[0] == found[1]
    tables = [(tmp_path / n / "predictions.csv").read_text() for n in "13"]
    assert tables[0] == tables[1]


def test_ranks_predict_in_order(trained, tmp_path):
    images, names = data.load("strokes", limit=1).test.images[:7], "gbfaced"
    for name, image in zip(names, images, strict=True):
        with open(tmp_path / f"{name}.png", "wb") as file:
            write_picture(file, image)
    Path(tmp_path, "broken.png").write_bytes(b"broken")
    line = ("-m", "minicaps.predict", trained, *sorted(tmp_path.glob("*.png")))
    options = ("--format", "csv", "--no-figures")
    alone, together = (run(n, *line, *options, code=1) for n in (1, 3))
    assert alone == together
    assert together[0].count("\n") == 9  # the header and a row for each file
    run(3, *line, "--out", tmp_path / "figures", code=1)
    assert sorted(p.stem for p in (tmp_path / "figures").iterdir()) == sorted(names)


@pytest.mark.slow
def test_fit_and_evaluate_on_ranks(tmp_path):
    assert run(2, "-c", FIT, cwd=tmp_path)[0].count("done") == 2


DIFFERENT = """
import numpy as np
from minicaps import ranks
from minicaps.errors import DataError
from minicaps.train import fit
rng = np.random.default_rng(ranks.rank())
try:
    fit(rng.random((60, 28, 28)), np.arange(60) % 3, epochs=1, quiet=True, device="cpu")
except DataError as error:
    print(error)
"""


@pytest.mark.slow
def test_ranks_with_different_images_are_refused(tmp_path):
    assert run(2, "-c", DIFFERENT, cwd=tmp_path)[0].count("have different images or labels") == 2


def test_a_summary_records_the_ranks(tiny):
    folder = train_alone()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ranks"] == {"count": 1, "threads": summary["machine"]["cores"]}
    assert np.isfinite(summary["test_loss"])
