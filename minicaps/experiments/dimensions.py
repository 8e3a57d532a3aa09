"""dimensions: the information in the 16 numbers of a capsule, for digits with known poses.

Sabour et al. (2017, section 5.1 and figure 4) change one dimension at a time and look at the images
that the decoder draws. Because `strokes` are drawn with known poses, the information can also be
measured: for each class, a linear map from the correct capsule to each component of the pose is
fitted on training images and scored on test images. R² is the fraction of a component's variance
that the map explains. If R² is close to 1, the capsule encodes the pose, that is, the capsule is
equivariant. The length of the capsule indicates whether the digit is present, and is invariant if
it hardly changes with the pose.

A high R² alone says little, because the image itself determines the pose. Four rows are controls:
a CapsNet with initial weights shows what learning adds, a network without capsules (`dense-cnn`)
with the same masked decoder shows what capsules add, and the first 16 principal components of the
pixels and six moments of the image need no network at all.

Two claims of the literature go beyond R². If each number had a meaning of its own (Sabour et al.
2017, figure 4), a single number would explain a pose as well as all 16 do; each pose is therefore
also read from the one number that explains it best on training images. And if a pose acts linearly
on a capsule, a linear map should hold for poses beyond those on which it was fitted (Hinton et al.
2018, section 1): it is also fitted on digits rotated by up to 12.5° and tested on those rotated
farther. (The networks themselves were trained on all rotations.)
"""

from functools import partial

import numpy as np

from minicaps import models, ops
from minicaps.data.strokes import POSE_NAMES
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import accuracy, line, spread
from minicaps.models.inputs import tensor_for
from minicaps.plotting.canvas import BLUE, INK, ORANGE, PINK, new_figure

NAMES = (*POSE_NAMES, "slant")
ROTATION = NAMES.index("rotation")
TITLE = "what the 16 numbers of a capsule encode: a linear readout of the pose, and sweeps"
SEEDS = 3
SWEEP = np.arange(-5, 6) * 0.05  # added to one dimension at a time
# Chosen by R² on validation images with seed 0. Rotation, thickness and slant after 16 epochs: with
# 0.0005, the paper's weight, 0.52, 0.17, 0.68; 0.005: 0.56, 0.63, 0.79; 0.05: 0.55, 0.80, 0.81
RECONSTRUCTION = 0.05
SMALL = 1e-3  # directions with a smaller share of the largest spread are not used in a fit
COMPONENTS = 16  # principal components of the features: as many as a capsule has numbers
NEAR = 12.5  # degrees: the rotations on which a map is fitted that is tested beyond them
COLOURS = {
    "capsules": BLUE, "untrained": "#9ecae1", "masked": "#fdae6b", "pooling": ORANGE,
    "pixels": "#999999", "moments": PINK,
}  # fmt: skip
HATCHES = ("", "\\\\", "--", "//", "..", "xx")

KEY = {
    "R²": "share of a pose's variance on test digits that a linear map of the features explains",
    "capsules": "features: the 16 numbers of the digit's capsule; the decoder's weight is"
    f" {RECONSTRUCTION} (0.0005 in the paper)",
    "untrained": "the same, with initial weights",
    "masked": "features: the 16 hidden units of the digit's class in dense-cnn, decoded alike",
    "pooling": "features: the 128 activations before the last layer of a CNN with pooling",
    "pixels": "features: the image, without any network",
    "moments": "features: the ink's amount, center, variances and covariance, without a network",
    "of 16": "of their first 16 principal components, as many as a capsule has numbers",
    "of one": "for each pose, of the single feature that explains it best on training digits",
    "beyond": f"rotation, fitted on digits rotated by up to {NEAR}° and tested on the others",
    "x": "horizontal position of the digit, growing to the right",
    "y": "vertical position of the digit, growing downward",
    "slant": "angle of the digit's upright axis, to which rotation and shear both contribute",
    "right class": "length of its capsule, or its probability in the CNN: mean over test digits",
    "varies by": "standard deviation of that over test digits: small if poses do not matter",
}


TESTED = "digits, drawn anew for each seed; R² is fitted on the training digits"
COMPARED = (("capsules", "masked"), ("capsules", "pooling"))  # by their accuracy
ALL, FEW, ONE = "R²", f"R² of {COMPONENTS}", "R² of one"
KINDS = {
    "capsules": (ALL, ONE),
    "untrained": (ALL,),
    "masked": (ALL, ONE),
    "pooling": (ALL, FEW),
    "pixels": (FEW,),
    "moments": (ALL, ONE),
}


def parts(quick):
    common = {"data": "strokes", "validation": 500 if quick else 1000}
    drawing = {"reconstruction": RECONSTRUCTION, "epochs": 4 if quick else 16}
    return {
        "capsules": common | {"model": "capsnet"} | drawing,
        "untrained": common | {"model": "capsnet", "epochs": 0},
        "masked": common | {"model": "dense-cnn"} | drawing,
        "pooling": common | {"model": "pooling-cnn", "epochs": 2 if quick else 10},
        "pixels": common | {"model": None, "epochs": 0},
        "moments": common | {"model": None, "epochs": 0},
    }


