"""Train on arrays in memory, for example in a notebook."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from minicaps.backend import Array, choose_device
from minicaps.data import Dataset
from minicaps.data.images import Target, fitted
from minicaps.data.own import from_memory
from minicaps.data.preprocessing import as_images
from minicaps.models import Network
from minicaps.runs import load_model
from minicaps.storage import check_unused, locked, results_folder
from minicaps.threads import one_blas_thread
from minicaps.train.options import DEFAULTS, complete, parsed
from minicaps.train.progress import Display
from minicaps.train.resume import train, write_config
from minicaps.train.trainer import Trainer

NAME = "minicaps.train.fit"
# Options of the command that select the data to read or that `fit` does not support
LEFT_OUT = {"data", "data_dir", "limit", "compose", "layout", "seeds", "resume", "estimate", "out"}


def fit(
    images: Array,
    labels: Array,
    *,
    class_names: Sequence[str] | None = None,
    test: tuple[Array, Array] | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Network:
    """Train a network on images in memory.

    Parameters
    ----------
    images : array (n, H, W), (n, H, W, C) or (n, C, H, W)
        Floats in [0, 1] or integers up to 255; see `minicaps.data.preprocessing.as_images`.
    labels : array (n,) or (n, J)
        Class numbers or names, or zeros and ones for multi-label data.
    class_names : sequence of str, optional
        Names in the order of the class numbers. By default, the labels serve as names.
    test : pair (images, labels), optional
        Test set, evaluated once after training. `minicaps.evaluate.evaluate` can evaluate the
        network at any time.
    out : path, optional
        Run folder to write, in the format of `python -m minicaps.train`. By default, no files
        are kept.
    **options
        Options of `python -m minicaps.train`, with the same defaults: model="capsnet", epochs=6,
        batch_size=64, learning_rate=…, validation=0.1 (fraction of the images that is held out to
        choose the best epoch), size=28, seed=0, device="auto", quiet=False, and so on.

    Returns
    -------
    Network
        The network of the best epoch, in evaluation mode.

    Raises
    ------
    TypeError, ValueError
        If an option is unknown or has an invalid value.
    minicaps.errors.UserError
        If the images or labels cannot be used, the folder cannot be written, or training diverges.
    """
    if unknown := sorted(options.keys() - (DEFAULTS.keys() - LEFT_OUT)):
        known = ", ".join(sorted(DEFAULTS.keys() - LEFT_OUT))
        raise TypeError(f"fit has no option {', '.join(unknown)}; its options are {known}")
    given = parsed(_as_text(options), _refuse) | {"data": from_memory.NAME}
    data = partial(_dataset, images, labels, class_names, test)
    if out is not None:
        check_unused(out)
        return _trained(out, given, data, _call(options))
    with tempfile.TemporaryDirectory() as folder:
        return _trained(folder, given, data, _call(options))


def _trained(folder, given, data, call):
    """Train in a run folder; return the network of the best epoch. data: a function of the size."""
    chosen = complete(given | {"out": str(folder)})
    device, display = choose_device(chosen.run.device), Display(NAME, chosen.run.quiet)
    trainer = Trainer(chosen, data(chosen.data.size), device, folder, display, stop=False)
    results_folder(folder, "choose another out")
    with locked(folder), one_blas_thread():
        write_config(trainer)
        train(trainer, call)
    return load_model(folder, device)


def _dataset(images, labels, class_names, test, size):
    train, names = from_memory.split_of(images, labels, class_names)
    target = Target(size, train.shape[0])
    train = fitted(train, target)
    tested = train.take(slice(0, 0))
    if test is not None:
        images = as_images(test[0])
        labels = from_memory.targets(test[1], len(images), names)
        tested = fitted(type(train)(images, labels), Target(train.shape[1:], train.shape[0]))
    return Dataset(from_memory.NAME, train, tested, names, by_class=True)


def _as_text(options):
    """Convert options to text for the parser.

    The size may be a number or a pair (height, width).
    """
    size = options.get("size")
    return options | ({"size": list(size)} if isinstance(size, tuple) else {})


def _refuse(message):
    raise ValueError(message)


def _call(options):
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"{NAME}(images, labels{given})"
