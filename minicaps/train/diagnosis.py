"""What looks wrong in a training, in a sentence each: what is seen, what it usually means, what to
try. Every function returns None where nothing does.
"""

import numpy as np

from minicaps.backend import array_module
from minicaps.graph import no_grad
from minicaps.nn.module import watching
from minicaps.routing import keep_history
from minicaps.tensor import Tensor

FEW_STEPS = (20, 200)  # in an epoch, and in all
VANISHING = 1e-3  # share of the learning rate that is left at the end
EXPLODING = 1000.0  # norm of a gradient; those of healthy networks are about 0.01 to 10
FEW_PICTURES = 3  # of a class: that none of fewer is found says little
PRESENT, ABSENT, WEIGHT = 0.9, 0.1, 0.5  # m⁺, m⁻ and λ of the margin loss


# ---- before training


def few_steps(optimization, pictures):
    """Tell if so many training pictures give too few steps to learn much."""
    size, epochs = optimization.batch_size, optimization.epochs
    steps = -(-pictures // size)
    if steps >= FEW_STEPS[0] or steps * epochs >= FEW_STEPS[1]:
        return None
    tries = ["--batch-size 4"] * (size > 4) + ["--epochs 50"] * (epochs < 50)
    tries += ["--schedule cosine"] * (optimization.schedule != "cosine")
    return (
        f"{pictures:,} training pictures in batches of {size} are {steps} step(s) an epoch,"
        f" {steps * epochs} in all: few to learn from; try {' '.join(tries) or 'more pictures'},"
        " and a smaller --learning-rate if the loss jumps"
    )


def vanishing_step(optimization):
    """Tell if the learning rate all but vanishes long before the last epoch."""
    decay, epochs = optimization.decay, optimization.epochs
    left = decay**epochs
    if optimization.schedule != "exponential" or left >= VANISHING:
        return None
    return (
        f"--decay {decay:g} leaves {left:.1g} of the learning rate after"
        f" {epochs} epochs: late epochs learn nothing; try --schedule cosine, or a"
        " --decay nearer to 1"
    )


def pixels(images):
    """Tell if pictures (n, C, H, W) have values outside [0, 1]."""
    low, high = float(images.min()), float(images.max())
    if low >= 0 and high <= 1:  # False for NaN
        return None
    return (
        f"the training pictures have values from {low:zg} to {high:zg}: networks here start from"
        " [0, 1], and large values saturate capsules; scale them (bytes: divide by 255)"
    )


def always_present(present, pictures, names):
    """Tell which classes no picture lacks; present (J,): how many of the pictures have each."""
    always = np.flatnonzero(present == pictures)
    if not always.size:
        return None
    return (
        f"all {pictures:,} training pictures have {_some(names, always)}: what does not differ"
        " cannot be learned, only answered always; add pictures without, or leave the class out"
    )


def _some(names, which):
    """The first of the classes `which`, by name."""
    return ", ".join(repr(names[k]) for k in which[:5]) + (", …" if len(which) > 5 else "")


# ---- after an epoch


def stuck(loss, accuracy, shares):
    """Tell if the mean margin loss is where nothing is learned.

    shares (J,): how often each class is present, which sums to 1 for one class a picture; then the
    three losses for 10 equal classes are 0.81, 3.645 and 0.5236.
    """
    if not loss:  # as where all pictures have all classes
        return None
    at_zero, at_one = PRESENT**2 * shares.sum(), WEIGHT * (1 - ABSENT) ** 2 * (1 - shares).sum()
    states = []  # both for three equal classes, where they cost the same
    if np.isclose(loss, at_zero, rtol=1e-3):
        states.append("all classes have activation 0, the network is dead")
    if np.isclose(loss, at_one, rtol=1e-3):
        states.append("all classes have activation 1, the network is saturated")
    if states:
        return (
            f"the margin loss is {loss:.4g}: {', or '.join(states)}: no gradient comes through; try"
            " a smaller --learning-rate or --weight-decay"
        )
    # The best lengths without looking: each class's loss p (m⁺−a)² + λ (1−p) (a−m⁻)² is least
    absent = WEIGHT * (1 - shares)
    blind = (PRESENT - ABSENT) ** 2 * (shares * absent / (shares + absent)).sum()
    if np.isclose(loss, blind, rtol=0.02) and accuracy <= shares.max() + 0.1:
        return (
            f"the margin loss is {loss:.4g}, that of lengths which are the same for every picture:"
            " the network is alive but blind; give it more --epochs, then try another"
            " --learning-rate, and look whether labels fit their pictures"
        )
    return None


def exploding(norm):
    """Tell if the norm of all gradients is far from healthy."""
    if norm <= EXPLODING:
        return None
    return (
        f"the gradient's norm is {norm:.3g}, of healthy networks 0.01 to 10: it explodes, and the"
        " next steps may be far too large; try --clip 1, or a smaller --learning-rate"
    )


def never_predicted(predicted, present, pictures, names):
    """Tell which classes were never the answer; predicted, present (J,): of how many pictures."""
    never = np.flatnonzero((predicted == 0) & (present >= FEW_PICTURES))
    if not never.size:
        return None
    return (
        f"of {pictures:,} validation pictures none is taken for {_some(names, never)}, though"
        f" {present[never].sum():,} labels say so: too little training, too few examples, or wrong"
        " labels; try more --epochs, and look at the pictures with minicaps.data"
    )


# ---- when it is too late


def where(model, images):
    """Name what first becomes infinite or NaN when `model` sees images (B, C, H, W)."""
    for name, p in model.named_parameters():
        if not _finite(p):
            return f"in the parameter {name}"
    with no_grad(), np.errstate(all="ignore"):
        lengths = model(Tensor(images)).activations.numpy()
        if np.isfinite(lengths).all():
            return None
        one = np.argmin(np.isfinite(lengths).all(axis=1))  # alone, so that iterations are in order
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
