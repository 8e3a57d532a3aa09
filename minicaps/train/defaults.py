"""Choose the training options of custom data by its images, where they are not given.

Small data needs small batches, many passes, and changed copies of its images. The numbers were
chosen on the sets of `tests/helpers/custom_sets.py`, where a default has to beat a linear
classifier.
"""

from dataclasses import replace

from minicaps import data
from minicaps.data.dataset import count_classes, imbalanced
from minicaps.models.losses import ABSENT
from minicaps.train.diagnosis import MOST_EPOCHS
from minicaps.train.options import check_patience

SMALL, LARGE = 500, 20_000  # training images; see `_batch_size` and `_augmentation`
STEPS, STEPS_PER_CLASS, MOST_STEPS = 1500, 15, 2100  # unless six epochs take more
EPOCHS = (6, MOST_EPOCHS)  # fewest and most
WARM_UP = 100  # steps
USUAL_CLASSES = 10  # for which the margin loss weighs absent classes by 0.5


def settled(options, dataset):
    """Fill in the options that are not given and depend on the data.

    options: `minicaps.runs.configuration.Options`, as returned by
    `minicaps.train.options.complete`. dataset: the loaded data, whose notes will say what was
    chosen. Returns the options and the data set.
    """
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


def _choices(options, dataset):
    """Return a value for each option that depends on the data."""
    n, own = _trained_on(options, dataset), options.optimization
    batch_size = own.batch_size or _batch_size(n)
    steps = -(-n // batch_size)  # per epoch
    wanted = min(STEPS + STEPS_PER_CLASS * len(dataset.class_names), MOST_STEPS)
    epochs = min(max(round(wanted / steps), EPOCHS[0]), EPOCHS[1])
    return {
        "batch_size": batch_size,
        "epochs": epochs,
        "balance": not dataset.multi and imbalanced(_counts(dataset)),
        "warm_up": min(WARM_UP, steps * (own.epochs or epochs) // 10),
        "absent_weight": _absent_weight(options, dataset),
        **_augmentation(options, dataset, n),
    }


def _trained_on(options, dataset):
    """Return the number of training images that remain beside the validation images."""
    size = options.data.validation
    held_out = 0 if size == 0 else dataset.validation_count(size)
    return max(1, len(dataset.train) - held_out)


def _batch_size(n):
    return 16 if n < SMALL else 32 if n < LARGE else 64


def _absent_weight(options, dataset):
    """Return the weight of absent classes in the margin loss.

    Together, the absent classes of an image count at most as much as those of ten classes. With
    the usual weight, networks for a hundred classes make all lengths short at first and take long
    to recover.
    """
    if options.optimization.loss != "margin" or dataset.multi or options.data.compose:
        return ABSENT
    return ABSENT * min(1, (USUAL_CLASSES - 1) / max(len(dataset.class_names) - 1, 1))


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
        "absent_weight": own.absent_weight != ABSENT
        and f"weight {own.absent_weight:.2g} of absent classes",
        "shift": f"shifts of up to {options.data.shift} pixels",
        "rotate": f"rotations of up to {options.data.rotate:g}°",
        "zoom": f"zoom by up to {options.data.zoom or 0:.0%}",
    }
    done = ", ".join(text for key, text in texts.items() if chosen.get(key) and text)
    return (
        f"chosen for {n:,} training images of {len(dataset.class_names)} classes: {done}; options"
        " you give take precedence"
    )
