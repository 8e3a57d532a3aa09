"""Split custom data into training and test images, and limit the training images."""

import numpy as np

from minicaps.data.dataset import count_classes, draw_by_class, generator
from minicaps.data.own.files import some_of
from minicaps.errors import DataError, counted

TEST_SHARE = 0.2  # fraction of images for testing if the data does not define a test set


def cut_test(whole, class_names, seed, path, *, validation):
    """Split images into training and test sets, stratified by class.

    validation: whether a validation set will be cut from the training set.

    Raises `DataError` if a class has too few images.
    """
    files = whole if whole.groups is None else whole.take(np.unique(whole.groups, True)[1])
    counts = count_classes(files.labels, len(class_names))
    least, what = (3, "training, validation and test") if validation else (2, "training and test")
    if counts.min() < least:
        raise DataError(
            f"class {class_names[counts.argmin()]!r} of {path} has"
            f" {counted(counts.min(), 'image')}, but at least {least} are needed for"
            f" {what}: add images or remove the class"
        )
    # One of each class; of multi-label data with many classes, one of each stratum, if possible
    each = (len(class_names), len(np.unique(whole.strata)), 1)
    least = next(count for count in each if 2 * count <= len(whole))
    count = max(round(TEST_SHARE * len(whole)), least)
    held_out = draw_by_class(whole.strata, count, generator(seed, 2), whole.groups)
    return whole.take(~held_out), whole.take(held_out)


def notes_on_test(test, others, class_names, *, defined):
    """Return notes on a test set that is unusually large or small, or that lacks classes.

    others: number of all other images. defined: whether the data defines the test set.
    """
    notes, count = [], len(test) + others
    share = len(test) / count
    if not TEST_SHARE / 2 <= share <= 1.5 * TEST_SHARE:
        notes.append(f"{len(test):,} of {count:,} images ({share:.0%}) are test images")
        if defined:
            notes[0] += f", as the data specifies; about {TEST_SHARE:.0%} is usual"
        elif share > TEST_SHARE:
            together = test.groups is not None and len(test) > len(class_names)
            notes[0] += (
                ", because the frames of a file stay together: add files"
                if together
                else ", because every class needs one: add images"
            )
    missing = np.flatnonzero(count_classes(test.labels, len(class_names)) == 0)
    if missing.size:
        names = some_of([class_names[k] for k in missing])
        one = missing.size == 1
        notes.append(
            f"no test images of {'class' if one else 'the classes'} {names}:"
            f" {'its' if one else 'their'} accuracy is not measured"
        )
    return tuple(notes)


def limited(train, limit, classes, seed, path):
    """Keep a stratified sample of `limit` training images.

    Raises ValueError if `limit` is out of range.
    """
    if not classes <= limit <= len(train):
        raise ValueError(
            f"limit {limit} is out of range for the {len(train)} training images in {classes}"
            f" classes of {path}: choose {classes} to {len(train)}"
        )
    return train.take(draw_by_class(train.strata, limit, generator(seed, 3)))
