"""What an evaluation counts, writes and tells where each picture has one class."""

import numpy as np

from minicaps import plotting
from minicaps.evaluate import metrics
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.models.losses import classification_loss
from minicaps.tensor import Tensor

WORST = 10  # pictures that are drawn
CONFUSIONS = 5  # kinds of wrong answers that are printed


def measure(run, split, activations) -> dict:
    """Counts, rates, loss, a row for each class. activations (n, J) on the host; counts are
    integers."""
    answers, labels = activations.argmax(axis=1), split.labels
    confusion = metrics.confusion_matrix(labels, answers, len(run.class_names))
    n, right, name = len(split), int(confusion.trace()), run.options.optimization.loss
    table = metrics.class_table(confusion, run.class_names)
    for k, row in enumerate(table):
        own = activations[labels == k, k]
        row["mean_score"] = float(own.mean(dtype=np.float64)) if own.size else None
    loss = classification_loss(name, run.model, Tensor(activations), labels)
    return {
        "samples": n,
        "right": right,
        "wrong": n - right,
        "accuracy": right / n,
        "accuracy_interval_95": metrics.wilson(right, n),
        "error": (n - right) / n,
        "loss": float(loss.data),
        "loss_name": name,
        "score": run.score,
        "classes": table,
        "confusion": confusion.tolist(),
    }


def tables(run, split, activations, result) -> dict:
    """The tables to write: {name of the file: (header, rows)}."""
    names, labels = run.class_names, split.labels
    answers, rows = activations.argmax(axis=1), np.arange(len(split))
    confusion = [[name, *row] for name, row in zip(names, result["confusion"], strict=True)]
    found, own = activations[rows, answers], activations[rows, labels]
    pictures = (
        [picture, names[k], names[j], f"{a:.6g}", f"{b:.6g}"]
        for picture, k, j, a, b in zip(split.names, labels, answers, found, own, strict=True)
    )
    header = ["picture", "class", "answer", "score of answer", "score of class"]
    return {
        "confusion.csv": (["class \\ answer", *names], confusion),
        "predictions.csv": (header, pictures),
    }


def draw(run, split, activations, result, folder):
    """Draw the confusion matrix, and the pictures that were classified worst."""
    confusion = np.array(result["confusion"])
    plotting.confusion(confusion, run.class_names, folder / "confusion.png")
    plotting.worst(*find_worst(run, split, activations), folder / "worst.png")


def find_worst(run, split, activations):
    """What `plotting.worst` takes, but the file: the pictures that were classified worst, and where
    there is a decoder, what it draws from the capsules of the rival and of their class."""
    which = metrics.worst(activations, split.labels, WORST)
    some, scored = split.take(which), activations[which]
    rival, _ = metrics.rivals(scored, some.labels)
    names = [plotting.short(name, 14) for name in run.class_names]
    captions = [
        (f"{names[k]}: {row[k]:.2f}", f"{names[j]}: {row[j]:.2f}")
        for k, j, row in zip(some.labels, rival, scored, strict=True)
    ]
    drawn = None
    if getattr(run.model, "decoder", None) is not None:
        with no_grad():
            poses = run.model(tensor_for(run.model, some.images)).poses
            keep = [run.device.put(capsules) for capsules in (rival, some.labels)]
            drawn = [run.model.reconstruct(poses, capsules).numpy() for capsules in keep]
    return some.images, drawn, captions, scored.argmax(axis=1) != some.labels


def report(result) -> list[str]:
    """What to print: accuracy with its interval, error and loss."""
    low, high = result["accuracy_interval_95"]
    return [
        f"Accuracy {result['accuracy']:.2%} ({result['right']:,} of {result['samples']:,} pictures)"
        f", 95% interval {low:.2%} to {high:.2%}",
        f"Error {result['error']:.2%} ({result['wrong']:,} wrong), {result['loss_name']} loss"
        f" {result['loss']:.4f}",
    ]


def report_classes(result) -> list[str]:
    """A row for each class, and the most frequent confusions."""
    classes, score = result["classes"], result["score"]
    names = [plotting.short(row["name"], 32) for row in classes]
    width = max(7, *(len(name) + 2 for name in names))
    lines = [
        f"\n{'class':{width}}{'pictures':>9}{'right':>9}{'recall':>9}{'precision':>11}{'F1':>9}"
        f"{score:>12}"
    ]
    for name, row in zip(names, classes, strict=True):
        recall, precision, f1 = (
            "–" if row[key] is None else f"{row[key]:.2%}" for key in ("recall", "precision", "f1")
        )
        own = "–" if row["mean_score"] is None else f"{row['mean_score']:.3f}"
        lines.append(
            f"{name:{width}}{row['pictures']:>9,}{row['right']:>9,}{recall:>9}"
            f"{precision:>11}{f1:>9}{own:>12}"
        )
    lines.append(f"{score}: of the right class, the mean of its pictures")
    return lines + _confusions(np.array(result["confusion"]), [row["name"] for row in classes])


def _confusions(confusion, names):
    pictures = confusion.sum(axis=1)
    found = metrics.most_confused(confusion, CONFUSIONS)
    lines = ["\nMost frequent confusions:" if found else "\nNo wrong answers."]
    for k, j, count in found:
        lines.append(f"  {names[k]} taken for {names[j]}: {count:,} of {pictures[k]:,} pictures")
    never = [names[k] for k in np.flatnonzero((confusion.sum(axis=0) == 0) & (pictures > 0))]
    return lines + ([f"Never the answer: {', '.join(never)}"] if never else [])
