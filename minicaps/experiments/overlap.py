"""overlap: two overlapping digits, each of which is recognized and redrawn separately.

The experiment follows the MultiMNIST experiment of Sabour et al. (2017, section 6). The authors
trained a CapsNet with 11.4 million parameters and a CNN with 24.6 million, the best of several
widths, on 60 million images. Here, each network is trained on 3.3 million images: in each of sixty
epochs, 55,000 training digits are combined with new partners and shifts. The CapsNet uses the small
preset, and the CNN is this CapsNet with linear layers in place of votes and routing. The CNN is
trained with the same loss, applied to the sigmoids of its logits, and with the same decoder, which
draws a digit from the hidden units of its class. The purpose is to compare votes and routing with
linear layers, rather than to match the errors in the paper.

Each digit is shifted independently by up to 4 pixels in each direction. With these shifts, boxes of
20×20 pixels overlap by 73% on average. The bounding boxes of the ink overlap less, because most
digits are narrower; the paper reports 80%.

Learning rates are searched alike: every network is first trained with seed 0, for two epochs with
each of four rates. The rate with which it then finds most held-out pairs (the two highest outputs
are correct) is used for the sixty epochs, with all seeds. Each network is evaluated on the test
pairs after its last epoch.

The results named `overlap, 5 epochs` are older: all networks were trained for five epochs, and the
CNN with the cross-entropy, without a decoder and with a single learning rate.
"""

from typing import NamedTuple

import numpy as np

from minicaps.data.compose import box_overlap, compose
from minicaps.experiments.equal import DECIDES, best_rate, history
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.pairs import found
from minicaps.experiments.results import cost_cells, images_learned, line, percent
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import highest, seen
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure
from minicaps.plotting.members import MEMBERS, overlaid

TITLE = "two overlapping digits: which are they, and what does each look like?"
SEEDS = 3
DATA = "mnist"
SOURCE = {"capsules-3": 5.2, "capsules-1": 7.5, "cnn": 8.1}  # % of the pairs missed
SOURCE_BOXES = 80  # overlap of the boxes of two digits, %
REDRAWN = 500  # test pairs for which every class is drawn
SHOWN = 8  # of these pairs, in the figure
RATES = (0.004, 0.002, 0.001, 0.0005)  # learning rates that are tried

KEY = {
    "capsules-3": "the small CapsNet with three iterations of routing",
    "capsules-1": "the same with one iteration",
    "cnn": "the same convolutions, loss and decoder, with linear layers in place of capsules",
    "digits found": "share of the digits, %, whose class has one of the two highest outputs",
    "pairs missed": "share of the pairs, %, with at least one digit not found",
    "source": "pairs missed in Sabour et al. 2017, by larger networks after 60,000,000 images",
    "exactly two": "share of the pairs, %, for which exactly the two correct classes are above ½",
    "redrawn": "quality of the redrawn digits: 100 % − squared error / squared brightness",
    "rate": "learning rate chosen on held-out pairs",
    "absent drawn": "absent classes' squared effect on the drawing, in % of the present classes'",
    "boxes overlap": f"overlap of the boxes around two digits' ink, %; source: {SOURCE_BOXES}",
    "images learned": "shown in training after the search, each composed anew",
}
TESTED = "pairs of MNIST test digits, composed anew for each seed"
COMPARED = (("capsules-3", "capsules-1"), ("capsules-3", "cnn"))


def parts(quick):
    common = {
        "data": DATA,
        "compose": 2,
        "shift": 0,
        "validation": 500 if quick else 5000,
        "epochs": 2 if quick else 60,
        "schedule": "cosine",
        "batch_size": 32,
        "loss": "margin",
        "reconstruction": 0.0005,
        "search": {"epochs": 1 if quick else 2, "learning_rate": list(RATES)},
    }
    return {
        "capsules-3": common | {"model": "capsnet", "iterations": 3},
        "capsules-1": common | {"model": "capsnet", "iterations": 1},
        "cnn": common | {"model": "dense-cnn"},
    }


def measure(lab, part, settings, seed):
    search, searched = settings["search"], _learned(lab, settings, DECIDES)
    held_out = searched.cut_validation(settings["validation"], DECIDES)[1]

    def tried(rate):
        few = _options(settings, DECIDES, rate) | {"epochs": search["epochs"]}
        return lab.train(f"{part}-{rate}", searched, few)

    def score(folder):
        activations = lab.activations(lab.model(folder / "last.npz"), held_out)
        return found(activations, held_out.labels).mean()

    rate, scores = best_rate(tried, search["learning_rate"], score, lab.decided(part))
    folder = lab.train(part, _learned(lab, settings, seed), _options(settings, seed, rate))
    model, pairs = lab.model(folder / "last.npz"), _test_pairs(lab, settings["data"], seed)
    activations = lab.activations(model, pairs)
    right = {
        "found": found(activations, pairs.labels),
        "exactly two": exactly(activations, pairs.labels, model.logits),
    }
    return answers(activations, pairs.labels, model.logits) | {
        **tested(right),
        **redrawn(look(lab, model, pairs, REDRAWN)),
        "boxes": box_overlap(pairs.parts(np.arange(len(pairs)))),
        "rate": rate,
        "searched": scores,
        "history": history(folder),
        **cost(read_summary(folder)),
    }


