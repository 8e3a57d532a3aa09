"""`python -m minicaps.evaluate RUN`: measure a trained network on pictures, and show its errors."""

import argparse
import csv
import io
import json
import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

import minicaps
from minicaps import data, evaluation_multi, plotting, samples, scores
from minicaps.backend import choose_device, to_host
from minicaps.checkpoint import CheckpointError, replacing, write_json
from minicaps.command import WrongUsage, data_source, guarded, number, start
from minicaps.data.batches import batches
from minicaps.graph import no_grad
from minicaps.losses import classification_loss
from minicaps.runs import open_run
from minicaps.tensor import Tensor
from minicaps.training import EVALUATION_BATCH

NAME = "minicaps.evaluate"
WORST = 10  # pictures that are drawn
CONFUSIONS = 5  # kinds of wrong answers that are printed
EXAMPLES = """\
examples (the first line makes a run, in a minute):
  python -m minicaps.train --out runs/first
  python -m minicaps.evaluate runs/first
  python -m minicaps.evaluate runs/first --data mnist
"""


def main(arguments=None):
    """Run the command; return its exit code: 0 done, 1 a failure, 2 wrong usage, 128+n a signal."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    options = parser.parse_args(arguments)
    command = shlex.join(["python", "-m", NAME, *arguments])
    work = partial(_run, parser, options, command)
    return guarded(NAME, work, no_memory="try a smaller --batch-size")


def _run(parser, options, command):
    run = open_run(options.run, choose_device(options.device))
    try:
        chosen = samples.choose(
            run,
            source=options.data,
            part=options.part,
            folder=options.data_dir,
            invert=options.invert,
        )
        folder = _claim(Path(options.out or run.folder / "evaluation"), chosen.source)
    except WrongUsage as error:
        parser.error(str(error))
    if not options.quiet:
        _introduce(run, chosen)
    activations = classify(run, chosen.split, options.batch_size, options.quiet)
    several = run.multi or chosen.split.multi
    result = (evaluation_multi.measure if several else measure)(run, chosen.split, activations)
    origin = {
        "checkpoint": str(run.path),
        "data": chosen.source,
        "part": chosen.part,
        "inverted": options.invert,
        "notes": chosen.notes,
        "device": run.device.name,
        "minicaps": minicaps.__version__,
        "command": command,
    }
    if several:
        _write_several(folder, run, chosen.split, activations, origin | result)
        _report_several(result, folder, options.quiet)
        return
    _write(folder, run, chosen.split, activations, origin | result)
    drawn = draw_worst(run, chosen.split, activations, options.batch_size)
    plotting.worst(*drawn, folder / "worst.png")
    _report(result, run, folder, options.quiet)


def _introduce(run, chosen):
    size = run.model.number_of_parameters()
    print(f"Run: {run.path} ({run.options['model']}, {size:,} parameters)")
    print(f"Data: {chosen.source}, {len(chosen.split):,} pictures ({chosen.part})")
    for note in chosen.notes:
        print(f"Note: {note}")


# ---- measuring


def classify(run, split, batch_size, quiet=True) -> np.ndarray:
    """The activations of all classes for all pictures of `split`: (n, J), on the host.

    Raises CheckpointError if one is infinite or NaN.
    """
    found = []
    bar = tqdm(
        total=len(split),
        unit=" pictures",
        unit_scale=True,
        delay=1,
        leave=False,
        disable=True if quiet else None,  # None: no bar in a file or a pipe
    )
    with bar, no_grad():
        for images, _ in batches(split, batch_size):
            found.append(to_host(run.model(_on_device(run, images)).activations.data))
            bar.update(len(images))
    activations = np.concatenate(found)
    if not np.isfinite(activations).all():
        count = (~np.isfinite(activations).all(axis=1)).sum()
        raise CheckpointError(
            f"the activations of {count:,} of {len(split):,} pictures are infinite or NaN: training"
            f" diverged, or {run.path} is damaged; evaluate an earlier checkpoint"
        )
    return activations


def _on_device(run, images):
    return Tensor(run.device.put(images).astype(run.dtype, copy=False))


def measure(run, split, activations) -> dict:
    """All that is known when each picture has one class: counts, rates, loss, a row for each class.

    activations (n, J), as `classify` gives them. Counts are integers.
    """
    answers, labels = activations.argmax(axis=1), split.labels
    confusion = scores.confusion_matrix(labels, answers, len(run.class_names))
    n, right = len(split), int(confusion.trace())
    table = scores.class_table(confusion, run.class_names)
    for k, row in enumerate(table):
        own = activations[labels == k, k]
        row["activation"] = float(own.mean(dtype=np.float64)) if own.size else None
    return {
        "samples": n,
        "right": right,
        "wrong": n - right,
        "accuracy": right / n,
        "accuracy_interval_95": scores.wilson(right, n),
        "error": (n - right) / n,
        "loss": float(
            classification_loss(run.options["loss"], run.model, Tensor(activations), labels).data
        ),
        "loss_name": run.options["loss"],
        "classes": table,
        "confusion": confusion.tolist(),
    }


def draw_worst(run, split, activations, batch_size):
    """What `plotting.worst` takes, but the file: the pictures that were classified worst, and where
    there is a decoder, what it draws from the capsules of the rival and of their class."""
    which = scores.worst(activations, split.labels, WORST)
    some, scored = split.take(which), activations[which]
    rival, _ = scores.rivals(scored, some.labels)
    names = [plotting.short(name, 14) for name in run.class_names]
    captions = [
        (f"{names[k]}: {row[k]:.2f}", f"{names[j]}: {row[j]:.2f}")
        for k, j, row in zip(some.labels, rival, scored, strict=True)
    ]
    drawn = None
    if getattr(run.model, "decoder", None) is not None:
        drawn = [_drawn(run, some, keep, batch_size) for keep in (rival, some.labels)]
    return some.images, drawn, captions, scored.argmax(axis=1) != some.labels


def _drawn(run, split, keep, batch_size):
    """The pictures that the decoder draws from the capsules `keep` (n,) of each picture."""
    drawn = []
    with no_grad():
        for k, (images, _) in enumerate(batches(split, batch_size)):
            poses = run.model(_on_device(run, images)).poses
            which = run.device.put(keep[k * batch_size :][: len(images)])
            drawn.append(run.model.reconstruct(poses, which).numpy())
    return np.concatenate(drawn)


# ---- writing


def _claim(folder, source):
    """Make the folder of the results, or take one that an evaluation made; refuse others."""
    if source not in data.NAMES and _lies_in(folder.resolve(), Path(source).resolve()):
        raise WrongUsage(f"{folder} lies in the data: choose another --out")
    try:
        if folder.exists() and any(folder.iterdir()) and not _is_ours(folder):
            raise WrongUsage(f"{folder} exists, and no evaluation made it: choose another --out")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # found out now, not after the work
    except OSError as error:
        raise CheckpointError(
            f"cannot write into {folder}: {error.strerror}; choose another --out"
        ) from error
    return folder


def _lies_in(folder, outer):
    return outer in (folder, *folder.parents)


def _is_ours(folder):
    """Whether an evaluation made a folder: its first file says so."""
    try:
        return "checkpoint" in json.loads((folder / "evaluation.json").read_text())
    except (OSError, ValueError, TypeError):
        return False


def _write(folder, run, split, activations, result):
    """Write what was measured, and the answer for each picture."""
    names = run.class_names
    write_json(folder / "evaluation.json", result)
    _write_csv(
        folder / "confusion.csv",
        ["class \\ answer", *names],
        ([name, *row] for name, row in zip(names, result["confusion"], strict=True)),
    )
    answers, rows = activations.argmax(axis=1), np.arange(len(split))
    _write_csv(
        folder / "predictions.csv",
        ["picture", "class", "answer", "activation of answer", "activation of class"],
        (
            [picture, names[k], names[j], f"{a:.6g}", f"{b:.6g}"]
            for picture, k, j, a, b in zip(
                split.names,
                split.labels,
                answers,
                activations[rows, answers],
                activations[rows, split.labels],
                strict=True,
            )
        ),
    )
    plotting.confusion(np.array(result["confusion"]), names, folder / "confusion.png")


def _write_several(folder, run, split, activations, result):
    """As `_write`, where a picture may have several classes; and the worst answers."""
    write_json(folder / "evaluation.json", result)
    for name, table in evaluation_multi.tables(run, split, activations, result).items():
        _write_csv(folder / name, *table)
    drawn = evaluation_multi.draw_worst(run, split, activations, WORST)
    plotting.members(*drawn, folder / "worst.png", title="The worst answers first, ✗ if wrong")


def _write_csv(path, header, rows):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    with replacing(path) as file:
        file.write(text.getvalue().encode("utf-8", "surrogateescape"))  # names of files as they are


# ---- telling


def _report(result, run, folder, quiet):
    n, right, wrong = (result[key] for key in ("samples", "right", "wrong"))
    low, high = result["accuracy_interval_95"]
    print(
        f"Accuracy {result['accuracy']:.2%} ({right:,} of {n:,} pictures), 95% interval {low:.2%}"
        f" to {high:.2%}\nError {result['error']:.2%} ({wrong:,} wrong), {result['loss_name']} loss"
        f" {result['loss']:.4f}"
    )
    if not quiet:
        _print_table(result["classes"])
        _print_confusions(np.array(result["confusion"]), run.class_names)
    print(f"Results: {folder}/ ({', '.join(sorted(path.name for path in folder.iterdir()))})")


def _report_several(result, folder, quiet):
    lines = evaluation_multi.report(result)
    print("\n".join(lines if quiet else lines + evaluation_multi.report_classes(result)))
    print(f"Results: {folder}/ ({', '.join(sorted(path.name for path in folder.iterdir()))})")


def _print_table(classes):
    names = [plotting.short(row["name"], 32) for row in classes]
    width = max(7, *(len(name) + 2 for name in names))
    print(
        f"\n{'class':{width}}{'pictures':>9}{'right':>9}{'recall':>9}{'precision':>11}{'F1':>9}"
        f"{'activation':>12}"
    )
    for name, row in zip(names, classes, strict=True):
        recall, precision, f1 = (_percent(row[key]) for key in ("recall", "precision", "f1"))
        own = "–" if row["activation"] is None else f"{row['activation']:.3f}"
        print(
            f"{name:{width}}{row['pictures']:>9,}{row['right']:>9,}{recall:>9}"
            f"{precision:>11}{f1:>9}{own:>12}"
        )
    print(
        "activation: of the right class (for vector capsules its length), the mean of its pictures"
    )


def _percent(rate):
    return "–" if rate is None else f"{rate:.2%}"


def _print_confusions(confusion, names):
    pictures = confusion.sum(axis=1)
    found = scores.most_confused(confusion, CONFUSIONS)
    print("\nMost frequent confusions:" if found else "\nNo wrong answers.")
    for k, j, count in found:
        print(f"  {names[k]} taken for {names[j]}: {count:,} of {pictures[k]:,} pictures")
    never = [names[k] for k in np.flatnonzero((confusion.sum(axis=0) == 0) & (pictures > 0))]
    if never:
        print(f"Never the answer: {', '.join(never)}")


# ---- options


def _parser():
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}",
        description="Measure a trained network: accuracy with its interval, a row for each class,\n"
        "the confusions, and pictures of the worst answers, all written into a folder.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="run folder (its best epoch), or a checkpoint")
    group = parser.add_argument_group("pictures", "Without options: the run's own test pictures.")
    group.add_argument(
        "--part",
        choices=samples.PARTS,
        metavar="PART",
        help=f"{', '.join(samples.PARTS)}: which part of the data (default: test; all of other"
        " --data)",
    )
    group.add_argument(
        "--data",
        type=data_source,
        metavar="DATA",
        help=f"{', '.join(data.NAMES)}, or the path of your own: classes are matched by name, and"
        " pictures fitted to the network",
    )
    group.add_argument(
        "--invert", action="store_true", help="make light dark and dark light in that --data"
    )
    group.add_argument(
        "--data-dir", metavar="FOLDER", help="folder searched first for the data files"
    )
    group = parser.add_argument_group("work")
    group.add_argument(
        "--batch-size",
        type=number(int, 1),
        default=EVALUATION_BATCH,
        metavar="N",
        help="pictures at once (default: %(default)s)",
    )
    group.add_argument(
        "--device",
        choices=["auto", "cpu", "gpu"],
        default="auto",
        metavar="DEVICE",
        help="auto, cpu, gpu: where to compute (default: %(default)s)",
    )
    group.add_argument(
        "--out", metavar="FOLDER", help="folder of the results (default: RUN/evaluation)"
    )
    group.add_argument("--quiet", action="store_true", help="print the result only")
    return parser


if __name__ == "__main__":
    sys.exit(start(main))
