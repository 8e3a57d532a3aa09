"""Pictures of one's own: a folder for each class, a table of labels, four IDX files, or an .npz.

What has a plain meaning is converted, and a note says so; all else is refused, by name. No file is
passed over in silence.
"""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from minicaps.data import table
from minicaps.data.arrays import (
    channels_first,
    class_flags,
    class_numbers,
    flags_of_network,
    in_unit_range,
    labels_of_network,
    names_of_classes,
    read_npz,
)
from minicaps.data.dataset import (
    DataError,
    Dataset,
    Split,
    count_classes,
    draw_by_class,
    generator,
)
from minicaps.data.idx import read_idx
from minicaps.data.pictures import Target, picture_size, read_picture

TEST_SHARE = 0.2  # of the pictures, where the data does not say which are for testing
SMALLEST_CLASS = 3  # pictures: one each for training, validation and test
DARK = 1 / 16  # of white; brighter pictures are expected. Numbers of 12 bits in 16 stay below
JUNK = ("thumbs.db", "desktop.ini", "__macosx")  # left by file managers, like names with a dot
SHOWN = 5  # of many files, so many are named
AS_IT_IS = Target()


def load(path, *, limit: int | None = None, seed: int = 0, size=None) -> Dataset:
    """Read a data set of one's own, and split it by `seed`.

    path: a folder with a folder for each class; a folder of pictures that may have any number of
        classes, which `minicaps.data.table` lists; a folder with four IDX files, named like those
        of MNIST, which say themselves what is for training and for testing; or an .npz file with
        the arrays `images` and `labels` (n,), or zeros and ones (n, classes), and perhaps
        `class_names`.
    limit: keep so many training samples, of each class in proportion.
    size: (height, width) that all pictures are fitted to; None leaves them as they are.

    Raises `DataError` for data that cannot be used, ValueError for a limit that does not fit.
    """
    path = Path(path)
    parts, class_names, notes = read(path, Target(size))
    if len(parts) == 1:
        parts = _cut_test(parts[0], class_names, seed, path)
    train, test = parts
    if limit is not None:
        train = _limited(train, limit, len(class_names), seed, path)
    return Dataset(
        path.resolve().name.removesuffix(".npz"),
        train,
        test,
        class_names,
        by_class=True,
        notes=notes,
    )


def read(path, target=AS_IT_IS) -> tuple[list[Split], tuple[str, ...], tuple[str, ...]]:
    """All pictures at a path, as the `Target` wants them: one `Split`, or training and test where
    the data says so; the names of the classes; and notes for the user.

    Where the target names the classes, one of them is enough, and they are numbered as there.
    """
    path = Path(path)
    if not path.is_dir():
        return _read_npz(path, target)
    entries, hidden = _entries(path)
    folders = any(entry.is_dir() for entry in entries)
    if not folders and any(_part(entry) for entry in entries):
        return _read_idx(path, entries, hidden, target)
    return _read_folders(path, entries, hidden, target)


def _cut_test(whole, class_names, seed, path):
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


def _limited(train, limit, classes, seed, path):
    if not classes <= limit <= len(train):
        raise ValueError(
            f"limit {limit} does not fit the {len(train)} training pictures in {classes} classes"
            f" of {path}: choose {classes} to {len(train)}"
        )
    return train.take(draw_by_class(train.strata, limit, generator(seed, 3)))


# ---- a folder for each class