def measure(lab, part, settings, seed):
    options = settings | {"seed": seed}
    digits = lab.data(options["data"], seed)
    training, _ = digits.cut_validation(options["validation"], seed)
    if not options["epochs"]:
        without = {"pixels": pixels, "moments": moments}  # a network
        features = without.get(part) or _untrained(lab, digits, seed)
        return _scores(features, training, digits.test, KINDS[part]) | {"seconds": 0.0}
    folder = lab.train(part, digits, options)
    summary = read_summary(folder)
    model = lab.model(folder)
    of_network = pooling_features if part == "pooling" else capsule_features
    figures = _scores(partial(of_network, lab, model), training, digits.test, KINDS[part])
    activations = lab.outputs(
        model, lambda x: model.probabilities(model(x).activations), digits.test
    )
    right = activations[np.arange(len(digits.test)), digits.test.labels]
    return figures | {
        "length": [float(right.mean()), float(right.std())],
        "accuracy": summary["test_accuracy"],
        **tested(activations.argmax(axis=1) == digits.test.labels),
        **cost(summary),
    }


def _untrained(lab, digits, seed):
    """Return the function that computes `capsule_features` of a CapsNet with initial weights."""
    classes = len(digits.class_names)
    model = models.build("capsnet", digits.train.shape, classes, preset="small", seed=seed)
    return partial(capsule_features, lab, model.to(lab.device).eval())


def _scores(features, training, test, kinds):
    """Return {kind: {component of the pose: R²}} for linear maps from features(split) to poses.

    "beyond" is the R² of the rotation where the map is fitted on small rotations only.
    """
    known, asked, found = features(training), features(test), {}
    near = np.flatnonzero(np.abs(training.poses[:, ROTATION]) <= NEAR)
    far = np.flatnonzero(np.abs(test.poses[:, ROTATION]) > NEAR)
    for kind in kinds:
        whole = scored(known, training, asked, test, kind)
        beyond = scored(known[near], training.take(near), asked[far], test.take(far), kind)
        found[kind] = dict(zip(NAMES, whole, strict=True)) | {"beyond": beyond[ROTATION]}
    return found


def pixels(split):
    """Return the pixels (n, C·H·W) of the images."""
    return split.images.reshape(len(split), -1).astype(np.float64)


def moments(split):
    """Return six moments (n, 6) of images (n, 1, H, W), as if brightness were mass.

    The moments are the total brightness, the position of its center (x, y), and the variances and
    covariance of x and y around that center.
    """
    images = split.images[:, 0].astype(np.float64)
    y, x = np.mgrid[: images.shape[1], : images.shape[2]]
    mass = images.sum(axis=(1, 2))

    def mean(values):  # (H, W) or (n, H, W)
        return (images * values).sum(axis=(1, 2)) / mass

    dx, dy = (place - mean(place)[:, None, None] for place in (x, y))
    return np.column_stack([mass, mean(x), mean(y), mean(dx**2), mean(dy**2), mean(dx * dy)])


def capsule_features(lab, model, split):
    """Return the pose (n, 16) of the correct class for each image."""
    poses = lab.outputs(model, lambda x: model(x).poses, split)
    return poses[np.arange(len(split)), split.labels]


def pooling_features(lab, model, split):
    """Return the activations (n, 128) of the hidden layer that precedes the class scores."""

    def hidden(x):
        return ops.relu(model.hidden(ops.global_avg_pool(model.features(x))))

    return lab.outputs(model, hidden, split)


def all_poses(split):
    """Return the poses (n, 7) of the strokes, with components in the order of `NAMES`.

    Rotation and shear both tilt the vertical axis of a digit and can hardly be distinguished in a 0
    or a 1. The slant, which is visible in every digit, is the angle of the tilted axis in degrees.
    A positive slant is clockwise, like a positive rotation.
    """
    rotation, shear = (split.poses[:, POSE_NAMES.index(name)] for name in ("rotation", "shear"))
    return np.column_stack([split.poses, rotation - np.degrees(np.arctan(shear))])


def scored(known, training, asked, test, kind=ALL):
    """Compute R² (7,) on `test` for linear maps from features (n, F) to poses.

    A separate map is fitted for each class.

    known, asked: features of the images of `training` and `test`. kind: whether to use all
    features, their first principal components, or for each pose only the best feature.
    """
    errors, variation = np.zeros(len(NAMES)), np.zeros(len(NAMES))
    poses, true = all_poses(training), all_poses(test)
    for label in np.unique(test.labels):
        here, there = training.labels == label, test.labels == label
        centre, mean = known[here].mean(axis=0), poses[here].mean(axis=0)
        given, new, wanted = known[here] - centre, asked[there] - centre, poses[here] - mean
        if kind == FEW:
            axes = np.linalg.svd(given, full_matrices=False)[2][:COMPONENTS].T
            given, new = given @ axes, new @ axes
        if kind == ONE:
            linear = best_feature(given, wanted)
        else:
            linear = np.linalg.lstsq(given, wanted, rcond=SMALL)[0]
        errors += ((true[there] - mean - new @ linear) ** 2).sum(axis=0)
        variation += ((true[there] - mean) ** 2).sum(axis=0)
    return [float(share) for share in 1 - errors / variation]


