"""Train on arrays in memory, for example in a notebook."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minicaps import ranks
from minicaps.backend import Array
from minicaps.cli.blas import one_blas_thread
from minicaps.data import Dataset, Split
from minicaps.data.images import Target, fitted
from minicaps.data.ink import CHOICES, inverted
from minicaps.data.own import from_memory
from minicaps.data.own.remarks import remarks
from minicaps.data.own.sizing import sized
from minicaps.data.preprocessing import as_images
from minicaps.models import Network
from minicaps.runs import load_model
from minicaps.storage import check_unused, locked, results_folder
from minicaps.train.defaults import settled, whole_size
from minicaps.train.options import DEFAULTS, complete, parsed
from minicaps.train.progress import Display
from minicaps.train.resume import device_of, draw, make_trainer, train, write_config

NAME = "minicaps.train.fit"
SWITCHES = {"balance", "batch_norm", "shared", "multi_label", "tf32", "quiet"}  # True or False
# Options of the command that select the data to read or that `fit` does not support
LEFT_OUT = {"data", "data_dir", "limit", "compose", "layout", "seeds", "resume", "estimate", "out"}
LEFT_OUT |= {"frames", "skip_bad"}


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
        Integers or names, or zeros and ones, which are multi-label data unless each row has a
        single 1 or the option multi_label=True is given.
    class_names : sequence of str, optional
        Names in the order of the class numbers. By default, the labels serve as names.
    test : pair (images, labels), optional
        Test set, evaluated once after training. `minicaps.evaluate.evaluate` can evaluate the
        network at any time.
    out : path, optional
        Run folder to write, in the format of `python -m minicaps.train`. By default, no files
        are kept.
    **options
        Options of `python -m minicaps.train`, such as model="capsnet", epochs=20,
        learning_rate=…, validation=0.1 (fraction of the images that is held out to choose the best
        epoch), seed=0, device="auto", quiet=False. Batch size, epochs, warm-up, augmentation,
        balance and image size depend on the images unless they are given; see
        `minicaps.train.defaults`.

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
    if out is None:
        folder = ranks.by_root(tempfile.mkdtemp)
        try:
            return _trained(Path(folder), given, data, _call(options))
        finally:
            if ranks.is_root():  # without the others, which may have failed
                shutil.rmtree(folder)
    return _trained(Path(out), given, data, _call(options))


def _trained(folder, given, data, call):
    """Train in a run folder; return the network of the best epoch.

    data: function that takes the `Options`.
    """
    options = complete(given | {"out": str(folder)})
    device, display = device_of(options.run), Display(NAME, options.run.quiet)
    dataset = inverted(data(options), CHOICES[options.data.invert])
    options, dataset = settled(options, dataset)
    ranks.by_root(results_folder, folder, "choose another out")
    with ranks.held_by_root(locked(folder)), one_blas_thread():
        ranks.by_root(_check_unused, folder)
        trainer = make_trainer(options, dataset, device, display, stop=False)
        write_config(trainer)
        try:
            trainer, _ = train(trainer, call)
            ranks.by_root(draw, trainer)
        except BaseException:
            if not (folder / "best.npz").exists() and ranks.is_root():  # else it holds a network
                (folder / "config.json").unlink()
            raise
    model = load_model(folder, device)
    ranks.barrier()  # the folder may be removed now
    return model


def _check_unused(folder):
    try:
        check_unused(folder)
    except ValueError:
        raise ValueError(f"{folder} already exists and is not empty: choose another out") from None


def _dataset(images, labels, class_names, test, options):
    multi = options.data.multi_label
    train, names = from_memory.split_of(images, labels, class_names, multi_label=multi)
    target = Target(options.data.size, train.shape[0], whole=whole_size(options))
    target, resized = sized(target, [train.shape[1:]])
    train = fitted(train, target)
    tested = train.take(slice(0, 0))
    if test is not None:
        if not isinstance(test, list | tuple) or len(test) != 2:
            raise ValueError("test must be a pair (images, labels)")
        images = as_images(test[0])
        labels = from_memory.targets(test[1], len(images), names, multi=train.multi)
        tested = fitted(Split(images, labels), Target(train.shape[1:], train.shape[0]))
    notes = (*resized, *remarks({"train": train, "test": tested}))
    return Dataset(from_memory.NAME, train, tested, names, by_class=True, notes=notes)


def _as_text(options):
    """Convert the values that the parser does not accept as they are, such as True and tuples."""
    texts = {}
    for name, value in options.items():
        value = value.item() if isinstance(value, np.generic) else value
        if name in SWITCHES and isinstance(value, int):
            value = bool(value)
        elif name == "invert" and isinstance(value, bool):
            value = "yes" if value else "no"
        elif value is True:
            raise ValueError(f"{name} must have a value, not True")
        elif value is False:
            value = 0
        texts[name] = list(value) if isinstance(value, tuple) else value
    return texts


def _refuse(message):
    """Raise ValueError for an option, named as in Python."""
    message = re.sub(r"(argument )?--([a-z0-9-]+)", lambda m: m[2].replace("-", "_"), message)
    raise ValueError(message)


def _call(options):
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"{NAME}(images, labels{given})"
