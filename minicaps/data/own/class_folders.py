"""Pictures of one's own in folders: one for each class, or with a table of labels beside them."""

from collections import Counter
from dataclasses import replace

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.images import check_memory, picture_size, read_picture
from minicaps.data.own import table
from minicaps.data.own.files import for_each_file, list_folder, notes_on_hidden, some_of
from minicaps.data.own.labels import flags_of_network, names_of_classes, printable
from minicaps.errors import DataError

DARK = 1 / 16  # of white; brighter pictures are expected. Numbers of 12 bits in 16 stay below


def from_folders(root, entries, hidden, target):
    """What `minicaps.data.own.read` gives for a folder that has these entries, of which some are
    hidden."""
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
        images[k] = picture  # grey among colours is repeated by broadcasting
        pictures[k] = None  # its memory is needed
    if images.max() < DARK:
        raise DataError(
            f"the brightest pixel of all {len(images)} pictures in {root} is {images.max():.3g},"
            " where white is 1: their files hold numbers of fewer bits than they have room for, or"
            " they are black; scale them so that white is the largest number"
        )
    notes = [*notes_on_hidden([*hidden, *hidden_inside])]
    if grey:
        notes.append(
            f"{grey} of {len(images)} pictures are grey: their grey is used in all colours"
        )
    labels = np.array([label for _, label in files])
    return [Split(images, labels, names=np.array(names))], class_names, tuple(notes)


def _listing(root, entries, target):
    """The files of all classes as (relative name, label), the names of the classes, and what is
    hidden in their folders."""
    loose = [entry.name for entry in entries if not entry.is_dir()]
    if loose:
        raise DataError(
            f"{root} holds files outside of class folders: {some_of(loose)}; put each into the"
            f" folder of its class ({root}/CLASS/), or elsewhere"
        )
    class_names = [entry.name for entry in entries]
    if len(class_names) < (least := 1 if target.classes else 2):
        raise DataError(
            f"{root} has {len(class_names)} class folder(s): a classifier needs at least {least},"
            " each with the pictures of its class"
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
                f"{root / name} holds folders: {some_of(folders)}; the pictures of a class lie"
                f" right in its folder, {root}/CLASS/PICTURE.png, and minicaps splits them"
            )
        if not inside:
            raise DataError(f"{root / name} has no pictures: fill the folder, or remove it")
        files += [(f"{name}/{entry.name}", label) for entry in inside]
    return files, target.classes or tuple(class_names), hidden


def _table(root, entries, target):
    """As `_listing`, where a table says which classes each picture has."""
    labels, class_names = table.read_table(root / table.NAME)
    files, hidden = [entry.name for entry in entries if not entry.is_dir()], []
    folders = [entry for entry in entries if entry.is_dir()]
    for folder in folders:
        inside, hidden_inside = list_folder(folder)
        start = folder.relative_to(root).as_posix()
        files += [f"{start}/{entry.name}" for entry in inside if not entry.is_dir()]
        folders += [entry for entry in inside if entry.is_dir()]
        hidden += [f"{start}/{name}" for name in hidden_inside]
    files.remove(table.NAME)
    for which, names in (
        ("names what is not there", labels.keys() - set(files)),
        ("lacks a line for", set(files) - labels.keys()),
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
                f"the pictures differ in size: {root / names[0]} is {first[0]}×{first[1]} (height"
                f" × width), {root / name} is {size[0]}×{size[1]}; give --size {h}x{w}, or another,"
                " and all are fitted to it"
            )
    return first
