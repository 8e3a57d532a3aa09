"""What a file with a network says about it: where it comes from, what it takes, what it returns."""

import hashlib
from dataclasses import asdict

import minicaps
from minicaps.data import NAMES
from minicaps.data.own.files import name_of
from minicaps.models.multilabel import SEEN
from minicaps.runs.checkpoint import FORMAT

VALUES = {
    "length": "the lengths of the capsules",
    "activation": "the activations of the capsules",
    "probability": "the outputs of sigmoids",
    "logit": "logits",
}
PATHS = ("data_dir", "out", "resume", "start_from")  # options that concern one machine only


def description_of(run, *, inverts):
    """Describe the network of a run as a JSON-serializable dictionary.

    inverts: whether the file swaps light and dark itself, if the training images were inverted.
    """
    model = run.model
    with open(run.path, "rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "format": FORMAT,
        "minicaps": minicaps.__version__,
        "checkpoint_sha256": checksum,
        "model": model.config,
        "class_names": list(model.class_names),
        "multi_label": model.multi,
        "loss": model.loss,
        "input": input_of(model.preprocessing, inverts),
        "output": output_of(model),
        "preprocessing": asdict(model.preprocessing),
        "options": _options(run),
    }


def _options(run):
    """Return the training options without paths of this machine."""
    options = run.options.to_dict() | dict.fromkeys(PATHS)
    known = options["data"] in NAMES
    return options | {"data": options["data"] if known else name_of(options["data"])}


def input_of(images, inverts):
    """Say how to prepare images. images: the `Preprocessing`. inverts: see `description_of`."""
    (c, h, w), color = images.shape, "RGB" if images.shape[0] == 3 else "gray"
    said = [
        f"images are float32 (B, {c}, {h}, {w}): {color}, from 0 (black) to 1 (white), with bytes"
        " divided by 255"
    ]
    if images.scale is not None:
        black, white = images.scale
        above = f"(x {'−' if black > 0 else '+'} {abs(black):g})" if black else "x"
        said.append(
            f"in the training arrays, black was {black:g} and white {white:g}: map such pixels x to"
            f" {above} / {white - black:g}, clipped to 0 and 1"
        )
    pad = "the median color of their border" if images.fill is None else f"{images.fill:g}"
    said.append(
        f"images of another size are resized to fit in {h}×{w}, with their proportions kept,"
        f" bilinearly and with averaging where they shrink, and padded with {pad}"
    )
    if images.centred:
        said.append(
            "in drawings of another size, the ink is first scaled to fit in 20/28 of the size, and"
            " its center of mass moved to the center, as in MNIST"
        )
    if images.inverted and inverts:
        said.append("light and dark are swapped inside the graph, as in training")
    elif images.inverted:
        said.append("light and dark must then be swapped, x to 1 − x, as in training")
    elif images.background in ("dark", "light"):
        other = "light" if images.background == "dark" else "dark"
        said.append(
            f"the training images had a {images.background} background: swap light and dark,"
            f" x to 1 − x, in images with a {other} one"
        )
    return "; ".join(said)


def output_of(model):
    """Say how to read the probabilities (B, J), as `Network.probabilities` computes them."""
    said = "probabilities (B, J) of the J classes in class_names"
    what = "the sigmoids of the logits" if model.sigmoids else VALUES[model.raw_score]
    if model.multi:
        return f"{said}, independent of each other ({what}): the classes above {SEEN} are present"
    if model.logits and not model.sigmoids:
        return f"{said} (the softmax of the logits): the highest is predicted"
    if model.shares:
        return f"{said} ({what}, divided by their sum): the highest is predicted"
    if model.loss == "spread":
        return f"{said} ({what}): the highest is predicted; only their order was trained"
    return (
        f"{said}, independent of each other ({what}): the highest is predicted; if it is not above"
        f" {SEEN}, no class is seen"
    )