def _learned(lab, settings, seed):
    return lab.data(settings["data"], seed, compose=settings["compose"])


def _options(settings, seed, rate):
    """Return the options of a training run with the learning rate `rate`."""
    own = {key: value for key, value in settings.items() if key != "search"}
    return own | {"seed": seed, "learning_rate": rate}


def _test_pairs(lab, name, seed):
    digits = lab.data(name, seed)
    return compose(digits.test, len(digits.class_names), seed=seed)


def answers(activations, labels, logits=False):
    """Measure how well pairs of digits are recognized.

    activations: (n, J), logits or not. labels: (n, J), with a 1 for each of the two classes
    present. Returns a dictionary of fractions:

    digits: digits whose activation is among the two highest. error: pairs with at least one missed
    digit. sure: pairs for which exactly the two classes present have a length or probability above
    ½.
    """
    there = (highest(activations, 2) & (labels > 0)).sum(axis=1)
    sure = exactly(activations, labels, logits)
    shares = {"digits": there / 2, "error": there < 2, "sure": sure}
    return {name: float(share.mean()) for name, share in shares.items()}


def exactly(activations, labels, logits):
    """Mark the pairs (n,) for which exactly the two classes present are above ½."""
    return (seen(activations, logits) == labels).all(axis=1)


class Look(NamedTuple):
    """Capsules and reconstructions for n pairs of digits.

    digits (n, 2, C, H, W): each digit alone, in the order of the classes. drawn (n, J, C, H, W):
    the decoder's drawing of each class alone. change (n, J): sum of squared differences between
    that drawing and the one decoded from zeros. activations (n, J): lengths of the capsules, or
    logits. present, answered (n, J), booleans: the classes present, and those of the two highest
    activations. (The poses of a network without capsules are its hidden units.)
    """

    digits: np.ndarray
    drawn: np.ndarray
    change: np.ndarray
    activations: np.ndarray
    present: np.ndarray
    answered: np.ndarray


def look(lab, model, pairs, count):
    """Run the model on the first `count` pairs, or on all pairs if there are fewer."""
    which = np.arange(min(count, len(pairs)))
    some = pairs.take(which)
    poses = lab.outputs(model, lambda x: model(x).poses, some)
    drawn, of_zeros = (draw_each(lab, model, x) for x in (poses, np.zeros_like(poses[:1])))
    change, found = ((drawn - of_zeros) ** 2).sum(axis=(2, 3, 4)), lab.activations(model, some)
    return Look(pairs.parts(which), drawn, change, found, some.labels > 0, highest(found, 2))


def draw_each(lab, model, poses):
    """Decode each class of poses (n, J, D) separately, and return images (n, J, C, H, W)."""
    there, (n, classes, _) = tensor_for(model, poses), poses.shape
    with no_grad():
        keeps = [lab.device.put(np.full(n, k)) for k in range(classes)]
        return np.stack([model.reconstruct(there, keep).numpy() for keep in keeps], axis=1)


def redrawn(view):
    """Measure how well the digits of a `Look` are redrawn, and how strongly absent digits appear.

    fit: fraction of the two digits' squared brightness that is redrawn, each digit from the numbers
    of its own class. absent: mean change made by classes that are neither present nor predicted,
    relative to that made by the classes present.
    """
    missing = view.drawn[view.present].reshape(view.digits.shape) - view.digits
    absent = ~view.present & ~view.answered
    return {
        "fit": float(1 - (missing**2).sum() / (view.digits**2).sum()),
        "absent": float(view.change[absent].mean() / view.change[view.present].mean()),
    }


