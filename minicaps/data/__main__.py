"""Command `python -m minicaps.data`: list, fetch, export and show data sets."""

import argparse
import os
import sys
from datetime import datetime
from functools import partial
from pathlib import Path

from minicaps.cli.command import WrongUsage, guarded, number, start, usage
from minicaps.data import NAMES, baselines, download, ink, load, own, strokes
from minicaps.data.arguments import AUGMENTATION, parse_size
from minicaps.data.augmentation import Augmentation
from minicaps.data.dataset import count_classes, of_class
from minicaps.data.images import file_names, write_picture
from minicaps.data.lettering import legible
from minicaps.data.own import cache
from minicaps.data.own.files import name_of
from minicaps.data.sheet import contact_sheet
from minicaps.errors import DataError, counted, escaped
from minicaps.storage import results_file, results_folder, writing

ABOUT = {
    "strokes": "digits drawn from skeletons, with known poses",
    **{name: source.title for name, source in download.SOURCES.items()},
}
COMMANDS = ("list", "fetch", "export", "cache", *NAMES, "PATH")
NEIGHBOURS = 5000  # training samples of the 1-nearest-neighbor classifier


def main(arguments=None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments and arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        arguments.insert(0, "PATH")
    parser = _parser()
    options = parser.parse_args(arguments)
    work = partial(options.run, options)
    try:
        return guarded("minicaps.data", work, no_memory="try a smaller --size")
    except WrongUsage as error:
        return parser.error(str(error))


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m minicaps.data",
        description="List, fetch, export and show data sets.",
        epilog="Files are searched for in --data-dir, in the folder that the environment variable "
        f"{download.ENVIRONMENT} names, in the user's cache and in {download.DEBIAN}. Missing "
        "files are downloaded to the cache. Example: python -m minicaps.data strokes",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "--data-dir",
        metavar="FOLDER",
        help="search this folder first, and its subfolder with the name of the data set",
    )

    command = commands.add_parser(
        "list", parents=[folder], help="list all data sets, their sizes and their locations"
    )
    command.set_defaults(run=_list)

    command = commands.add_parser(
        "fetch", parents=[folder], help="find or download a data set and verify it"
    )
    command.add_argument(
        "name", choices=tuple(download.SOURCES), metavar="NAME", help=" or ".join(download.SOURCES)
    )
    command.set_defaults(run=_fetch)

    command = commands.add_parser(
        "export",
        parents=[folder],
        help="write a test image of each class as PNG, for minicaps.predict",
        description="Write the first test image of each class as FOLDER/CLASS.png.",
    )
    text = f"{', '.join(NAMES)}, or the path of custom data"
    command.add_argument("name", type=_name_or_path, metavar="DATA", help=text)
    command.add_argument("to", type=Path, metavar="FOLDER", help="a new or empty folder")
    _add_size(command)
    command.set_defaults(run=_export)

    _add_cache(commands)
    _add_shown(commands, folder)
    _add_own(commands)
    return parser


def _add_cache(commands):
    command = commands.add_parser(
        "cache",
        help="list or remove the decoded images of custom data",
        description="List the decoded images of custom data that takes a large share of the memory,"
        " with the source, the size of the images, and the time of the last use. They are kept in"
        f" the folder that the environment variable {cache.ENVIRONMENT} names, or in the user's"
        " cache.",
    )
    command.add_argument(
        "--clear", action="store_true", help="remove them; they are decoded again when needed"
    )
    command.set_defaults(run=_cache)


def _add_shown(commands, folder):
    for name in NAMES:
        about = ABOUT[name]
        command = commands.add_parser(
            name,
            parents=[folder] if name in download.SOURCES else [],
            help=f"show {about}",
            description=f"Describe {about}, and write a figure of samples.",
        )
        command.add_argument(
            "--out",
            type=_png,
            default=Path(f"{name}.png"),
            metavar="PICTURE",
            help="file for the figure of samples (default: %(default)s)",
        )
        _add_augmentation(command)
        command.set_defaults(run=_show, name=name)
        if name == "strokes":
            command.add_argument(
                "--seed", type=number(int, 0), default=0, help="seed of the digits (default: 0)"
            )
            command.set_defaults(run=_show_strokes)


