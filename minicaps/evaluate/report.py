"""Metrics, tables, figures and printed report of an evaluation.

The prediction for an image is the class with the largest activation or, for multi-label data, the
set of all classes with activations above a threshold. Most counts are defined for sets of classes
and apply to single-label data as well.
"""

import numpy as np

from minicaps import plotting
from minicaps.backend import array_module
from minicaps.data import baselines
from minicaps.evaluate import metrics
from minicaps.graph import no_grad
from minicaps.models import inspection
from minicaps.models.inputs import tensor_for
from minicaps.models.losses import classification_loss, usual_loss
from minicaps.models.multilabel import SEEN, answers_of, highest, redraw
from minicaps.ops.targets import one_hot
from minicaps.tensor import Tensor

WORST = 10  # images drawn
CONFUSIONS = 5  # kinds of errors printed
TOP, MANY = 5, 20  # the top-5 accuracy is reported if there are at least 20 classes
# Columns of the printed tables: title, key in the row, width, format
COLUMNS = (("recall", "recall", 9, ".2%"), ("precision", "precision", 11, ".2%"))
COLUMNS += (("F1", "f1", 9, ".2%"),)


class Evaluation:
    """Predictions of a network for the images of `split`, from activations (n, J) on the host.

    multi: whether the evaluation is multi-label. labels, answers (n, J): boolean arrays of the true
    and the predicted classes of each image.
    """

    def __init__(self, model, split, activations):
        self.model, self.split, self.activations = model, split, activations
        self.multi = model.multi or split.multi
        self.labels = one_hot(split.labels, activations) > 0
        self.targets = self.labels if self.multi else split.labels
        self.answers = answers_of(model, activations, self.targets)

    def measure(self, top=None) -> dict:
        """Return integer counts, rates, the loss, and a row of metrics for each class.

        "right" counts the images for which the predicted classes are exactly the true classes.

        top: K of the top-K accuracy of single-label data; by default, `TOP` if there are at least
        `MANY` classes.
        """
        n, right = len(self.split), int((self.answers == self.labels).all(axis=1).sum())
        model = self.model
        name = model.loss or usual_loss(model.config["name"])
        loss = classification_loss(name, model, Tensor(self.activations), self.targets)
        table = metrics.table(
            self.model.class_names,
            pictures=self.labels.sum(axis=0),
            answered=self.answers.sum(axis=0),
            right=(self.answers & self.labels).sum(axis=0),
        )
        return {
            "samples": n,
            "right": right,
            "wrong": n - right,
            "accuracy": right / n,
            "accuracy_interval_95": metrics.wilson(right, n),
            **(self._largest() if self.multi else self._ranked(table, top)),
            "loss": float(loss.data),
            "loss_name": name,
            "score": model.raw_score,
            "classes": table,
            **(self._by_number() if self.multi else self._confusion(table)),
        }

    def tables(self, result) -> dict:
        """Return the contents of the output tables as {file name: (header, rows)}."""
        return (_tables_of_several if self.multi else _tables_of_one)(self, result)

    def draw(self, result, folder):
        """Draw the worst predictions and, for single-label data, the confusion matrix.

        Returns sentences for the user about the figures.
        """
        names, note = plotting.legible(self.model.class_names)
        if self.multi:
            title = "Worst predictions first, ✗ if wrong"
            plotting.members(*worst_of_several(self, names), folder / "worst.png", title=title)
        else:
            plotting.confusion(np.array(result["confusion"]), names, folder / "confusion.png")
            plotting.worst(*worst_of_one(self, names), folder / "worst.png")
        return [note] if note else []

    def _ranked(self, table, top):
        """Return the error, the balanced accuracy and, with many classes, the top-K accuracy."""
        n, right = len(self.split), int((self.answers & self.labels).sum())
        found = {
            "error": (n - right) / n,
            "balanced_accuracy": metrics.balanced_accuracy(table),
        }
        if top is None and len(table) < MANY:
            return found
        k = top or TOP
        right = int((highest(self.activations, k) & self.labels).sum())
        interval = metrics.wilson(right, n)
        return found | {
            "top": {"k": k, "right": right, "accuracy": right / n, "interval_95": interval}
        }

    def _confusion(self, table):
        """Return the confusion matrix, and add the mean score of each class to `table`.

        The mean is taken over all images that belong to the class.
        """
        for own, has, row in zip(self.activations.T, self.labels.T, table, strict=True):
            row["mean_score"] = float(own[has].mean(dtype=np.float64)) if has.any() else None
        answers, classes = self.activations.argmax(axis=1), len(table)
        return {"confusion": metrics.confusion_matrix(self.split.labels, answers, classes).tolist()}

    def _largest(self):
        """Evaluate the k largest activations of each image, where k is its true number of classes.

        "top_right" counts the images with k ≥ 1 classes for which the k largest activations belong
        to exactly these classes.
        """
        present = self.labels.sum(axis=1, keepdims=True)
        same = (highest(self.activations, present) == self.labels).all(axis=1)
        n, right = int((present > 0).sum()), int((same & (present[:, 0] > 0)).sum())
        interval = metrics.wilson(right, n) if n else None
        return {"top_samples": n, "top_right": right, "top_interval_95": interval}

    def _by_number(self):
        """Count the correct predictions separately for each number of classes per image."""
        present, right = self.labels.sum(axis=1), (self.answers == self.labels).all(axis=1)
        rows = [(k, present == k) for k in np.unique(present)]
        return {
            "by_number": [
                {"present": int(k), "pictures": int(here.sum()), "right": int(right[here].sum())}
                for k, here in rows
            ]
        }


