"""Start a run from the parameters of another run, whose classes or images may be different."""

import hashlib
import json
from pathlib import Path

import numpy as np

from minicaps import models
from minicaps.data import NAMES
from minicaps.data.stored import on_host
from minicaps.runs import checkpoint
from minicaps.runs.building import tell_apart

SHOWN = 5  # names in a note


def take_over(model, options, path) -> str | None:
    """Load all parameters of a checkpoint that suit a model, and return a note about the others.

    If the classes or the size of the images are different, all arrays of the same shape are taken
    over, except that the parameters of a class are taken over only if the checkpoint has a class of
    the same name. The note is None if all parameters are taken over as they are.

    Raises ValueError if the networks differ in anything else, or have no parameters in common.
    """
    arrays, meta = checkpoint.load(path, needs=("model", "options"), groups=["model"])
    saved, own = checkpoint.unpack(arrays, "model"), model.state_dict()
    with checkpoint.fitting(path):
        network = {"model": model.config, "options": options.to_dict()}
        names = meta.get("preprocessing", {}).get("class_names")
        names = list(names or _numbers(meta["model"]["classes"]))
    why = tell_apart(meta, network)
    if names == list(model.class_names) or "preprocessing" not in meta:
        try:
            model.load_state_dict(saved)
            return None
        except ValueError as error:
            why = why or str(error)
    axes = _class_axes(model)
    if not (_same_options(meta, network) or _same_layers(own, saved, axes)):
        raise ValueError(_refusal(path, why))
    known = [name for name in model.class_names if name in names]
    to, source = ([each.index(name) for name in known] for each in (model.class_names, names))
    new, part = [], []
    for name, array in own.items():
        there, along = saved.get(name), axes.get(name, [])
        if there is None or not _alike(array, there, along) or (along and not known):
            new.append(name)
            continue
        here = _of_classes(array, along, len(model.class_names), to)
        array[here] = there[_of_classes(there, along, len(names), source)]
        if along and len(known) < len(model.class_names):
            part.append(name)
    if len(new) == len(own):
        raise ValueError(_refusal(path, why))
    model.load_state_dict(own)
    return _note(path, len(own), new, part, known)


def _numbers(classes):
    return map(str, range(classes))


def _same_options(meta, here):
    """Return whether two networks differ at most in their classes and the size of their images."""
    kinds = [
        (each["model"]["name"], each["model"]["options"], each["options"].get("precision"))
        for each in (meta, here)
    ]
    return kinds[0] == kinds[1]


def _refusal(path, why):
    return (
        f"{path} contains a different network: {why}; give the same options and data as its"
        " run (they are in its config.json), or leave --start-from out"
    )


def _class_axes(model):
    """Return {name: axes} for the arrays with axes whose length is a multiple of the classes.

    They are found by comparison with a network that has one more class.
    """
    own = model.config
    larger = models.build(own["name"], own["input_shape"], own["classes"] + 1, **own["options"])
    shapes = {name: array.shape for name, array in larger.state_dict().items()}
    return {
        name: np.flatnonzero(np.array(array.shape) != shapes[name]).tolist()
        for name, array in model.state_dict().items()
        if array.shape != shapes[name]
    }


def _alike(one, other, axes):
    """Return whether two arrays agree in dtype and shape, except along the axes of the classes."""
    if one.dtype != other.dtype or one.ndim != other.ndim:
        return False
    sides = zip(one.shape, other.shape, strict=True)
    return all(k in axes or a == b for k, (a, b) in enumerate(sides))


def _same_layers(own, saved, axes):
    """Return whether two networks have the same arrays, except along the axes of the classes."""
    return own.keys() == saved.keys() and all(
        _alike(array, saved[name], axes.get(name, [])) for name, array in own.items()
    )


def _of_classes(array, axes, classes, which):
    """Return an index of the entries that belong to some of the classes, along all given axes."""
    each = [np.arange(side) for side in array.shape]
    for k in axes:
        each[k] = each[k].reshape(classes, -1)[which].ravel()
    return np.ix_(*each)


def _note(path, count, new, part, known):
    said = [f"{count - len(new)} of {count} parameter arrays are copied from {path}"]
    if known:
        said.append(f"classes are matched by name ({_some(known)})")
    if part:
        said.append(f"newly initialized for the other classes: {', '.join(part)}")
    if new:
        said.append(f"newly initialized: {', '.join(new)}")
    return "; ".join(said)


def _some(names):
    return ", ".join(names[:SHOWN]) + (", …" if names[SHOWN:] else "")


# ---- training images of the other run


def fingerprints(split) -> list[str]:
    """Return a short checksum of each image, or of each single image if images are composed."""
    found = []
    for image in on_host(split.pixels):
        pixels = np.rint(image * 255).astype(np.uint8)
        digest = hashlib.blake2b(f"{pixels.shape}".encode(), digest_size=6)
        digest.update(pixels.tobytes())
        found.append(digest.hexdigest())
    return found


def seen_before(splits, source, path) -> str | None:
    """Report validation and test images that another run of custom data was trained on.

    splits: {"train": …, "validation": …, "test": …}. source: name or path of the data. path: the
    checkpoint of the other run. Images are compared by their pixels and, if both runs read the same
    path, by their names.
    """
    if source in NAMES or splits["test"].names is None:
        return None
    try:
        parts = json.loads(Path(path).with_name("split.json").read_text())
        pixels, names = set(parts.get("train_fingerprints", ())), set(parts["train"])
    except (OSError, ValueError, TypeError, LookupError, AttributeError):  # no custom data
        return None
    _, meta = checkpoint.load(path, needs=("options",), groups=())
    same_source = meta["options"].get("data") == source
    counts = []
    for kind in ("test", "validation"):
        if split := splits[kind]:
            prints = fingerprints(split)
            seen = {k for k, each in enumerate(prints) if each in pixels}
            if same_source:
                seen |= {k for k, name in enumerate(split.names.tolist()) if name in names}
            counts += [f"{len(seen):,} of {len(prints):,} {kind} images"] if seen else []
    if not counts:
        return None
    advice = "choose test images that it has not seen"
    if same_source:
        seed = meta["options"].get("seed")
        advice = f"start a new run with --seed {seed}, and the --validation and --limit of that run"
    return (
        f"{path} was trained on {' and '.join(counts)} of this run, whose accuracy is"
        f" therefore too high: {advice}"
    )
