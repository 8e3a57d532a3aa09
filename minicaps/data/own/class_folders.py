"""Readers for custom data in folders: one folder per class, or images with a table of labels."""

from collections import Counter
from dataclasses import replace

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.images import check_memory, picture_size, read_picture
from minicaps.data.own import table
from minicaps.data.own.files import for_each_file, leads_back, list_folder, notes_on_hidden, some_of
from minicaps.data.own.labels import flags_of_network, names_of_classes, printable
from minicaps.errors import DataError

DARK = 1 / 16  # of white; darker data is rejected, such as 12-bit values stored in 16 bits


def from_folders(root, entries, hidden, target):
    """Implement `minicaps.data.own.read` for a folder with these visible and hidden entries."""
    listing = _table if (root / table.NAME).exists() else _listing
    files, class_names, hidden_inside = listing(root, entries, target)
    names = [name for name, _ in files]
    if target.size is None:
        target = replace(target, size=_common_size(root, names))
    check_memory(len(names), target.channels or 3, target.size)
    pictures = for_each_file(root, names, "reading", lambda path: target.fit(read_picture(path)))
    channels = max(len(picture) for picture in pictures)
    images = np.empty((len(pictures), channels, *target.size), dtype=np.float32)
    grey = sum(len(picture) < channels for picture in pictures)
    for k, picture in enumerate(pictures):
        images[k] = picture  # broadcasting repeats the channel of a grayscale image
        pictures[k] = None  # frees its memory
    if images.max() < DARK:
        raise DataError(
            f"the brightest pixel of all {len(images)} images in {root} is {images.max():.3g},"
            " where white is 1: either they are black, or their pixels use fewer bits than the file"
            " format provides; scale them so that white is the largest number"
        )
    notes = [*notes_on_hidden([*hidden, *hidden_inside])]
    if grey:
        notes.append(
            f"{grey} of {len(images)} images are grayscale: their channel is used for all colors"
        )
    labels = np.array([label for _, label in files])
    return [Split(images, labels, names=np.array(names))], class_names, tuple(notes)


def _listing(root, entries, target):
    """List the files of all classes.

    Returns a list of pairs (relative name, label), the names of the classes, and the names of
    hidden entries in the class folders.
    """
    loose = [entry.name for entry in entries if not entry.is_dir()]
    if loose:
        raise DataError(
            f"{root} contains files outside of class folders: {some_of(loose)}; move each to the"
            f" folder of its class ({root}/CLASS/), or elsewhere"
        )
    class_names = [entry.name for entry in entries]
    if len(class_names) < (least := 1 if target.classes else 2):
        raise DataError(
            f"{root} has {len(class_names)} class folder(s): a classifier needs at least {least},"
            " each with the images of its class"
        )
    if all(name.isdecimal() for name in class_names):
        class_names.sort(key=int)
    files, hidden = [], []
    class_names = printable(class_names, root)
    numbers = target.numbers(class_names, root) if target.classes else range(len(class_names))
    for label, name in zip(numbers, class_names, strict=True):
        inside, hidden_inside = list_folder(root / name)
        hidden += [f"{name}/{entry}" for entry in hidden_inside]
        folders = [entry.name for entry in inside if entry.is_dir()]
        if folders:
            raise DataError(
                f"{root / name} contains folders: {some_of(folders)}; put the images of a class"
                f" directly into its folder, {root}/CLASS/IMAGE.png, and minicaps will split them"
            )
        if not inside:
            raise DataError(f"{root / name} contains no images: add images or remove the folder")
        files += [(f"{name}/{entry.name}", label) for entry in inside]
    return files, target.classes or tuple(class_names), hidden


def _table(root, entries, target):
    """List the files and labels of a table, with the same return values as `_listing`."""
    labels, class_names = table.read_table(root / table.NAME)
    files, hidden = [entry.name for entry in entries if not entry.is_dir()], []
    folders = [each for each in entries if each.is_dir() and not leads_back(each, root)]
    for folder in folders:
        inside, hidden_inside = list_folder(folder)
        start = folder.relative_to(root).as_posix()
        files += [f"{start}/{entry.name}" for entry in inside if not entry.is_dir()]
        folders += [each for each in inside if each.is_dir() and not leads_back(each, root)]
        hidden += [f"{start}/{name}" for name in hidden_inside]
    files.remove(table.NAME)
    for which, names in (
        ("lists missing files", labels.keys() - set(files)),
        ("has no line for", set(files) - labels.keys()),
    ):
        if names:
            raise DataError(f"{root / table.NAME} {which}: {some_of(sorted(names))}")
    rows = np.array(list(labels.values()))
    if target.classes:
        rows = flags_of_network(rows, np.array(class_names), root / table.NAME, target)
        return list(zip(labels, rows, strict=True)), target.classes, hidden
    names_of_classes(rows, np.array(class_names), root / table.NAME)
    return list(labels.items()), printable(class_names, root / table.NAME), hidden


def _common_size(root, names):
    sizes = for_each_file(root, names, "looking", picture_size)
    first = sizes[0]
    for name, size in zip(names, sizes, strict=True):
        if size != first:
            h, w = Counter(sizes).most_common(1)[0][0]
            raise DataError(
                f"the images differ in size: {root / names[0]} is {first[0]}×{first[1]} (height"
                f" × width), {root / name} is {size[0]}×{size[1]}; to resize all of them, give"
                f" --size {h}x{w} or another size"
            )
    return first
