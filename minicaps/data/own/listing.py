"""List the image files of custom data in folders, with the classes of each.

The first of these layouts that matches a folder is used:

1. a table `labels.csv`, see `minicaps.data.own.table`;
2. a folder for each part, if the folder contains no other folders: `train`, and optionally
   `validation` (or `val`, `valid`) and `test`, each with one subfolder per class; `train` may be
   missing for a trained network that has no classes with these names;
3. a folder for each class, whose subfolders belong to the class.

If no folder of layout 2 has subfolders, layout 3 applies, and `train` is a class.
"""

import os
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from minicaps.data.own import table
from minicaps.data.own.files import list_folder, some_of, walk
from minicaps.data.own.found import PART_OF, PARTS
from minicaps.data.own.labels import flags_of_network, names_of_classes, printable, sorted_names
from minicaps.errors import DataError, counted, escaped


@dataclass
class Listing:
    """Image files of a folder.

    labels: {name relative to the folder: class number, or zeros and ones (J,)}. class_names: those
    of the network, if there is one. hidden: names of the hidden entries in subfolders. parts:
    {name: "train", "validation" or "test"}, empty if the folder does not define them.
    nested: images in subfolders of the folders of classes.
    """

    labels: dict
    class_names: tuple[str, ...]
    hidden: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    nested: list[str] = field(default_factory=list)

    def notes(self):
        """Return a tuple with a note on nested images, or an empty tuple if there are none."""
        if not self.nested:
            return ()
        folders = sorted({name.rpartition("/")[0] for name in self.nested})
        count = len(self.nested)
        text = "images in subfolders of a class folder count as images of the class"
        return (f"{count:,} {text}: {some_of(folders)}",)


def listed(root, entries, target, faults) -> Listing:
    """List the images of a folder with these visible entries. Faults are added to `faults`."""
    paths, out_of_sight, unreadable = walk(root)
    if unreadable:
        raise unreadable[0]
    files, hidden = (
        [path.relative_to(root).as_posix() for path in found] for found in (paths, out_of_sight)
    )
    if (root / table.NAME).exists():
        return _by_table(root, files, hidden, target, faults)
    folders = _part_folders(entries, target)
    if not folders:
        files = _class_folders(root, root, entries, files, faults)
        labels, class_names = _numbered([files], root, root, target, faults)
        nested = [name for name in labels if name.count("/") > 1]
        return Listing(labels, class_names, hidden, nested=nested)
    loose = [entry.name for entry in entries if not entry.is_dir()]
    first = next(iter(folders.values()))  # train, if there is one
    _tell_loose(root, first, loose, loose, faults)
    found = {
        part: _class_folders(root, folder, list_folder(folder)[0], files, faults)
        for part, folder in folders.items()
    }
    parts = {name: part for part in found for files in found[part].values() for name in files}
    labels, class_names = _numbered(list(found.values()), root, first, target, faults)
    nested = [name for name in labels if name.count("/") > 2]
    return Listing(labels, class_names, hidden, parts, nested)


def _part_folders(entries, target):
    """Return {part: folder} for entries in layout 2, in the order of `PARTS`, or an empty dict."""
    folders = [entry for entry in entries if entry.is_dir()]
    parts = [PART_OF.get(folder.name.lower()) for folder in folders]
    known = [part for part in parts if part]
    names = {folder.name for folder in folders}
    if not known or not ("train" in known or names - {*(target.classes or names)}):
        return {}
    if not any(
        entry.is_dir()
        for folder, part in zip(folders, parts, strict=True)
        if part
        for entry in list_folder(folder)[0]
    ):
        return {}
    if None in parts and len(known) == 1:
        return {}  # a class that happens to be called train, say
    if None in parts or len(set(parts)) < len(parts):
        raise DataError(
            f"{folders[0].parent} has the folders {some_of(sorted(names))}: keep one for each of"
            f" {', '.join(PARTS)}, with the classes in them, and no others"
        )
    folder_of = dict(zip(parts, folders, strict=True))
    return {part: folder_of[part] for part in PARTS if part in folder_of}


def _class_folders(root, folder, entries, all_files, faults):
    """Return {class: files} for a folder with one subfolder per class.

    all_files: those in the root and its subfolders. Files are named relative to the root.
    """
    loose = [entry for entry in entries if not entry.is_dir()]
    names = [entry.relative_to(root).as_posix() for entry in loose]
    _tell_loose(folder, folder, [entry.name for entry in loose], names, faults)
    classes = [entry for entry in entries if entry.is_dir()]
    files = {entry.relative_to(root).as_posix(): [] for entry in classes}
    depth = len(folder.relative_to(root).parts) + 1
    for name in all_files:
        place = "/".join(name.split("/")[:depth])
        if place in files:
            files[place].append(name)
    empty = [place for place in files if not files[place]]
    if empty:
        many = f"{len(empty):,} class folders of {root} contain no images: {some_of(empty)}; "
        one = f"{escaped(root / empty[0])} contains no images: "
        advice = "add images or remove the folder" + ("s" if empty[1:] else "")
        faults.add((many if empty[1:] else one) + advice, empty, "the folder contains no images")
    there = {entry.name: inside for entry, inside in zip(classes, files.values(), strict=True)}
    return {name: inside for name, inside in there.items() if inside or not faults.skip_bad}