# ---- tables


def _tables_of_one(found, result):
    names, labels, split = found.model.class_names, found.split.labels, found.split
    answers, rows = found.activations.argmax(axis=1), np.arange(len(split))
    confusion = [[name, *row] for name, row in zip(names, result["confusion"], strict=True)]
    best, own = found.activations[rows, answers], found.activations[rows, labels]
    pictures = (
        [picture, names[k], names[j], *(f"{a:.6g}" for a in (*scores, *row))]
        for picture, k, j, *scores, row in zip(
            split.names, labels, answers, best, own, found.activations, strict=True
        )
    )
    header = ["picture", "class", "answer", "score of answer", "score of class", *names]
    return {
        "confusion.csv": (["class \\ answer", *names], confusion),
        "predictions.csv": (header, pictures),
    }


def _tables_of_several(found, result):
    names, classes = found.model.class_names, result["classes"]

    def text(row):
        return " + ".join(names[k] for k in np.flatnonzero(row))

    rows = zip(found.split.names, found.labels, found.answers, found.activations, strict=True)
    pictures = (
        [name, text(own), text(answer), *(f"{a:.6g}" for a in row)]
        for name, own, answer, row in rows
    )
    return {
        "classes.csv": (list(classes[0]), [list(row.values()) for row in classes]),
        "predictions.csv": (["picture", "classes", "answer", *names], pictures),
    }


# ---- worst predictions


def worst_of_one(found, names):
    """Return all arguments of `plotting.worst` except the path for the worst predictions.

    names: names of the classes. If the network has a decoder, the arguments include reconstructions
    from the capsules of the rival and of the true class.
    """
    model, which = found.model, metrics.worst(found.activations, found.split.labels, WORST)
    some, scored = found.split.take(which), found.activations[which]
    rival, _ = metrics.rivals(scored, some.labels)
    captions = [
        (f"{names[k]}: {row[k]:.2f}", f"{names[j]}: {row[j]:.2f}")
        for k, j, row in zip(some.labels, rival, scored, strict=True)
    ]
    drawn = None
    if inspection.has_decoder(model):
        with no_grad():
            poses = model(tensor_for(model, some.images)).poses
            put = array_module(poses.data).asarray
            keep = [put(capsules) for capsules in (rival, some.labels)]
            drawn = [model.reconstruct(poses, capsules).numpy() for capsules in keep]
    return some.images, drawn, captions, scored.argmax(axis=1) != some.labels


