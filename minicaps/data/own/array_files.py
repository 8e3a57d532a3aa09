"""Readers for custom data stored as arrays in an .npz file or in four IDX files."""

import re
from dataclasses import replace

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.idx import read_idx
from minicaps.data.images import fitted
from minicaps.data.own.arrays import channels_first, in_unit_range, read_npz
from minicaps.data.own.files import check_regular, notes_on_hidden
from minicaps.data.own.found import Found
from minicaps.data.own.labels import (
    class_flags,
    class_numbers,
    flags_of_network,
    labels_of_network,
    names_of_classes,
    numbers_of_names,
    printable,
)
from minicaps.data.own.sizing import sized
from minicaps.errors import DataError, escaped


def from_npz(path, target):
    """Implement `minicaps.data.own.read` for an .npz file."""
    images, labels, class_names, notes = read_npz(path)
    if labels.dtype.kind in "US" and labels.shape in ((len(labels),), (len(labels), 1)):
        labels, class_names = numbers_of_names(labels.ravel(), class_names, path)
    split, more = _from_arrays(images, labels, f"images in {path}", f"labels in {path}", target)
    if target.classes:
        of_network = flags_of_network if split.multi else labels_of_network
        labels = of_network(split.labels, class_names, path, target)
        return Found({"all": replace(split, labels=labels)}, target.classes, (*notes, *more))
    class_names = names_of_classes(split.labels, class_names, path)
    return Found({"all": split}, printable(class_names, path), (*notes, *more))


def _from_arrays(images, labels, images_from, labels_from, target):
    images, layout = channels_first(images, images_from)
    several = labels.ndim == 2 and labels.shape[1] > 1
    labels = (class_flags if several else class_numbers)(labels, len(images), labels_from)
    images, scale, how = in_unit_range(images, images_from, target.scale, older=target.older)
    split = Split(images, labels, names=np.arange(len(labels)), scale=scale)
    target, resized = sized(target, [images.shape[2:]])
    return fitted(split, target), (f"{images_from}: {layout}, {how}", *resized)


def from_idx(root, entries, hidden, target):
    """Implement `minicaps.data.own.read` for a folder whose entries are four IDX files."""
    found = {}
    for entry in entries:
        part = idx_part(entry)
        plain = entry.name.removesuffix(".gz")
        if part is None or found.setdefault(part, entry).name.removesuffix(".gz") != plain:
            raise DataError(
                f"{root} contains an unexpected file, {escaped(entry.name)}: a folder of IDX"
                " files must hold only four files, named like train-images-idx3-ubyte,"
                " train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, gzipped"
                " or not"
            )
    parts, notes = [], notes_on_hidden(hidden)
    for name in ("train", "test"):
        if missing := {"images", "labels"} - {kind for part, kind in found if part == name}:
            raise DataError(f"{root} has no IDX file with {name} {' and '.join(sorted(missing))}")
        files = [found[name, kind] for kind in ("images", "labels")]
        for file in files:
            check_regular(file)
        arrays, where = map(read_idx, files), (f"images in {files[0]}", f"labels in {files[1]}")
        split, more = _from_arrays(*arrays, *where, target)
        target = target if target.scale else replace(target, scale=split.scale)
        target = replace(target, size=split.shape[1:]) if target.size == "auto" else target
        parts.append(split)
        notes += more
    by_part = dict(zip(("train", "test"), parts, strict=True))
    shapes = [part.images.shape[1:] for part in parts]
    if shapes[0] != shapes[1]:
        raise DataError(
            f"the images in {root} differ in shape: training {shapes[0]}, test {shapes[1]}"
        )
    if target.classes:
        for name, part in by_part.items():
            of_network = flags_of_network if part.multi else labels_of_network
            of_network(part.labels, None, found[name, "labels"], target)
        return Found(by_part, target.classes, notes)
    class_names = names_of_classes(parts[0].labels, None, found["train", "labels"])
    if parts[0].labels.shape[1:] != parts[1].labels.shape[1:]:
        raise DataError(
            f"the labels in {root} differ: training and test labels have different numbers of"
            " classes"
        )
    if (highest := parts[1].labels.max()) >= len(class_names):
        raise DataError(
            f"{found['test', 'labels']} has label {highest}, but the training labels are 0 to"
            f" {len(class_names) - 1}"
        )
    return Found(by_part, class_names, notes)


def idx_part(path):
    """Identify the contents of an IDX file by its name.

    Returns a tuple ("train" or "test", "images" or "labels"), or None for any other file.
    """
    match = re.search(r"(train|t10k|test).*(images|labels).*ubyte(\.gz)?$", path.name)
    return match and ("train" if match[1] == "train" else "test", match[2])
