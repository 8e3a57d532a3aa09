"""The explorer: a page in which a trained CapsNet computes in the browser."""

import base64

from minicaps.explore.embedded import describe, describe_beside
from minicaps.explore.page import page, static
from minicaps.explore.slim import BESIDE, NETWORKS, Examples, stored_examples
from minicaps.models import Network
from minicaps.runs.building import load_model

SCRIPTS = (
    "capsnet", "images", "situation", "charts", "readout", "overlay",
    "drawing", "bars", "inside", "knobs", "pair", "breaking", "explorer",
)  # fmt: skip
TITLE = "A capsule network you can touch"


def explorer(
    model: Network,
    beside: Network | None = None,
    examples: Examples | None = None,
    *,
    lessons: str | None = None,
) -> str:
    """Return the HTML page of a CapsNet.

    Parameters
    ----------
    model
        A CapsNet, whose weights are rounded to float16. Others raise CannotExplore.
    beside
        A dense-cnn for the same images and classes, which is compared with it.
    examples
        Test images to choose from.
    lessons
        Address of the folder of the lessons' web pages, to which equations are linked: "" if the
        page lies in it, or None for no links.
    """
    data = {
        "network": describe(model),
        "beside": describe_beside(beside, model) if beside else None,
        "examples": _as_text(examples),
        "lessons": lessons,
    }
    scripts = [static(f"{name}.js") for name in SCRIPTS]
    styles = [static("explorer.css")]
    return page(TITLE, static("explorer.html"), styles=styles, scripts=scripts, data=data)


def explorer_of(name: str, *, lessons: str | None = None) -> str:
    """Return the page of a network in the repository, with the network beside it, if any."""
    path, other = NETWORKS / f"{name}.npz", NETWORKS / f"{name}{BESIDE}.npz"
    beside = load_model(other) if other.exists() else None
    return explorer(load_model(path), beside, stored_examples(path), lessons=lessons)


def _as_text(examples: Examples | None):
    if examples is None:
        return {"labels": [], "pixels": ""}
    pixels = base64.b64encode(examples.images.tobytes()).decode("ascii")
    return {"labels": examples.labels, "pixels": pixels}
