"""Find blank images and exact copies in custom data."""

import hashlib
from itertools import combinations

import numpy as np

from minicaps.data.own.files import some_of


def remarks(parts) -> tuple[str, ...]:
    """Return notes on images without content, and on exact copies within and across the parts.

    parts: {"train": split, "validation": split, "test": split}, where a part may be missing or
    None. Images are named by their files or, if they have no names, by their place, such as
    "test 3".
    """
    parts = {part: split for part, split in parts.items() if split is not None}
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

    def word(part):
        return "training" if part == "train" else part

    def labels(same):
        return {tuple(np.atleast_1d(parts[part].labels[k]).tolist()) for part, k in same}

    def listed(groups):
        return some_of([" = ".join(name(*one) for one in same[:3]) for same in groups])

    notes = []
    if blank:
        names = some_of([name(*one) for one in blank])
        notes.append(f"blank images, with one value everywhere: {len(blank):,} ({names})")
    for part in parts:
        within = [[one for one in same if one[0] == part] for same in copies]
        within = [same for same in within if len(same) > 1]
        if extra := sum(len(same) - 1 for same in within):
            notes.append(f"exact copies among the {word(part)} images: {extra} ({listed(within)})")
    for first, second in combinations(parts, 2):
        across = [[one for one in same if one[0] in (first, second)] for same in copies]
        across = [same for same in across if len({part for part, _ in same}) == 2]
        if across:
            count = sum(part == second for same in across for part, _ in same)
            notes.append(
                f"{word(second)} images that are exact copies of {word(first)} images: {count:,}"
                f" ({listed([same[:1] + same[-1:] for same in across])}); the {word(second)}"
                " accuracy may be too high"
            )
    if several := [same for same in copies if len(labels(same)) > 1]:
        notes.append(
            f"images that occur with different classes: {len(several)} ({listed(several)})"
        )
    return tuple(notes)