def worst_of_several(found, names, most=WORST):
    """Return all arguments of `plotting.members` except the path for up to `most` images.

    names: names of the classes. Errors come first, in order of decreasing distance from the
    threshold. Correct predictions follow, in order of increasing distance from the threshold.
    """
    model, limit = found.model, 0 if found.model.logits else SEEN
    activations = found.activations
    beyond = np.where(found.labels, limit - activations, activations - limit).max(axis=1)
    which = np.argsort(-beyond, kind="stable")[:most]
    images, labels = found.split.take(which).images, found.labels[which]
    drawn = redraw(model, images, labels)[1] if inspection.has_decoder(model) else None
    return images, drawn, labels, found.answers[which], names


# ---- printed report


def report(result) -> list[str]:
    """Format the rates with their confidence intervals and the loss as lines of text."""
    n, right, wrong, score = (result[key] for key in ("samples", "right", "wrong", "score"))
    interval, loss = result["accuracy_interval_95"], f"{result['loss_name']} loss"
    loss += f" {result['loss']:.4f}"
    if "confusion" in result:
        accuracy = _rate("Accuracy", right, n, " images", interval)
        lines = [accuracy, f"Error {result['error']:.2%} ({wrong:,} wrong), {loss}"]
        if top := result.get("top"):
            lines.append(_rate(f"Top {top['k']}", top["right"], n, " images", top["interval_95"]))
        if "baselines" in result:
            balanced = f"{result['balanced_accuracy']:.2%} (mean recall of the classes)"
            lines += [f"Balanced accuracy {balanced}", baselines.line(result["baselines"])]
        return lines
    lines = [
        _rate("All classes correct", right, n, " images", interval)
        + f": the classes present are exactly those whose {score} is above"
        f" {0 if score == 'logit' else SEEN:g}"
    ]
    if n := result["top_samples"]:
        largest = _rate("Top k correct", result["top_right"], n, "", result["top_interval_95"])
        lines.append(f"{largest}: the k classes present are the k with the largest {score}")
    return [*lines, loss]


def _rate(what, right, samples, unit, interval):
    low, high = interval
    share = f"{right / samples:.2%} ({right:,} of {samples:,}{unit})"
    return f"{what} {share}, 95% interval {low:.2%} to {high:.2%}"


def report_classes(result) -> list[str]:
    """Format the table of classes, followed by the most frequent confusions.

    For multi-label data, the confusions are replaced by a line for each number of classes per
    image.
    """
    rows, score = result["classes"], result["score"]
    images, correct = ("images", "pictures", 9, ","), ("correct", "right", 9, ",")
    if "confusion" in result:
        columns = (images, correct, *COLUMNS, (score, "mean_score", 12, ".3f"))
        lines = _table([plotting.short(row["name"], 32) for row in rows], rows, columns)
        lines.append(f"{score}: mean for the correct class over its images")
        return lines + _confusions(np.array(result["confusion"]), [row["name"] for row in rows])
    columns = (images, ("predicted", "answered", 11, ","), correct, *COLUMNS)
    lines = [*_table([row["name"] for row in rows], rows, columns), ""]
    for row in result["by_number"]:
        classes = "1 class" if row["present"] == 1 else f"{row['present']} classes"
        lines.append(f"images with {classes}: {row['right']:,} of {row['pictures']:,} correct")
    return lines


def _table(names, rows, columns):
    """Format a table with a name and the given columns in each row, and return its lines."""
    first = max(7, *(len(name) + 2 for name in names))
    lines = [
        f"\n{'class':{first}}" + "".join(f"{title:>{width}}" for title, _, width, _ in columns)
    ]
    for name, row in zip(names, rows, strict=True):
        cells = (
            f"{'–' if row[key] is None else format(row[key], style):>{width}}"
            for _, key, width, style in columns
        )
        lines.append(f"{name:{first}}" + "".join(cells))
    return lines


def _confusions(confusion, names):
    pictures = confusion.sum(axis=1)
    found = metrics.most_confused(confusion, CONFUSIONS)
    lines = ["\nMost frequent confusions:" if found else "\nNo wrong predictions."]
    for k, j, count in found:
        lines.append(f"  {names[k]} taken for {names[j]}: {count:,} of {pictures[k]:,} images")
    never = [names[k] for k in np.flatnonzero((confusion.sum(axis=0) == 0) & (pictures > 0))]
    return lines + ([f"Never predicted: {', '.join(never)}"] if never else [])
