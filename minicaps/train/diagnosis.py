"""Diagnose common problems in training.

Each function returns None or a sentence with the observation, its usual cause, and a suggestion.
"""

import numpy as np

from minicaps.backend import array_module
from minicaps.data.dataset import imbalanced
from minicaps.errors import counted
from minicaps.graph import no_grad
from minicaps.models.losses import ABSENT as WEIGHT
from minicaps.nn.module import watching
from minicaps.routing import keep_history
from minicaps.tensor import Tensor

FEW_STEPS = (20, 200)  # per epoch, and in total
MOST_EPOCHS = 300  # that are chosen for custom data
ENOUGH_STEPS = 1000  # for data that a linear classifier can learn
SOON = 0.25  # fraction of the epochs after which something should have been learned
VANISHING = 1e-3  # fraction of the learning rate that is left at the end
EXPLODING = 1000.0  # gradient norm; in healthy networks, it is about 0.01 to 10
LEARNED = 0.9  # accuracy on the training images
FEW_PICTURES = 3  # of a class; missing all images of a smaller class means little
PRESENT, ABSENT = 0.9, 0.1  # m⁺ and m⁻ of the margin loss; its λ is WEIGHT


# ---- before training


def few_steps(optimization, pictures, *, custom=False):
    """Report if the training set is so small that training consists of only a few steps.

    custom: whether the data is custom, whose number of steps is chosen if it is not given.
    """
    size, epochs = optimization.batch_size, optimization.epochs
    steps = -(-pictures // size)
    if steps >= FEW_STEPS[0] or steps * epochs >= FEW_STEPS[1]:
        return None
    tries = ["--batch-size 4"] * (size > 4) + ["--epochs 50"] * (epochs < 50)
    tries += ["--schedule cosine"] * (optimization.schedule != "cosine")
    advice = f"try {' '.join(tries) or 'more images'}, and"
    advice += " a smaller --learning-rate if the loss jumps"
    if custom and epochs < MOST_EPOCHS:
        advice = "leave --epochs and --batch-size out, so that they fit the images"
    return (
        f"{pictures:,} training images in batches of {size} give {counted(steps, 'step')} per"
        f" epoch, {steps * epochs} in total: too few to learn much; {advice}"
    )


def vanishing_step(optimization):
    """Report a learning rate that becomes negligible long before the last epoch."""
    decay, epochs = optimization.decay, optimization.epochs
    left = decay**epochs
    if optimization.schedule != "exponential" or left >= VANISHING:
        return None
    return (
        f"--decay {decay:g} leaves {left:.1g} of the learning rate after"
        f" {epochs} epochs: late epochs learn nothing; try --schedule cosine, or a"
        " --decay closer to 1"
    )


def pixels(images):
    """Report pixel values outside [0, 1] in images (n, C, H, W)."""
    low, high = float(images.min()), float(images.max())
    if low >= 0 and high <= 1:  # False for NaN
        return None
    return (
        f"the training images have values from {low:zg} to {high:zg}, but networks here expect"
        " [0, 1]: large values saturate capsules; scale the images (divide bytes by 255)"
    )


def always_present(present, pictures, names):
    """Report classes that are present in every image.

    present (J,): number of images with each class.
    """
    always = np.flatnonzero(present == pictures)
    if not always.size:
        return None
    return (
        f"all {pictures:,} training images contain {_some(names, always)}: a class that never"
        " varies cannot be learned, only predicted always; add images without it, or leave the"
        " class out"
    )


def _some(names, which):
    """Return the names of the first few classes in `which`."""
    return ", ".join(repr(names[k]) for k in which[:5]) + (", …" if len(which) > 5 else "")


# ---- after an epoch


def had_time(steps, epoch, epochs):
    """Return whether a network should have learned something after these steps and epochs."""
    return epoch == epochs or (steps >= FEW_STEPS[1] and epoch >= SOON * epochs)


def stuck(loss, accuracy, shares, absent=WEIGHT):
    """Report a mean margin loss that shows that the network is not learning.

    shares (J,): fraction of images with each class; they sum to 1 if each image has one class.
    absent: weight λ of absent classes in training; `loss` is measured with 0.5.

    There are three values of the loss that indicate a problem. With one class per image and 10
    equally frequent classes, the values are 0.81, 3.645 and 0.5236.
    """
    if not loss:  # as when every image has all classes
        return None
    at_zero, at_one = PRESENT**2 * shares.sum(), WEIGHT * (1 - ABSENT) ** 2 * (1 - shares).sum()
    states = []  # both for three equal classes, whose two losses are equal
    if np.isclose(loss, at_zero, rtol=1e-3):
        states.append("all classes have activation 0, so the network is dead")
    if np.isclose(loss, at_one, rtol=1e-3):
        states.append("all classes have activation 1, so the network is saturated")
    if states:
        return (
            f"the margin loss is {loss:.4g}: {', or '.join(states)}, and no gradient gets through;"
            " try a smaller --learning-rate or --weight-decay"
        )
    # The best constant score of each class minimizes p (m⁺−a)² + λ (1−p) (a−m⁻)²
    weights = absent * (1 - shares)
    a = (shares * PRESENT + weights * ABSENT) / (shares + weights)
    blind = (shares * (PRESENT - a) ** 2 + WEIGHT * (1 - shares) * (a - ABSENT) ** 2).sum()
    most = shares.max()
    if np.isclose(loss, blind, rtol=0.02) and accuracy <= most + min(0.1, most):
        return (
            f"the margin loss is {loss:.4g}, as if the scores were the same for every image: the"
            " network is alive but blind; give it more --epochs, then try another --learning-rate,"
            " and check that the labels match their images"
        )
    return None


def constant(answers, present, train_accuracy):
    """Report that all validation images are predicted as the same class.

    answers, present (J,): number of images that are predicted as each class, and number of images
    that belong to it. Nothing is reported if only one class has several images, or if the training
    images are told apart.
    """
    several = (present >= FEW_PICTURES).sum() > 1
    if (answers > 0).sum() != 1 or not several or train_accuracy >= LEARNED:
        return None
    return (
        f"all {answers.sum():,} validation images are predicted as one class: the network has not"
        " learned to tell classes apart; try a smaller --learning-rate, and check that the labels"
        " match their images"
    )


def exploding(norm):
    """Report a gradient norm that is far too large."""
    if norm <= EXPLODING:
        return None
    return (
        f"the gradient norm is {norm:.3g} (in healthy networks, 0.01 to 10): the gradient is"
        " exploding, and the next steps may be far too large; try --clip 1, or a smaller"
        " --learning-rate"
    )


def never_predicted(predicted, present, pictures, names):
    """Report classes that are never predicted.

    predicted, present (J,): number of images that are predicted as each class, and number of images
    that belong to it.
    """
    never = np.flatnonzero((predicted == 0) & (present >= FEW_PICTURES))
    if not never.size:
        return None
    return (
        f"none of the {pictures:,} validation images is predicted as {_some(names, never)}, though"
        f" {present[never].sum():,} labels say so: too little training, too few examples, or wrong"
        " labels; try more --epochs, and look at the images with minicaps.data"
    )


# ---- after training


def no_better(found, options, counts, usual):
    """Report a network that is not better than the linear baseline.

    found: results as in summary.json, with baselines. counts (J,): training images of each class;
    if they are imbalanced, the balanced accuracies are compared. usual: the batch size and the
    number of epochs that are chosen for these images if they are not given.
    """
    uneven = imbalanced(counts)
    kind = "balanced_accuracy" if uneven else "accuracy"
    reached, linear = found[f"test_{kind}"], found["baselines"]["linear"][kind]
    if reached > linear or reached == 1:
        return None
    optimization, own = options.optimization, options.data
    tries = ["add --shift 2"] * (not own.shift)
    tries += ["add --balance"] * (uneven and not own.balance)
    steps = optimization.epochs * -(-int(counts.sum()) // optimization.batch_size)
    given = ["--epochs"] * (optimization.epochs != usual[1])
    given += ["--batch-size"] * (optimization.batch_size != usual[0])
    if steps >= ENOUGH_STEPS:
        tries += [f"train longer with --epochs {3 * optimization.epochs}"]
    elif given:
        tries += [f"leave {' and '.join(given)} out, to fit the images"]
    else:
        tries += ["try more images, a larger --size or another --seed"]
    return (
        f"the network is not better than a linear classifier on the test images"
        f" ({kind.replace('_', ' ')} {reached:.2%} against {linear:.2%}):"
        f" {', '.join(tries)}, and look at the images with minicaps.data"
    )


# ---- after divergence


def where(model, images):
    """Find the first parameter or layer with a non-finite value for images (B, C, H, W)."""
    for name, p in model.named_parameters():
        if not _finite(p):
            return f"in the parameter {name}"
    with no_grad(), np.errstate(all="ignore"):
        lengths = model(Tensor(images)).activations.numpy()
        if np.isfinite(lengths).all():
            return None
        one = np.argmin(np.isfinite(lengths).all(axis=1))  # one image, so iterations are in order
        names = {id(module): name.rstrip(".") for name, module in model.modules() if name}
        found = []

        def note(layer, outputs):
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            if id(layer) in names and not all(map(_finite, outputs)):
                history = getattr(outputs, "history", ())
                bad = [k for k, each in enumerate(history, 1) if not all(map(_finite, each))]
                iteration = f", iteration {bad[0]} of {len(history)}" if bad else ""
                found.append(f"in the layer {names[id(layer)]}{iteration}")

        with watching(note), keep_history():
            model(Tensor(images[one : one + 1]))
    return found[0] if found else None


def _finite(tensor):
    return tensor is None or bool(array_module(tensor.data).isfinite(tensor.data).all())
