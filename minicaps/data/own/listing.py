"""List the image files of custom data in folders, with the classes of each."""

from dataclasses import dataclass, field

import numpy as np

from minicaps.data.own import table
from minicaps.data.own.files import list_folder, some_of
from minicaps.data.own.labels import flags_of_network, names_of_classes, printable


@dataclass
class Listing:
    """Image files of a folder.

    labels: {name relative to the folder: class number, or zeros and ones (J,)}. class_names: those
    of the network, if there is one. hidden: names of the hidden entries in subfolders.
    """

    labels: dict
    class_names: tuple[str, ...]
    hidden: list[str] = field(default_factory=list)


def listed(root, entries, target, faults) -> Listing:
    """List the images of a folder with these visible entries. Faults are added to `faults`."""
    if (root / table.NAME).exists():
        return _by_table(root, entries, target, faults)
    return _by_class(root, entries, target, faults)


def _by_class(root, entries, target, faults):
    loose = [entry.name for entry in entries if not entry.is_dir()]
    if loose:
        faults.add(
            f"{root} contains files outside of class folders: {some_of(loose)}; move each to the"
            f" folder of its class ({root}/CLASS/), or elsewhere",
            loose,
            "it is outside of class folders",
        )
    class_names = [entry.name for entry in entries if entry.is_dir()]
    files, hidden = {}, []
    for name in class_names:
        files[name], hidden_inside = _in_class(root, name, faults)
        hidden += hidden_inside
    if empty := [name for name in class_names if not files[name]]:
        many = f"{len(empty)} class folders of {root} contain no images: {some_of(empty)}; "
        one = f"{root / empty[0]} contains no images: "
        advice = "add images or remove the folder" + ("s" if empty[1:] else "")
        faults.add((many if empty[1:] else one) + advice, empty, "the folder contains no images")
        if faults.skip_bad:
            class_names = [name for name in class_names if files[name]]
    if len(class_names) < (least := 1 if target.classes else 2):
        faults.add(
            f"{root} has {len(class_names)} class folder(s): a classifier needs at least {least},"
            " each with the images of its class"
        )
    if all(name.isdecimal() for name in class_names):
        class_names.sort(key=int)
    class_names = faults.attempt(printable, class_names, root, otherwise=class_names)
    numbers = range(len(class_names))
    if target.classes:
        numbers = faults.attempt(target.numbers, class_names, root, otherwise=numbers)
    labels = {file: k for k, name in zip(numbers, class_names, strict=True) for file in files[name]}
    return Listing(labels, target.classes or tuple(class_names), hidden)


def _in_class(root, name, faults):
    """Return the files and the hidden entries of a class folder, relative to the root."""
    inside, hidden = list_folder(root / name)
    folders = [entry.name for entry in inside if entry.is_dir()]
    if folders:
        faults.add(
            f"{root / name} contains folders: {some_of(folders)}; put the images of a class"
            f" directly into its folder, {root}/CLASS/IMAGE.png, and minicaps will split them"
        )
    files = [f"{name}/{entry.name}" for entry in inside if not entry.is_dir()]
    return files, [f"{name}/{entry}" for entry in hidden]


def _by_table(root, entries, target, faults):
    path = root / table.NAME
    labels, class_names = table.read_table(path)
    files, hidden = [entry.name for entry in entries if not entry.is_dir()], []
    folders = [entry for entry in entries if entry.is_dir()]
    for folder in folders:
        inside, hidden_inside = list_folder(folder)
        start = folder.relative_to(root).as_posix()
        files += [f"{start}/{entry.name}" for entry in inside if not entry.is_dir()]
        folders += [entry for entry in inside if entry.is_dir()]
        hidden += [f"{start}/{name}" for name in hidden_inside]
    files.remove(table.NAME)
    for which, names, reason in (
        ("lists missing files", labels.keys() - set(files), "the file is missing"),
        ("has no line for", set(files) - labels.keys(), f"{table.NAME} has no line for it"),
    ):
        if names := sorted(names):
            faults.add(f"{path} {which}: {some_of(names)}", names, reason)
    there = set(files)
    labels = {name: row for name, row in labels.items() if name in there}
    rows, names = np.array(list(labels.values())), np.array(class_names)
    if not labels:
        faults.add(f"{path} lists no images that exist: correct the file names")
    elif target.classes:
        rows = faults.attempt(flags_of_network, rows, names, path, target, otherwise=rows)
        labels = dict(zip(labels, rows, strict=True))
    else:
        faults.attempt(names_of_classes, rows, names, path)
        faults.attempt(printable, class_names, path)
    return Listing(labels, target.classes or class_names, hidden)
