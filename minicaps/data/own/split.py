"""Split custom data into training and test images, and limit the training images."""

from minicaps.data.dataset import count_classes, draw_by_class, generator
from minicaps.errors import DataError

TEST_SHARE = 0.2  # of the images, where the data does not say which are for testing
SMALLEST_CLASS = 3  # images: one each for training, validation and test


def cut_test(whole, class_names, seed, path):
    """Training and test images, cut from each class in proportion; `DataError` for few images."""
    counts = count_classes(whole.labels, len(class_names))
    if counts.min() < SMALLEST_CLASS:
        raise DataError(
            f"class {class_names[counts.argmin()]!r} of {path} has {counts.min()} picture(s): at"
            f" least {SMALLEST_CLASS} are needed, to train, to validate and to test; add some, or"
            " leave the class out"
        )
    count = max(round(TEST_SHARE * len(whole)), len(class_names))
    held_out = draw_by_class(whole.strata, count, generator(seed, 2))
    return whole.take(~held_out), whole.take(held_out)


def limited(train, limit, classes, seed, path):
    """So many training images, from each class in proportion; ValueError if that does not fit."""
    if not classes <= limit <= len(train):
        raise ValueError(
            f"limit {limit} does not fit the {len(train)} training pictures in {classes} classes"
            f" of {path}: choose {classes} to {len(train)}"
        )
    return train.take(draw_by_class(train.strata, limit, generator(seed, 3)))