def best_feature(given, wanted):
    """Return a linear map (F, P) that reads each pose from the one feature that explains it best.

    given: features (n, F) with mean 0. wanted: poses (n, P) with mean 0.
    """
    squares = (given**2).sum(axis=0)[:, None]
    # slope Σ g y / Σ g², which explains slope² Σ g² of Σ y²
    slopes = given.T @ wanted / np.where(squares > 0, squares, 1)
    best = (slopes**2 * squares).argmax(axis=0)
    linear, each = np.zeros_like(slopes), np.arange(wanted.shape[1])
    linear[best, each] = slopes[best, each]
    return linear


def table(results):
    poses = [name.replace("translation_", "") for name in NAMES]
    rows = [["", *poses, "beyond", "right class", "varies by", "accuracy, %"]]
    for part, seeds in results.items():
        classified = ["–", "–", "–"]
        if "length" in seeds[0]:
            classified = [spread([f["length"][k] for f in seeds], ".2f") for k in range(2)]
            classified.append(accuracy(seeds, digits=1))
        for kind in KINDS[part]:
            scores = [spread([f[kind][name] for f in seeds], ".2f") for name in (*NAMES, "beyond")]
            rows.append([f"{part}, {kind}", *scores, *classified])
    return rows


def headline(results):
    names = ("rotation", "thickness", "slant")
    rows = []
    for part, seeds in results.items():
        kind = KINDS[part][0]
        scores = " / ".join(spread([f[kind][name] for f in seeds], ".2f") for name in names)
        what = f"{part}: share of {' / '.join(names)} that a linear map finds ({kind})"
        rows.append(line(what, "–", scores, seeds))
    return rows


def draw(results, path, lab):
    """Plot R² for each pose component, and draw a decoded sweep of one capsule's dimensions.

    The sweep is also written to a separate file for lesson 16, with one pixel per value.
    """
    figure = new_figure(11, 7)
    bars, pictures = figure.subplots(1, 2, width_ratios=(1, 1.5))
    place, width = np.arange(len(NAMES)), 0.8 / len(results)
    for k, (part, seeds) in enumerate(results.items()):
        kind = FEW if FEW in KINDS[part] else ALL  # of at most 16 numbers
        values = np.array([[f[kind][name] for name in NAMES] for f in seeds])
        offset, label = place + (k - (len(results) - 1) / 2) * width, f"{part}, {kind}"
        style = {"color": COLOURS[part], "hatch": HATCHES[k], "edgecolor": "white"}
        bars.barh(offset, values.mean(axis=0), width, label=label, **style)
        bars.plot(values.T, offset, ".", color=INK)
    bars.set(
        yticks=place,
        yticklabels=[name.replace("_", " ") for name in NAMES],
        xlim=(0, 1),
        xlabel="R² on test images (dots: each seed)",
    )
    bars.set_title("Equivariance: how much of the pose\na linear map explains")
    bars.invert_yaxis()
    bars.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2)
    grid = swept(lab)
    pictures.imshow(grid, cmap="gray", vmin=0, vmax=1)
    rows, columns = grid.shape[0] / 16, grid.shape[1] / len(SWEEP)
    pictures.set(
        title="Each row: one number of a capsule,\nchanged in steps of 0.05",
        xticks=np.array([0.5, 5.5, 10.5]) * columns,
        xticklabels=["−0.25", "as it is", "+0.25"],
        yticks=(np.arange(16) + 0.5) * rows,
        yticklabels=range(1, 17),
        ylabel="dimension",
    )
    lab.save(figure, path)
    lab.save_pixels(grid[None], path.with_stem(f"{path.stem}-sweep"))


def swept(lab):
    """Decode a capsule while changing one dimension at a time.

    Returns one row of images per dimension.
    """
    options = parts(lab.quick)["capsules"] | {"seed": 0}
    digits = lab.data(options["data"], 0)
    model = lab.model(lab.train("capsules", digits, options))
    one = digits.test.take(slice(1))
    label = one.labels[0]
    pose = lab.outputs(model, lambda x: model(x).poses, one)
    dimensions = pose.shape[2]
    poses = np.tile(pose, (dimensions * len(SWEEP), 1, 1))
    for row in range(dimensions):
        poses[row * len(SWEEP) : (row + 1) * len(SWEEP), label, row] += SWEEP.astype(pose.dtype)
    keep = lab.device.put(np.full(len(poses), label))
    drawn = model.reconstruct(tensor_for(model, poses), keep).numpy()
    height, width = drawn.shape[2:]
    grid = drawn[:, 0].reshape(dimensions, len(SWEEP), height, width)
    return grid.transpose(0, 2, 1, 3).reshape(dimensions * height, len(SWEEP) * width)
