"""Split custom data into training and test images, and limit the training images."""

from minicaps.data.dataset import count_classes, draw_by_class, generator
from minicaps.errors import DataError

TEST_SHARE = 0.2  # fraction of images for testing if the data does not define a test set
SMALLEST_CLASS = 3  # images: one each for training, validation and test


def cut_test(whole, class_names, seed, path):
    """Split images into training and test sets, stratified by class.

    Raises `DataError` if a class has too few images.
    """
    counts = count_classes(whole.labels, len(class_names))
    if counts.min() < SMALLEST_CLASS:
        raise DataError(
            f"class {class_names[counts.argmin()]!r} of {path} has {counts.min()} image(s), but at"
            f" least {SMALLEST_CLASS} are needed for training, validation and test: add images or"
            " remove the class"
        )
    count = max(round(TEST_SHARE * len(whole)), len(class_names))
    held_out = draw_by_class(whole.strata, count, generator(seed, 2))
    return whole.take(~held_out), whole.take(held_out)


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
