"""affine: networks trained on shifted digits in larger images are tested on rotated, sheared and
scaled digits.

In section 5.2 of Sabour et al. (2017), a CapsNet that was stopped early is as accurate as a network
with pooling, dropout and about as many parameters on their training images, which are MNIST digits
at random positions in 40×40 pixels. On affNIST, the CapsNet is far more accurate. Here, the
counterpart has the convolutions of the CapsNet, followed by linear layers (`dense-cnn`). The
counterpart has neither pooling nor dropout, because it learned less with them in so few epochs. The
CapsNet has no decoder. Both networks train on 30,000 digits, which are shifted anew in each epoch.
The test images are the MNIST test digits, rotated, sheared and scaled roughly like those of affNIST
(`minicaps.data.affine`), but shifted no farther than the training images. The page of affNIST calls
translation "much of the challenge", so our test is probably easier, and its accuracies are not
comparable with those of the paper. Another 5,000 digits, which are also shifted, are held out to
choose the epoch at which each network's accuracy is closest to the best that both networks reach.
"""

import functools
from dataclasses import replace

import numpy as np

from minicaps.cli.sharing import all_of
from minicaps.data import Split, affine
from minicaps.experiments import equal
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import all_seeds, cost_cells, line, percent
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure

TITLE = "trained on shifted digits, tested on rotated, sheared and scaled ones"
SEEDS = 3
DATA = "mnist"
TRAINING, HELD_OUT = 30_000, 5000
SOURCE = {"capsules": (99.23, 79), "cnn": (99.22, 66)}  # %: moved, affNIST
KINDS = {
    "moved": (),
    "rotated": ("rotation",),
    "sheared": ("shear",),
    "scaled": ("scale",),
    "all three": tuple(affine.RANGES),
}

KEY = equal.KEY | {
    "accuracy, %": "share of test digits, transformed as the column says, classified correctly",
    "at equal accuracy": "after the epoch at which both are about equally good on held-out digits",
    "at the end": "after the last epoch",
    "epoch": "the epoch after which the network of each seed is tested",
    "held out": "accuracy on shifted digits left out of training; decides which epoch is tested",
    "moved": f"as in training, by up to {affine.MOST} pixels; the other digits are shifted as well",
    "rotated": "by up to {:g}°".format(affine.RANGES["rotation"][1]),
    "sheared": "rows shifted sideways, by up to {:g} of their height".format(
        affine.RANGES["shear"][1]
    ),
    "scaled": "width and height, each by {:g} to {:g}".format(*affine.RANGES["scale"]),
    "all three": "rotated, sheared and scaled",
    "source": "Sabour et al. 2017, larger networks; affNIST has the changes and large translations",
}
TESTED = "MNIST test digits, transformed anew for each seed; paired test: all three"
COMPARED = (("capsules", "cnn"),)


def parts(quick):
    common = {
        "data": DATA,
        "limit": 2500 if quick else TRAINING + HELD_OUT,
        "validation": 500 if quick else HELD_OUT,
        "shift": affine.MOST,
        "epochs": 2 if quick else 6,
        "schedule": "cosine",
        "learning_rate": 0.003,
    }
    return {part: common | own for part, own in equal.NETWORKS.items()}


def measure(lab, part, settings, seed):
    curves = all_of(lambda name: held_out(lab, name, seed), parts(lab.quick))
    folder, test = trained(lab, part, seed), lab.data(DATA, seed).test
    epochs = {"equal": equal.epochs(curves)[part], "last": settings["epochs"]}
    figures = {"held out": curves[part], "epoch": epochs["equal"], "equal": {}, "last": {}}
    models = {when: lab.model(folder / f"epoch-{epoch}.npz") for when, epoch in epochs.items()}
    for kind, changes in KINDS.items():
        shown = affine.changed(test, changes, seed=seed)
        right = {when: lab.right(model, shown) for when, model in models.items()}
        for when in epochs:
            figures[when][kind] = float(right[when].mean())
    return figures | tested(right["equal"]) | cost(read_summary(folder))  # of the last kind


def trained(lab, part, seed):
    """Train a network on digits in images of 40×40 pixels, and return its run folder.

    The digits are placed in the middle and shifted anew in each epoch.
    """
    digits, settings = learned(lab, seed), parts(lab.quick)[part]
    digits = replace(digits, train=framed(digits.train), test=framed(digits.test))
    return lab.train(part, digits, settings | {"seed": seed}, keep_epochs=True)


