"""What an evaluation counts, writes and tells where a picture may have any number of classes."""

import numpy as np

from minicaps import plotting
from minicaps.evaluate import metrics
from minicaps.models.losses import classification_loss
from minicaps.models.multilabel import SEEN, highest, redraw, seen
from minicaps.ops.targets import one_hot
from minicaps.tensor import Tensor

WORST = 10  # pictures that are drawn


def measure(run, split, activations) -> dict:
    """Counts, rates, loss, a row for each class. activations (n, J) on the host.

    right: pictures where exactly the present classes are seen (a length above 0.5). top: of the
    pictures with k ≥ 1 classes, those whose k largest activations are of just these; this asks
    which classes there are, and not how many.
    """
    labels = one_hot(split.labels, activations) > 0
    answers = seen(activations, run.model.logits)
    present, right = labels.sum(axis=1), (answers == labels).all(axis=1)
    top = (highest(activations, present[:, None]) == labels).all(axis=1) & (present > 0)
    n, with_classes, name = len(labels), int((present > 0).sum()), run.options.optimization.loss
    loss = classification_loss(name, run.model, Tensor(activations), labels)
    return {
        "samples": n,
        "right": int(right.sum()),
        "wrong": int(n - right.sum()),
        "accuracy": float(right.mean()),
        "accuracy_interval_95": metrics.wilson(int(right.sum()), n),
        "top_samples": with_classes,
        "top_right": int(top.sum()),
        "top_interval_95": metrics.wilson(int(top.sum()), with_classes) if with_classes else None,
        "loss": float(loss.data),
        "loss_name": name,
        "score": run.score,
        "classes": metrics.table(
            run.class_names,
            pictures=labels.sum(axis=0),
            answered=answers.sum(axis=0),
            right=(answers & labels).sum(axis=0),
        ),
        "by_number": [
            {
                "present": int(k),
                "pictures": int((present == k).sum()),
                "right": int(right[present == k].sum()),
            }
            for k in np.unique(present)
        ],
    }


def tables(run, split, activations, result) -> dict:
    """The tables to write: {name of the file: (header, rows)}."""
    names, classes = run.class_names, result["classes"]
    labels = one_hot(split.labels, activations) > 0
    answers = seen(activations, run.model.logits)

    def text(row):
        return " + ".join(names[k] for k in np.flatnonzero(row))

    pictures = (
        [name, text(own), text(answer), *(f"{a:.6g}" for a in row)]
        for name, own, answer, row in zip(split.names, labels, answers, activations, strict=True)
    )
    return {
        "classes.csv": (list(classes[0]), [list(row.values()) for row in classes]),
        "predictions.csv": (["picture", "classes", "answer", *names], pictures),
    }


def draw(run, split, activations, result, folder):
    """Draw the worst answers."""
    drawn = find_worst(run, split, activations, WORST)
    plotting.members(*drawn, folder / "worst.png", title="The worst answers first, ✗ if wrong")


def find_worst(run, split, activations, most):
    """What `plotting.members` takes, but the file: up to `most` pictures, those first of which a
    class is furthest on the wrong side of being seen; then those that are right, the closest
    first."""
    limit = 0 if run.model.logits else SEEN
    labels = one_hot(split.labels, activations) > 0
    beyond = np.where(labels, limit - activations, activations - limit).max(axis=1)
    which = np.argsort(-beyond, kind="stable")[:most]
    images, answers, drawn = split.images[which], seen(activations[which], run.model.logits), None
    if getattr(run.model, "decoder", None) is not None:
        drawn = redraw(run.model, images, labels[which])[1]
    return images, drawn, labels[which], answers, run.class_names


def report(result) -> list[str]:
    """What to print: the rates with their intervals, then a row for each class."""
    n, right, top = result["samples"], result["right"], result["top_right"]
    score = result["score"]
    low, high = result["accuracy_interval_95"]
    lines = [
        f"All classes right {right / n:.2%} ({right:,} of {n:,} pictures), 95% interval {low:.2%}"
        f" to {high:.2%}: exactly the present ones are seen, whose {score} is above"
        f" {0 if score == 'logit' else SEEN:g}"
    ]
    if result["top_samples"]:
        (low, high), n = result["top_interval_95"], result["top_samples"]
        lines.append(
            f"Largest right {top / n:.2%} ({top:,} of {n:,}), 95% interval {low:.2%} to {high:.2%}:"
            f" a picture's k classes are the k of the largest {score}"
        )
    lines.append(f"{result['loss_name']} loss {result['loss']:.4f}")
    return lines


def report_classes(result) -> list[str]:
    """A row for each class, and for each number of classes in a picture."""
    classes = result["classes"]
    width = max(7, *(len(row["name"]) + 2 for row in classes))
    lines = [
        f"\n{'class':{width}}{'pictures':>9}{'seen':>9}{'right':>9}{'recall':>9}{'precision':>11}"
        f"{'F1':>9}"
    ]
    for row in classes:
        rates = ["–" if row[key] is None else f"{row[key]:.2%}" for key in ("recall", "precision")]
        f1 = "–" if row["f1"] is None else f"{row['f1']:.2%}"
        lines.append(
            f"{row['name']:{width}}{row['pictures']:>9,}{row['answered']:>9,}{row['right']:>9,}"
            f"{rates[0]:>9}{rates[1]:>11}{f1:>9}"
        )
    lines.append("")
    for row in result["by_number"]:
        classes = "1 class" if row["present"] == 1 else f"{row['present']} classes"
        lines.append(f"{classes} in a picture: {row['right']:,} of {row['pictures']:,} right")
    return lines