def _add_own(commands):
    command = commands.add_parser(
        "PATH",
        help="show custom data: a folder or a .zip file of images, or arrays in a file",
        usage="python -m minicaps.data PATH [options]",
        description="Show what minicaps.train would read from a folder with one subfolder per"
        " class (or a table labels.csv), from a .zip file of it, from an .npz file with images and"
        " labels (and optionally class_names), or from a folder with four IDX files.",
    )
    command.add_argument("path", type=_path, metavar="PATH", help="the folder or the file")
    _add_size(command)
    command.add_argument(
        "--seed", type=number(int, 0), default=0, help="seed of the test split (default: 0)"
    )
    text = "first, all: images to take from files that contain several"
    command.add_argument("--frames", choices=own.FRAMES, metavar="FRAMES", help=text)
    command.add_argument(
        "--multi-label",
        action="store_true",
        help="take labels of 0 and 1 as multi-label even if every image has a single 1",
    )
    command.add_argument(
        "--skip-bad", action="store_true", help="leave out files that cannot be used"
    )
    text = "auto, yes, no: swap light and dark; auto: in dark drawings (default: auto)"
    keywords = {"choices": ink.CHOICES, "default": "auto", "metavar": "HOW"}
    command.add_argument("--invert", help=text, **keywords)
    command.add_argument(
        "--out",
        type=_png,
        metavar="PICTURE",
        help="file for the figure of samples (default: NAME-samples.png)",
    )
    _add_augmentation(command)
    command.set_defaults(run=_show_own)


def _add_augmentation(command):
    group = command.add_argument_group(
        "augmentation",
        "Below each row of samples, show its images changed at random, as minicaps.train would"
        " change them with these options.",
    )
    for name, (text, keywords) in AUGMENTATION.items():
        group.add_argument(f"--{name}", help=text, **keywords)


def _add_size(command):
    text = "resize images to N×N or H×W pixels, padded with the color of their border"
    command.add_argument("--size", type=parse_size, metavar="N|HxW", help=text)


def _path(text):
    if not os.path.exists(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a path nor a known name: choose from {', '.join(COMMANDS[:-1])},"
            " or give the path of custom data"
        )
    return Path(text)


def _name_or_path(text):
    return text if text in NAMES else str(_path(text).absolute())


def _png(text):
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"the figure must be a .png file, got {text!r}")
    return path


def _list(options):
    print(f"{'strokes':14}{strokes.TRAIN_SIZE:>7,} + {strokes.TEST_SIZE:>6,}  drawn when needed")
    for name, source in download.SOURCES.items():
        found = [download.find(name, file, options.data_dir) for file in source.md5]
        found = [
            path if path and download.belongs(name, file, path) else None
            for file, path in zip(source.md5, found, strict=True)
        ]
        folders = sorted({str(path.parent) for path in found if path})
        where = f"in {' and '.join(folders)}" if folders else "not found"
        missing = sum(path is None for path in found)
        if missing:
            where += f", {missing} of 4 files missing: python -m minicaps.data fetch {name}"
        train, test = source.sizes
        print(f"{name:14}{train:>7,} + {test:>6,}  {where}")


def _cache(options):
    found, total = cache.listing(), 0
    for folder, about, size, used in found:
        height, width = about["size"]
        day = datetime.fromtimestamp(used).date()
        print(f"{size / 1e6:12,.1f} MB  {height}×{width}  {day}  {escaped(about['source'])}")
        if options.clear:
            cache.clear(folder)
        total += size
    if not found:
        print(f"No decoded images are in {escaped(cache.root())}")
        return
    what = "removed from" if options.clear else "in all in"
    print(f"{total / 1e6:12,.1f} MB {what} {escaped(cache.root())}")


def _fetch(options):
    load(options.name, folder=options.data_dir)
    for file in download.SOURCES[options.name].md5:
        print(f"{download.find(options.name, file, options.data_dir)}: checked")


def _export(options):
    with usage():  # --data-dir for a data set that is not searched for
        data = load(options.name, folder=options.data_dir, size=options.size)
    results_folder(options.to, "choose another FOLDER")
    if any(options.to.iterdir()):
        raise DataError(f"{options.to} is not empty: choose a new or empty folder")
    masks = {name: of_class(data.test.labels, k) for k, name in enumerate(data.class_names)}
    firsts = {name: mask.argmax() for name, mask in masks.items() if mask.any()}
    for name, first in zip(file_names(firsts), firsts.values(), strict=True):
        write_picture(options.to / f"{name}.png", data.test.images[first])
    print(f"{len(firsts)} test images, one of each class: {options.to}")


