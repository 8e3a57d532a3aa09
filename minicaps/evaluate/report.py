"""What an evaluation counts, writes, draws and tells.

Where each picture has one class, the answer is the class with the largest activation; where it may
have any number of them, those that are seen. Both are sets of classes, so most counts are the same.
"""

import numpy as np

from minicaps import plotting
from minicaps.backend import array_module
from minicaps.evaluate import metrics
from minicaps.graph import no_grad
from minicaps.models import inspection
from minicaps.models.inputs import tensor_for
from minicaps.models.losses import classification_loss
from minicaps.models.multilabel import SEEN, answers_of, highest, redraw
from minicaps.ops.targets import one_hot
from minicaps.tensor import Tensor

WORST = 10  # pictures that are drawn
CONFUSIONS = 5  # kinds of wrong answers that are printed
# Of the tables that are printed: title, key of a row, width, format
COLUMNS = (("recall", "recall", 9, ".2%"), ("precision", "precision", 11, ".2%"))
COLUMNS += (("F1", "f1", 9, ".2%"),)


class Evaluation:
    """What a network predicted for the images of `split`, by activations (n, J) on the host.

    multi: whether a picture may have any number of classes. labels, answers (n, J): which classes
    each has, and which it is taken for, as booleans.
    """

    def __init__(self, model, split, activations):
        self.model, self.split, self.activations = model, split, activations
        self.multi = model.multi or split.multi
        self.labels = one_hot(split.labels, activations) > 0
        self.targets = self.labels if self.multi else split.labels
        self.answers = answers_of(model, activations, self.targets)

    def measure(self) -> dict:
        """Counts, rates, loss, a row for each class; counts are integers.

        right: pictures whose answer is exactly the classes that they have.
        """
        n, right = len(self.split), int((self.answers == self.labels).all(axis=1).sum())
        name, model = self.model.loss, self.model
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
            **(self._largest() if self.multi else {"error": (n - right) / n}),
            "loss": float(loss.data),
            "loss_name": name,
            "score": model.raw_score,
            "classes": table,
            **(self._by_number() if self.multi else self._confusion(table)),
        }

    def tables(self, result) -> dict:
        """The tables to write: {name of the file: (header, rows)}."""
        return (_tables_of_several if self.multi else _tables_of_one)(self, result)

    def draw(self, result, folder):
        """Draw the worst answers, and, of one class a picture, the confusion matrix."""
        if self.multi:
            title = "The worst answers first, ✗ if wrong"
            plotting.members(*worst_of_several(self), folder / "worst.png", title=title)
            return
        confusion = np.array(result["confusion"])
        plotting.confusion(confusion, self.model.class_names, folder / "confusion.png")
        plotting.worst(*worst_of_one(self), folder / "worst.png")

    def _confusion(self, table):
        """The confusion matrix; the rows of the table get the mean score of the right class."""
        for own, has, row in zip(self.activations.T, self.labels.T, table, strict=True):
            row["mean_score"] = float(own[has].mean(dtype=np.float64)) if has.any() else None
        answers, classes = self.activations.argmax(axis=1), len(table)
        return {"confusion": metrics.confusion_matrix(self.split.labels, answers, classes).tolist()}

    def _largest(self):
        """top: of the pictures with k ≥ 1 classes, those whose k largest activations are of just
        these; this asks which classes there are, and not how many."""
        present = self.labels.sum(axis=1, keepdims=True)
        same = (highest(self.activations, present) == self.labels).all(axis=1)
        n, right = int((present > 0).sum()), int((same & (present[:, 0] > 0)).sum())
        interval = metrics.wilson(right, n) if n else None
        return {"top_samples": n, "top_right": right, "top_interval_95": interval}

    def _by_number(self):
        """How many are right of the pictures with so many classes."""
        present, right = self.labels.sum(axis=1), (self.answers == self.labels).all(axis=1)
        rows = [(k, present == k) for k in np.unique(present)]
        return {
            "by_number": [
                {"present": int(k), "pictures": int(here.sum()), "right": int(right[here].sum())}
                for k, here in rows
            ]
        }


# ---- the tables


