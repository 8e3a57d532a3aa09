"""Networks small enough for the repository: checkpoints of float16 weights and some images."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from minicaps.data import Dataset
from minicaps.data.dataset import of_class
from minicaps.errors import DataError, UserError
from minicaps.explore.embedded import rounded
from minicaps.models.inspection import FAINT, contrast
from minicaps.runs import checkpoint
from minicaps.runs.run import Run

NETWORKS = Path(__file__).parent / "networks"
BESIDE = "-beside"  # the end of the name of the network that is compared with NAME
EXAMPLES = 30  # test images on a page
LOST = 0.001  # accuracy that rounding may cost


class Examples(NamedTuple):
    """Test images as bytes (n, C, H, W), and the names of their classes as text."""

    images: np.ndarray
    labels: list[str]


def examples_of(run: Run, data: Dataset) -> Examples:
    """Return the first test images of every class, in equal numbers, without blank ones."""
    split, names = data.test, run.model.class_names
    if split.multi:
        which = np.arange(min(EXAMPLES, len(split)))
        labels = [" + ".join(np.array(names)[row > 0]) for row in split.labels[which]]
    else:
        each = max(1, EXAMPLES // len(names))
        found = [_clear(split, of_class(split.labels, k))[:each] for k in range(len(names))]
        which = np.concatenate(found).astype(int)
        labels = [names[k] for k in split.labels[which]]
    images = np.asarray(split.take(which).images)
    return Examples(np.round(255 * images).astype(np.uint8), labels)


def _clear(split, mask):
    """Return the indices of the first images inside the mask (n,) that are not blank."""
    which = np.flatnonzero(mask)[: 4 * EXAMPLES]
    return which[contrast(split.take(which).images) >= FAINT] if len(which) else which


def stored_examples(path: Path) -> Examples | None:
    """Return the test images in a slim checkpoint, or None if it is another checkpoint."""
    arrays, meta = checkpoint.load(checkpoint.best_of(path), groups=["examples"])
    if "examples" not in meta:
        return None
    return Examples(arrays["examples/images"], meta["examples"])


def store(run: Run, file: Path, examples: Examples | None = None) -> None:
    """Write the network of a run as a slim checkpoint, which `open_run` reads as any other."""
    arrays, meta = checkpoint.load(run.path, groups=["model"])
    state = {name: a.astype(np.float16) for name, a in checkpoint.unpack(arrays, "model").items()}
    kept = {key: meta[key] for key in ("model", "options", "preprocessing")}
    kept["options"] = kept["options"] | {"out": None, "resume": None, "data_dir": None}
    if examples is None:
        checkpoint.save(file, checkpoint.pack(model=state), kept)
    else:
        grouped = checkpoint.pack(model=state, examples={"images": examples.images})
        checkpoint.save(file, grouped, kept | {"examples": examples.labels})


def check(run: Run, data: Dataset) -> str:
    """Compare a network with the rounded one on all test images, and describe the result.

    The model of the run is rounded. Raises UserError if rounding costs more than `LOST` of the
    accuracy.
    """
    images, labels = np.asarray(data.test.pixels[:]), data.test.labels
    if data.test.multi:
        raise DataError("only networks for one class per image can be stored in the repository")
    before = run.model.predict(images).indices
    after = rounded(run.model).predict(images).indices
    accuracy = [float(np.mean(found == labels)) for found in (before, after)]
    if accuracy[1] < accuracy[0] - LOST:
        raise UserError(
            f"rounding to float16 lowers the accuracy from {accuracy[0]:.2%} to {accuracy[1]:.2%}:"
            " store another network"
        )
    return (
        f"{accuracy[1]:.2%} of {len(labels):,} test images are correct; rounding changes"
        f" {np.sum(before != after)} predictions"
    )