def _show(options):
    results_file(options.out)
    data = load(options.name, folder=options.data_dir)
    changes = _changes(options, data)
    _describe(data)
    _picture(options.out, data, changes)


def _show_strokes(options):
    results_file(options.out)
    data = load(options.name, seed=options.seed)
    changes = _changes(options, data)
    _describe(data)
    poses = data.train.poses
    print(f"\n{'pose':14}{'lowest':>9}{'mean':>9}{'highest':>9}")
    for name, column in zip(strokes.POSE_NAMES, poses.T, strict=True):
        print(f"{name:14}{column.min():>z9.2f}{column.mean():>z9.2f}{column.max():>z9.2f}")
    print("\ntest accuracy of simple classifiers on raw pixels")
    linear = baselines.linear(data.train, data.test)
    print(f"  softmax regression on {linear['images']:,} training images  {linear['accuracy']:.1%}")
    nearest = baselines.nearest_neighbour(data.train.take(slice(NEIGHBOURS)), data.test)
    print(f"  nearest neighbor among {NEIGHBOURS:,} training images {nearest:.1%}")
    _picture(options.out, data, changes, strokes.POSE_NAMES)


def _show_own(options):
    path = options.path.resolve()
    out = options.out or Path(f"{name_of(path)}-samples.png")
    if path in out.resolve().parents:
        raise DataError(f"{out} would be inside the data folder: choose another place with --out")
    results_file(out)
    with usage():  # --multi-label for data with one class per image
        data = load(
            str(options.path.absolute()),
            seed=options.seed,
            size=options.size or "auto",
            frames=options.frames,
            multi_label=options.multi_label,
            skip_bad=options.skip_bad,
            invert=ink.CHOICES[options.invert],
        )
    changes = _changes(options, data)
    for note in data.notes:
        print(f"Note: {escaped(note)}")
    _describe(data)
    _picture(out, data, changes, ink=False)


def _changes(options, data):
    """Return the augmentation that the options ask for."""
    given = {name: getattr(options, name) for name in AUGMENTATION}
    changes = Augmentation(**{name: value for name, value in given.items() if value is not None})
    with usage():
        changes.check_size(*data.train.shape[1:])
    return changes


def _describe(data):
    images = data.train.images
    channels, height, width = images.shape[1:]
    parts = {"training": data.train, "validation": data.validation, "test": data.test}
    parts = {name: part for name, part in parts.items() if part is not None}
    counts = [f"{len(part):,} {name}" for name, part in parts.items()]
    print(f"{escaped(data.name)}: {', '.join(counts[:-1])} and {counts[-1]} images")
    print(f"shape: {counted(channels, 'channel')}, {height} pixels high, {width} wide")
    print(f"pixels: from {images.min():zg} to {images.max():zg}")
    width = max(14, 2 + max(map(len, data.class_names)))
    widths = [max(9, 2 + len(name)) for name in parts]
    heads = "".join(f"{name:>{w}}" for name, w in zip(parts, widths, strict=True))
    print(f"\n{'class':{width}}{heads}")
    counts = [count_classes(part.labels, len(data.class_names)) for part in parts.values()]
    for name, *row in zip(data.class_names, *counts, strict=True):
        numbers = "".join(f"{count:>{w},}" for count, w in zip(row, widths, strict=True))
        print(f"{name:{width}}{numbers}")


def _picture(path, data, changes, pose_names=(), **keywords):
    shown = changes if changes.active else None
    names, note = legible(data.class_names)
    with writing(path):
        contact_sheet(path, data.train, names, pose_names, changes=shown, **keywords)
    if note:
        print(f"\nNote: {note}")
    print(f"\nfigure of training samples: {escaped(path)}")
    if shown:
        flags = [f"--{name} {value}".removesuffix(".0") for name, value in changes.active.items()]
        print(f"below each row: its images as training with {' '.join(flags)} might see them")


if __name__ == "__main__":
    sys.exit(start(main))
