"""Values of a CapsNet as `minicaps` computes them, for comparison with `static/capsnet.js`.

Run as a script, this module writes values of a few images, which tests compare in git:

    python tests/helpers/explored.py
"""

from pathlib import Path

import numpy as np

from minicaps import Tensor, no_grad
from minicaps.explore.embedded import rounded
from minicaps.explore.slim import NETWORKS, stored_examples
from minicaps.models import inspection
from minicaps.routing import keep_history
from minicaps.routing.registry import choose
from minicaps.runs import load_model

FILE = Path(__file__).parents[1] / "explore" / "twins.npz"
STORED = NETWORKS / "mnist.npz"
FEW = (3, 12)  # examples in the file
UPDATES = ("accumulate", "recompute", "spherical")
OFFERED = [(routing, update) for routing in ("agreement", "leaky") for update in UPDATES]
OFFERED += [("distance", None)]


def stored():
    """Return the network in the repository, with rounded weights, and its examples in [0, 1]."""
    images = stored_examples(STORED).images.astype(np.float32) / 255
    return rounded(load_model(STORED)), images


def values(model, images, routing, update, iterations=3):
    """Return the values of images with another routing of the model's votes, by name.

    couplings (B, r, J, I), with the orphans as a last row in leaky routing; lengths (B, r, J); and
    drawn (B, C, H, W), the reconstructions from the longest capsules.
    """
    options = {"iterations": iterations, "update": update}
    options = {key: value for key, value in options.items() if value is not None}
    squash = model.classes.routing.route.keywords.get("squash", "paper")
    route = choose(routing, squash=squash, **options)
    with no_grad(), keep_history():
        u = model.primary_capsules(Tensor(images))
        votes = np.einsum("bin,ijnd->bijd", u.data, model.classes.weight.data)
        routed = route(Tensor(votes))
    lengths = np.stack([each.activations.data for each in routed.history], 1)
    keep = lengths[:, -1].argmax(axis=1)
    drawn = zip(routed.poses.data, keep, strict=True)
    return {
        "couplings": np.stack([each.couplings.data for each in routed.history], 1).swapaxes(2, 3),
        "lengths": lengths,
        "drawn": np.stack([inspection.reconstruction(model, *each) for each in drawn]),
    }


def few():
    """Return {"routing update what": values of the examples `FEW`}."""
    model, images = stored()
    return {
        f"{routing} {update} {what}": array
        for routing, update in OFFERED
        for what, array in values(model, images[list(FEW)], routing, update).items()
    }


def as_shares(array):
    """Return numbers from 0 to 1 as integers of 16 bits, exact to 1/131,070."""
    return np.round(65535 * np.clip(array, 0, 1)).astype(np.uint16)


if __name__ == "__main__":
    np.savez_compressed(FILE, **{name: as_shares(array) for name, array in few().items()})
    print(f"wrote {FILE} ({FILE.stat().st_size:,} bytes)")