def learned(lab, seed):
    digits, settings = lab.data(DATA, seed), parts(lab.quick)["capsules"]
    return replace(digits, train=digits.train.take(slice(settings["limit"])))


def framed(split):
    """Pad the images with zeros on all sides, to a size of 40×40 pixels."""
    edge = (affine.SIZE - split.shape[1]) // 2
    images = np.pad(split.images, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    return Split(images, split.labels)


@functools.cache  # each part needs the curves of all
def held_out(lab, part, seed):
    """Compute the accuracy after each epoch on held-out digits.

    The digits are shifted in the same way as the training digits.
    """
    folder, settings = trained(lab, part, seed), parts(lab.quick)[part]
    digits = learned(lab, seed).cut_validation(settings["validation"], seed)[1]
    moved = affine.changed(digits, (), seed=seed)
    paths = [folder / f"epoch-{epoch}.npz" for epoch in range(1, settings["epochs"] + 1)]
    return [lab.accuracy(lab.model(path), moved) for path in paths]


def table(results):
    header = ["accuracy, %", "epoch", "held out", *KINDS, "source"]
    rows = [[*header, "parameters", "images learned"]]
    for when, title in (("equal", "at equal accuracy"), ("last", "at the end")):
        for part, seeds in results.items():
            chosen = [f["epoch"] if when == "equal" else len(f["held out"]) for f in seeds]
            known = [f["held out"][epoch - 1] for f, epoch in zip(seeds, chosen, strict=True)]
            row = [f"{part}, {title}", ", ".join(map(str, chosen)), percent(known)]
            row += [percent([f[when][kind] for f in seeds]) for kind in KINDS]
            row.append("moved {} / affNIST {}".format(*SOURCE[part]) if when == "equal" else "–")
            rows.append([*row, *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        moved, changed = (percent([f["equal"][k] for f in seeds]) for k in ("moved", "all three"))
        source = "{} / {} % (affNIST)".format(*SOURCE[part])
        what = f"{part}, at equal validation: accuracy on moved digits"
        what += " / rotated, sheared and scaled, too"
        rows.append(line(what, source, f"{moved} / {changed} %", seeds))
    return rows


def draw(results, path, lab):
    """Draw digits of each kind, and plot the accuracy of both networks.

    The networks are compared at equal accuracy on shifted digits.
    """
    figure = new_figure(10, 5)
    pictures, panel = figure.subplots(1, 2, width_ratios=(1, 1.3))
    digits = lab.data(DATA, 0).test.take(slice(6))
    rows = [affine.changed(digits, changes).images[:, 0] for changes in KINDS.values()]
    shown = np.pad(rows, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=0.5)  # (kinds, n, H, W)
    kinds, n, height, width = shown.shape
    shown = shown.transpose(0, 2, 1, 3).reshape(kinds * height, n * width)
    pictures.imshow(shown, cmap="gray_r", vmin=0, vmax=1, aspect="auto")
    places = (np.arange(kinds) + 0.5) * height
    pictures.set(title="The test images", xticks=[], yticks=places, yticklabels=KINDS)
    styles = zip(results.items(), (BLUE, ORANGE), "os", (-0.12, 0.12), strict=False)
    for (part, seeds), colour, marker, offset in styles:
        values = 100 * np.array([[f["equal"][kind] for kind in KINDS] for f in seeds])
        y = np.arange(kinds) + offset
        panel.hlines(y, values.min(axis=0), values.max(axis=0), color=colour, linewidth=2)
        panel.plot(values.mean(axis=0), y, marker, color=colour, markersize=7, label=part)
        source = SOURCE[part]
        label = f"{part}, Sabour et al. 2017"
        panel.plot(source, [offset, kinds - 1 + offset], marker, mfc="white", mec=INK, label=label)
    panel.set(ylim=(kinds - 0.5, -0.5), yticks=[])
    panel.set_xlabel(f"test accuracy, %{all_seeds(results, 'line')}")
    panel.set_title("Which is better when both are equal on shifted digits?")
    panel.grid(axis="x", alpha=0.3)
    panel.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    lab.save(figure, path)