def _tell_loose(folder, classes, names, files, faults):
    if names:
        faults.add(
            f"{folder} contains files outside of class folders: {some_of(names)}; move each to the"
            f" folder of its class ({classes}/CLASS/), or elsewhere",
            files,
            "it is outside of class folders",
        )


def _numbered(parts, root, where, target, faults):
    """Return {file: class number} and the class names for parts {class: files}.

    The first part is the one to train on, so it must contain all classes.
    """
    class_names = list(parts[0])
    if len(class_names) < (least := 1 if target.classes else 2):
        faults.add(
            f"{where} has {counted(len(class_names), 'class folder')}: a classifier needs at least"
            f" {least}, each with the images of its class, or a table {root}/{table.NAME} with the"
            " header file,label",
            too_few=True,
        )
    class_names = _with_all_classes(class_names, chain(*parts[1:]), where, target, faults)
    number = _class_numbers(class_names, where, target, faults)
    labels = {
        file: number[name] for part in parts for name, files in part.items() for file in files
    }
    return labels, target.classes or class_names


def _with_all_classes(trained, others, where, target, faults):
    """Return the names of all classes, sorted. Add a fault if training images lack one of them."""
    new = sorted(set(others) - set(trained))
    if new and not target.classes:
        faults.add(
            f"{where} lacks training images of the classes {some_of(new)}, which other parts have:"
            " add some, or remove the classes"
        )
    return sorted_names([*trained, *new])


def _class_numbers(class_names, where, target, faults):
    """Return {class name: class number}, where the numbers are those of the network, if any."""
    faults.attempt(printable, class_names, where)
    numbers = range(len(class_names))
    if target.classes:
        numbers = faults.attempt(target.numbers, class_names, where, otherwise=numbers)
    return dict(zip(class_names, numbers, strict=True))


def _by_table(root, files, hidden, target, faults):
    path = root / table.NAME
    try:
        read, faulty = table.read_table(path), set()
    except table.FaultyLines as error:
        faults.add(error)
        read, faulty = error.table, error.files
    files.remove(table.NAME)
    listed_files = read.labels.keys() | faulty
    there = {*files, *_by_other_names(root, listed_files - set(files), files)}
    for which, names, reason in (
        ("lists missing files", listed_files - there, "the file is missing"),
        ("has no line for", set(files) - listed_files, f"{table.NAME} has no line for it"),
    ):
        if names := sorted(names):
            faults.add(f"{path} {which}: {some_of(names)}", names, reason)
    labels = {name: label for name, label in read.labels.items() if name in there}
    if not listed_files & there:
        text = f"{path} lists no images that exist: correct the file names"
        faults.add(text, too_few=True)
        return Listing({}, read.class_names, hidden)
    if faulty:  # more labels may be correct, so those that are say nothing about the classes
        return Listing(dict.fromkeys(sorted(listed_files & there)), read.class_names, hidden)
    of_table = _flags_of_table if read.multi else _numbers_of_table
    labels, class_names = of_table(path, labels, read, target, faults)
    return Listing(labels, class_names, hidden, read.parts)


def _by_other_names(root, names, files):
    """Return the names that lead to some of the files through links to folders."""
    real = {os.path.realpath(root / file) for file in files} if names else ()
    return [name for name in names if os.path.realpath(root / name) in real]


def _flags_of_table(path, labels, read, target, faults):
    """Return {file: zeros and ones} and the class names of a multi-label table."""
    rows, names = np.array(list(labels.values())), np.array(read.class_names)
    if target.classes:
        rows = faults.attempt(flags_of_network, rows, names, path, target, otherwise=rows)
        return dict(zip(labels, rows, strict=True)), target.classes
    faults.attempt(names_of_classes, rows, names, path)
    faults.attempt(printable, read.class_names, path)
    return labels, read.class_names


def _numbers_of_table(path, labels, read, target, faults):
    """Return {file: class number} and the class names of a single-label table."""
    trained = {name for file, name in labels.items() if read.parts.get(file, "train") == "train"}
    if not trained and not target.classes:
        text = f"{path} has no training images: write train as the split of some"
        faults.add(text, too_few=True)
    class_names = _with_all_classes(trained, labels.values(), path, target, faults)
    if len(class_names) < (1 if target.classes else 2):
        faults.add(f"{path} has only one class: a classifier needs at least 2", too_few=True)
    number = _class_numbers(class_names, path, target, faults)
    return {file: number[name] for file, name in labels.items()}, target.classes or class_names