def table(results):
    header = ["%", "digits found", "pairs missed", "source", "exactly two", "redrawn"]
    rows = [[*header, "absent drawn", "boxes overlap"]]
    rows[0] += ["rate", "parameters", "images learned"]
    for part, seeds in results.items():
        row = [part, *(percent([f[name] for f in seeds]) for name in ("digits", "error"))]
        row += [f"{SOURCE[part]}", percent([f["sure"] for f in seeds])]
        row += [percent([f[name] for f in seeds]) for name in ("fit", "absent", "boxes")]
        row.append(f"{seeds[0]['rate']:g}")
        rows.append([*row, *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        error = percent([f["error"] for f in seeds])
        what = part.replace("-", ", r = ") + ": pairs of which a digit is missed"
        rows.append(line(what, f"{SOURCE[part]} %", f"{error} %", seeds))
    seeds = next(iter(results.values()))
    boxes = percent([f["boxes"] for f in seeds])  # the pairs are the same for all networks
    what = "common share of the boxes round two digits' ink"
    return [*rows, line(what, f"{SOURCE_BOXES} %", f"{boxes} %", seeds)]


def draw(results, path, lab):
    """Draw test pairs with their reconstructions, and plot the errors of all networks.

    The pairs are also written to a separate file for lesson 16, with one pixel per value.
    """
    figure = new_figure(12, 5.4)
    left, right = figure.subfigures(1, 2, width_ratios=(2.5, 1))
    left.suptitle("Two digits separated: each is redrawn from its own capsule", color=INK)
    axes, view = left.subplots(4, SHOWN), first_pairs(lab, results["capsules-3"][0]["rate"])
    pairs = [Look(*(field[k] for field in view)) for k in range(len(view.digits))]
    rows = [_rows(one) for one in pairs]
    for column, one, shown in zip(axes.T, pairs, rows, strict=True):
        _draw_pair(column, one, shown)
    names = ("the image", "its digits", "redrawn", "an absent one")
    for panel, name in zip(axes[:, 0], names, strict=True):
        panel.set_ylabel(name, color=INK)
    _draw_errors(right.subplots(), results)
    lab.save(figure, path)
    grid = np.hstack([np.vstack(shown) for shown in rows])
    lab.save_pixels(grid.transpose(2, 0, 1), path.with_stem(f"{path.stem}-pairs"))


def first_pairs(lab, rate):
    """Return a `Look` for the first test pairs, from the network `capsules-3` with seed 0.

    rate: the learning rate that was chosen for it.
    """
    settings = parts(lab.quick)["capsules-3"]
    options = _options(settings, 0, rate)
    folder = lab.train("capsules-3", _learned(lab, settings, 0), options)
    model = lab.model(folder / "last.npz")
    return look(lab, model, _test_pairs(lab, settings["data"], 0), SHOWN)


def _absent(one):
    """Return the index of the highest activation whose class is neither present nor predicted."""
    return np.where(one.present | one.answered, -np.inf, one.activations).argmax()


def _rows(one):
    """Return four color images (H, W, 3) for a pair.

    The images show the pair, its two digits in different colors, the two reconstructed digits, and
    the drawing of an absent digit.
    """
    both = overlaid(one.digits), overlaid(one.drawn[one.present])
    grey = one.digits.max(axis=0)[0], one.drawn[_absent(one), 0]
    pair, absent = (np.repeat(row[..., None], 3, axis=2) for row in grey)
    return pair, *both, absent


def _draw_pair(axes, one, rows):
    """Draw the images from `_rows` in a column, labeled with the classes they show."""
    for panel, row in zip(axes, rows, strict=True):
        panel.imshow(row)
        panel.set(xticks=[], yticks=[])
    below = {"ha": "center", "va": "top", "transform": axes[1].transAxes}
    labels = np.flatnonzero(one.present)
    for place, label, colour in zip((0.35, 0.65), labels, MEMBERS, strict=False):
        axes[1].text(place, -0.04, label, color=colour, fontweight="bold", **below)
    said = " + ".join(map(str, np.flatnonzero(one.answered)))
    axes[2].set_xlabel(said + ("" if (one.present == one.answered).all() else " ✗"), color=INK)
    axes[3].set_xlabel(f"absent: {_absent(one)}", color=INK, fontsize=8)


def _draw_errors(axes, results):
    """Plot mean errors as bars and individual seeds as dots, next to the published errors."""
    for k, (part, seeds) in enumerate(results.items()):
        errors = [100 * f["error"] for f in seeds]
        ours = f"ours, each seed ({images_learned(seeds)} images)"
        axes.bar(k, np.mean(errors), 0.6, color=ORANGE if part == "cnn" else BLUE, alpha=0.5)
        axes.plot([k] * len(errors), errors, "o", color=INK, label="" if k else ours)
        source = "Sabour et al. 2017 (60,000,000)"
        axes.plot(k, SOURCE[part], "D", mfc="white", mec=INK, ms=8, label="" if k else source)
    axes.set_xticks(range(len(results)), [part.replace("-", "\nr = ") for part in results])
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])
    axes.set(title="Pairs that are not recognized", ylabel="% of the test pairs")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
