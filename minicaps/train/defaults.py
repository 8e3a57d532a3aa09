"""Choose the training options of custom data by its images, where they are not given.

Small data needs small batches, many passes, and changed copies of its images. The numbers were
chosen on the sets of `tests/helpers/custom_sets.py`, where a default has to beat a linear
classifier.
"""

from dataclasses import replace

from minicaps import data
from minicaps.data.dataset import count_classes, imbalanced
from minicaps.errors import counted
from minicaps.models import MODELS
from minicaps.runs import checkpoint
from minicaps.train.diagnosis import MOST_EPOCHS
from minicaps.train.options import check_patience

SMALL, LARGE = 500, 20_000  # training images; see `training_length` and `_augmentation`
STEPS, STEPS_PER_CLASS, MOST_STEPS = 1500, 15, 2100  # unless six epochs take more
EPOCHS = (6, MOST_EPOCHS)  # fewest and most
WARM_UP = 100  # steps
UNSEEN = 0.03  # fraction of the pixels of a given size that is worth a note


def whole_size(options):
    """Return the function that enlarges an automatic size until the network sees all of it.

    The result is None for composed images, which have another size, and for a run that is resumed.
    A run that starts from a network keeps the size of its images, and thus all parameters, if it is
    the one that would be enlarged.
    """
    if options.data.size != "auto" or options.data.compose or options.run.resume is not None:
        return None
    network, preset, kept = MODELS[options.model.name], options.model.preset, None
    if options.run.start_from is not None:
        path = checkpoint.best_of(options.run.start_from)
        _, meta = checkpoint.load(path, needs=("model", "options"), groups=())
        with checkpoint.fitting(path):
            kept = tuple(meta["model"]["input_shape"][1:])

    return lambda size: size if size == kept else network.whole(size, preset)


def settled(options, dataset):
    """Fill in the options that are not given and depend on the data.

    options: `minicaps.runs.configuration.Options`, as returned by
    `minicaps.train.options.complete`. dataset: the loaded data, whose notes will say what was
    chosen. Returns the options and the data set.
    """
    if unseen := _unseen(options, dataset):
        dataset = replace(dataset, notes=(*dataset.notes, unseen))
    if options.data.name in data.NAMES:
        return options, dataset
    if options.data.size == "auto":
        options = options.replace(size=list(dataset.train.pixels.shape[2:]))
    flat, choices = options.to_dict(), _choices(options, dataset)
    chosen = {key: value for key, value in choices.items() if flat[key] is None}
    options = options.replace(**chosen)
    check_patience(options.optimization)
    if chosen:
        dataset = replace(dataset, notes=(*dataset.notes, _sentence(chosen, options, dataset)))
    return options, dataset


def _unseen(options, dataset):
    """Describe the rows and columns of images of a given size that the network does not see."""
    if options.data.size in (None, "auto") or options.data.compose:
        return None
    network, preset = MODELS[options.model.name], options.model.preset
    size = dataset.train.shape[1:]
    seen = network.seen(size, preset)
    if seen[0] * seen[1] >= (1 - UNSEEN) * size[0] * size[1]:
        return None
    left = [whole - part for whole, part in zip(size, seen, strict=True)]
    kinds = zip(left, ("row", "column"), strict=True)
    lost = " and ".join(
        f"the last {n} {kind}s" if n > 1 else f"the last {kind}" for n, kind in kinds if n
    )
    height, width = network.whole(size, preset)
    return (
        f"the network does not see {lost} of images of {size[0]}×{size[1]} pixels, which the"
        f" strides of its convolutions leave over; it sees images of --size {height}x{width} whole"
    )


def _choices(options, dataset):
    """Return a value for each option that depends on the data."""
    n, own = _trained_on(options, dataset), options.optimization
    batch_size, epochs = training_length(n, len(dataset.class_names), own.batch_size)
    steps = -(-n // batch_size) * (own.epochs or epochs)
    return {
        "batch_size": batch_size,
        "epochs": epochs,
        "balance": not dataset.multi and imbalanced(_counts(dataset)),
        "warm_up": min(WARM_UP, steps // 10),
        **_augmentation(options, dataset, n),
    }


def _trained_on(options, dataset):
    """Return the number of training images that remain beside the validation images."""
    size = options.data.validation
    held_out = 0 if size == 0 else dataset.validation_count(size)
    return max(1, len(dataset.train) - held_out)


def training_length(n, classes, batch_size=None):
    """Return the batch size and the number of epochs for n training images.

    batch_size: the batch size, if it is given.
    """
    batch_size = batch_size or (16 if n < SMALL else 32 if n < LARGE else 64)
    wanted = min(STEPS + STEPS_PER_CLASS * classes, MOST_STEPS)
    epochs = round(wanted / -(-n // batch_size))
    return batch_size, min(max(epochs, EPOCHS[0]), EPOCHS[1])


def _augmentation(options, dataset, n):
    """Return small shifts, rotations and changes of size, which rarely change the class."""
    if options.data.compose or n >= LARGE:
        return {"shift": 0, "rotate": 0.0, "zoom": 0.0}
    return {"shift": max(1, round(min(dataset.train.shape[1:]) / 14)), "rotate": 10.0, "zoom": 0.1}


def _counts(dataset):
    return count_classes(dataset.train.labels, len(dataset.class_names))


def _sentence(chosen, options, dataset):
    """Describe the chosen options and the reason for them."""
    own, n = options.optimization, _trained_on(options, dataset)
    steps = own.epochs * -(-n // own.batch_size)
    texts = {
        "batch_size": f"batches of {own.batch_size}",
        "epochs": f"{own.epochs} epochs ({steps:,} steps)",
        "balance": "classes drawn equally often",
        "warm_up": f"{own.warm_up} steps of warm-up",
        "shift": f"shifts of up to {counted(options.data.shift, 'pixel')}",
        "rotate": f"rotations of up to {options.data.rotate:g}°",
        "zoom": f"zoom by up to {options.data.zoom or 0:.0%}",
    }
    done = ", ".join(text for key, text in texts.items() if chosen.get(key))
    return (
        f"chosen for {n:,} training images of {len(dataset.class_names)} classes: {done}; options"
        " you give take precedence"
    )
