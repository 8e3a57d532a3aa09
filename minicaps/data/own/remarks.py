"""Find blank images and exact copies in custom data."""

import hashlib

import numpy as np

from minicaps.data.own.files import some_of


def remarks(train, test) -> tuple[str, ...]:
    """Return notes on images without content, and on exact copies within and across the parts.

    train, test: `Split`. Images are named by their files or, if they have no names, by their
    place, such as "test 3".
    """
    parts = {"train": train, "test": test}
    blank, of_content = [], {}
    for part, split in parts.items():
        for k, image in enumerate(split.images):
            if image.min() == image.max():
                blank.append((part, k))
            else:
                content = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
                of_content.setdefault(content, []).append((part, k))
    copies = [same for same in of_content.values() if len(same) > 1]

    def name(part, k):
        names = parts[part].names
        return f"{part} {k}" if names is None else str(names[k])

    def labels(same):
        return {tuple(np.atleast_1d(parts[part].labels[k]).tolist()) for part, k in same}

    def listed(groups):
        return some_of([" = ".join(name(*one) for one in same[:3]) for same in groups])

    notes = []
    if blank:
        names = some_of([name(*one) for one in blank])
        notes.append(f"blank images, with one value everywhere: {len(blank)} ({names})")
    for part, word in (("train", "training"), ("test", "test")):
        within = [[one for one in same if one[0] == part] for same in copies]
        within = [same for same in within if len(same) > 1]
        if extra := sum(len(same) - 1 for same in within):
            notes.append(f"exact copies among the {word} images: {extra} ({listed(within)})")
    across = [same for same in copies if {part for part, _ in same} == {"train", "test"}]
    if across:
        count = sum(part == "test" for same in across for part, _ in same)
        notes.append(
            f"test images that are exact copies of training images: {count}"
            f" ({listed([same[:1] + same[-1:] for same in across])}); the test accuracy may be too"
            " high"
        )
    if several := [same for same in copies if len(labels(same)) > 1]:
        notes.append(
            f"images that occur with different classes: {len(several)} ({listed(several)})"
        )
    return tuple(notes)