def _tables_of_one(found, result):
    names, labels, split = found.model.class_names, found.split.labels, found.split
    answers, rows = found.activations.argmax(axis=1), np.arange(len(split))
    confusion = [[name, *row] for name, row in zip(names, result["confusion"], strict=True)]
    highest, own = found.activations[rows, answers], found.activations[rows, labels]
    pictures = (
        [picture, names[k], names[j], f"{a:.6g}", f"{b:.6g}"]
        for picture, k, j, a, b in zip(split.names, labels, answers, highest, own, strict=True)
    )
    header = ["picture", "class", "answer", "score of answer", "score of class"]
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


# ---- the worst answers


def worst_of_one(found):
    """What `plotting.worst` takes, but the file: the pictures that were classified worst, and where
    there is a decoder, what it draws from the capsules of the rival and of their class."""
    model, which = found.model, metrics.worst(found.activations, found.split.labels, WORST)
    some, scored = found.split.take(which), found.activations[which]
    rival, _ = metrics.rivals(scored, some.labels)
    names = [plotting.short(name, 14) for name in found.model.class_names]
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


def worst_of_several(found, most=WORST):
    """What `plotting.members` takes, but the file: up to `most` pictures, those first of which a
    class is furthest on the wrong side of being seen; then those that are right, the closest
    first."""
    model, limit = found.model, 0 if found.model.logits else SEEN
    activations = found.activations
    beyond = np.where(found.labels, limit - activations, activations - limit).max(axis=1)
    which = np.argsort(-beyond, kind="stable")[:most]
    images, labels = found.split.images[which], found.labels[which]
    drawn = redraw(model, images, labels)[1] if inspection.has_decoder(model) else None
    return images, drawn, labels, found.answers[which], found.model.class_names


# ---- what is printed


def report(result) -> list[str]:
    """What to print: rates with their intervals, and the loss."""
    n, right, wrong, score = (result[key] for key in ("samples", "right", "wrong", "score"))
    interval, loss = result["accuracy_interval_95"], f"{result['loss_name']} loss"
    loss += f" {result['loss']:.4f}"
    if "confusion" in result:
        accuracy = _rate("Accuracy", right, n, " pictures", interval)
        return [accuracy, f"Error {result['error']:.2%} ({wrong:,} wrong), {loss}"]
    lines = [
        _rate("All classes right", right, n, " pictures", interval)
        + f": exactly the present ones are seen, whose {score} is above"
        f" {0 if score == 'logit' else SEEN:g}"
    ]
    if n := result["top_samples"]:
        largest = _rate("Largest right", result["top_right"], n, "", result["top_interval_95"])
        lines.append(f"{largest}: a picture's k classes are the k of the largest {score}")
    return [*lines, loss]


def _rate(what, right, samples, unit, interval):
    low, high = interval
    share = f"{right / samples:.2%} ({right:,} of {samples:,}{unit})"
    return f"{what} {share}, 95% interval {low:.2%} to {high:.2%}"


def report_classes(result) -> list[str]:
    """A row for each class; then the most frequent confusions, or a row for each number of classes
    in a picture."""
    rows, score = result["classes"], result["score"]
    pictures, right = ("pictures", "pictures", 9, ","), ("right", "right", 9, ",")
    if "confusion" in result:
        columns = (pictures, right, *COLUMNS, (score, "mean_score", 12, ".3f"))
        lines = _table([plotting.short(row["name"], 32) for row in rows], rows, columns)
        lines.append(f"{score}: of the right class, the mean of its pictures")
        return lines + _confusions(np.array(result["confusion"]), [row["name"] for row in rows])
    columns = (pictures, ("seen", "answered", 9, ","), right, *COLUMNS)
    lines = [*_table([row["name"] for row in rows], rows, columns), ""]
    for row in result["by_number"]:
        classes = "1 class" if row["present"] == 1 else f"{row['present']} classes"
        lines.append(f"{classes} in a picture: {row['right']:,} of {row['pictures']:,} right")
    return lines


def _table(names, rows, columns):
    """The lines of a table with a name and `columns` in each row."""
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
    lines = ["\nMost frequent confusions:" if found else "\nNo wrong answers."]
    for k, j, count in found:
        lines.append(f"  {names[k]} taken for {names[j]}: {count:,} of {pictures[k]:,} pictures")
    never = [names[k] for k in np.flatnonzero((confusion.sum(axis=0) == 0) & (pictures > 0))]
    return lines + ([f"Never the answer: {', '.join(never)}"] if never else [])