def _read_folders(root, entries, hidden, target):
    listing = _table if (root / table.NAME).exists() else _listing
    files, class_names, hidden_inside = listing(root, entries, target)
    names = [name for name, _ in files]
    if target.size is None:
        target = replace(target, size=_common_size(root, names))
    _check_memory(len(names), target.channels or 3, target.size)
    pictures = _each(root, names, "reading", lambda path: target.fit(read_picture(path)))
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
    notes = [*_notes_on_hidden([*hidden, *hidden_inside])]
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
            f"{root} holds files outside of class folders: {_some(loose)}; put each into the"
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
    class_names = _printable(class_names, root)
    numbers = target.numbers(class_names, root) if target.classes else range(len(class_names))
    for label, name in zip(numbers, class_names, strict=True):
        inside, hidden_inside = _entries(root / name)
        hidden += [f"{name}/{entry}" for entry in hidden_inside]
        folders = [entry.name for entry in inside if entry.is_dir()]
        if folders:
            raise DataError(
                f"{root / name} holds folders: {_some(folders)}; the pictures of a class lie right"
                f" in its folder, {root}/CLASS/PICTURE.png, and minicaps splits them"
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
        inside, hidden_inside = _entries(folder)
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
            raise DataError(f"{root / table.NAME} {which}: {_some(sorted(names))}")
    rows = np.array(list(labels.values()))
    if target.classes:
        rows = flags_of_network(rows, np.array(class_names), root / table.NAME, target)
        return list(zip(labels, rows, strict=True)), target.classes, hidden
    names_of_classes(rows, np.array(class_names), root / table.NAME)
    return list(labels.items()), _printable(class_names, root / table.NAME), hidden


def _entries(folder):
    """What lies in a folder, sorted by name: the paths to use, and the names of hidden ones."""
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise DataError(f"cannot read the folder {folder}: {error.strerror}") from None
    hidden = [p for p in paths if p.name.startswith(".") or p.name.lower() in JUNK]
    return [p for p in paths if p not in set(hidden)], [p.name for p in hidden]


def files_in(folder) -> list[Path]:
    """The files right in a folder, sorted by name, without hidden ones; `DataError` if none."""
    inside, _ = _entries(Path(folder))
    files = [path for path in inside if not path.is_dir()]
    if not files:
        folders = [path.name for path in inside]
        holds = f", only folders: {_some(folders)}; name one of them" if folders else ""
        raise DataError(f"{folder} has no pictures right in it{holds}")
    return files


def _each(root, names, verb, function):
    """function(path) for all files, with a bar if it takes time; all faults in one `DataError`."""
    from tqdm import tqdm

    results, faults = [], []
    for name in tqdm(names, desc=verb, unit=" files", delay=1, leave=False, disable=None):
        try:
            results.append(function(root / name))
        except DataError as fault:
            faults.append(str(fault))
    if len(faults) == 1:
        raise DataError(faults[0])
    if faults:
        more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        lines = "\n  ".join([*faults[:SHOWN], *more])
        raise DataError(f"{len(faults)} of {len(names)} files cannot be used:\n  {lines}")
    return results


def _common_size(root, names):
    sizes = _each(root, names, "looking", picture_size)
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


def _check_memory(count, channels, size):
    """Refuse pictures that would fill the machine, before it comes to a standstill."""
    if not hasattr(os, "sysconf"):
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = count * channels * size[0] * size[1] * 4 * 2  # floats, and once more to sort them
    if needed > there:
        raise DataError(
            f"{count:,} pictures of {size[0]}×{size[1]} need up to {needed / 1e9:.1f} GB"
            f" of memory, this machine has {there / 1e9:.1f}: give a smaller --size"
        )


# ---- arrays


def _read_npz(path, target):
    images, labels, class_names, notes = read_npz(path)
    split, more = _from_arrays(images, labels, f"images in {path}", f"labels in {path}", target)
    if target.classes:
        of_network = flags_of_network if split.multi else labels_of_network
        labels = of_network(split.labels, class_names, path, target)
        return [replace(split, labels=labels)], target.classes, (*notes, *more)
    class_names = names_of_classes(split.labels, class_names, path)
    return [split], _printable(class_names, path), (*notes, *more)


def _from_arrays(images, labels, images_from, labels_from, target):
    images, layout = channels_first(images, images_from)
    several = labels.ndim == 2 and labels.shape[1] > 1
    labels = (class_flags if several else class_numbers)(labels, len(images), labels_from)
    images, scale = in_unit_range(images, images_from)
    split = fitted(Split(images, labels, names=np.arange(len(labels))), target)
    return split, (f"{images_from}: {layout}, {scale}",)


def fitted(split: Split, target: Target) -> Split:
    """A split whose pictures are as `target` wants them: itself if they are. Poses are in pixels of
    the old pictures, and go."""
    old = split.images.shape[1:]
    new = (target.channels or old[0], *(target.size or old[1:]))
    if new == old and not target.invert:
        return split
    _check_memory(len(split), new[0], new[1:])
    images = np.empty((len(split), *new), dtype=np.float32)
    for k, image in enumerate(split.images):
        images[k] = target.fit(image)
    return Split(images, split.labels, names=split.names)


def _read_idx(root, entries, hidden, target):
    found = {}
    for entry in entries:
        part = _part(entry)
        plain = entry.name.removesuffix(".gz")
        if part is None or found.setdefault(part, entry).name.removesuffix(".gz") != plain:
            raise DataError(
                f"{root} has a file too many, {entry.name}: put four IDX files into a folder of"
                " their own, named like train-images-idx3-ubyte, train-labels-idx1-ubyte,"
                " t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, gzipped or not"
            )
    parts, notes = [], _notes_on_hidden(hidden)
    for name in ("train", "test"):
        if missing := {"images", "labels"} - {kind for part, kind in found if part == name}:
            raise DataError(f"{root} has no IDX file of the {name} {' and '.join(sorted(missing))}")
        images, labels = found[name, "images"], found[name, "labels"]
        split, more = _from_arrays(read_idx(images), read_idx(labels), images, labels, target)
        parts.append(split)
        notes += more
    shapes = [part.images.shape[1:] for part in parts]
    if shapes[0] != shapes[1]:
        raise DataError(f"the pictures of {root} differ: training {shapes[0]}, test {shapes[1]}")
    if target.classes:
        for name, part in zip(("train", "test"), parts, strict=True):
            of_network = flags_of_network if part.multi else labels_of_network
            of_network(part.labels, None, found[name, "labels"], target)
        return parts, target.classes, notes
    class_names = names_of_classes(parts[0].labels, None, found["train", "labels"])
    if parts[0].labels.shape[1:] != parts[1].labels.shape[1:]:
        raise DataError(f"the labels of {root} differ: training and test have not as many classes")
    if (highest := parts[1].labels.max()) >= len(class_names):
        raise DataError(
            f"{found['test', 'labels']} has label {highest}: the training labels are 0 to"
            f" {len(class_names) - 1}"
        )
    return parts, class_names, notes


def _part(path):
    """("train" or "test", "images" or "labels") of an IDX file, by its name; None for others."""
    match = re.search(r"(train|t10k|test).*(images|labels).*ubyte(\.gz)?$", path.name)
    return match and ("train" if match[1] == "train" else "test", match[2])


# ---- names


def _printable(names, where):
    for name in names:
        if not name.isprintable():
            raise DataError(f"{where} has a class with the name {name!r}: give it a readable one")
    return names


def _notes_on_hidden(names):
    return (f"skipped {len(names)} hidden: {_some(names)}",) if names else ()


def _some(names):
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
