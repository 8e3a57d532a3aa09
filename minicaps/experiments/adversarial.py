"""adversarial: digits with every pixel changed slightly, in the direction that misleads most.

The attack is the fast gradient sign method of Goodfellow et al. 2015 (section 4): x + ε ·
sign(∂loss/∂x), clipped to [0, 1]. Hinton et al. (2018, section 6) find that on images of toys,
matrix capsules resist this attack better than a CNN does, but not images made to mislead another
CNN (a black-box attack). Popular accounts make the claim for all capsules. Here, both networks have
the same convolutions and about as many parameters, and both are attacked after their last epoch, at
the end of the cosine schedule.

A network may seem to resist only because its gradient carries no information: for a confident
prediction, the margin loss is exactly flat, so the image would not change at all. We therefore
compare several attacks with the same maximum change ε. Those that need a gradient use the attacked
network's own, except for the last: noise (random signs), loss (the training loss), difference (the
best wrong score minus the correct score, which is never flat), iterated (ten smaller steps on the
difference; Kurakin et al. 2017), restarts, and other (images that difference or iterated makes for
the other network, whichever misleads more).

The attack `restarts` is projected gradient ascent (Madry et al. 2018, arXiv 1706.06083). It takes
100 steps of 2.5 ε / 100 from each of five starts: the image itself, then random points of the ball
of radius ε. Each step is projected to the ball and to [0, 1], and the first misclassified image
ends the attack. It increases the difference *before the squash*: a capsule's length n becomes
|v| = n² / (1 + n²), whose slope fades where n is large, so the difference of lengths hardly pushes
a long correct capsule. Because |v| increases with n, the prediction is the same. A CNN's scores are
logits, which precede its softmax.

An image counts as correct under `worst` if it is correct under every attack with a change of at
most ε. Even this bounds a network's robustness from above only; a stronger attack may exist.
"""

import numpy as np

from minicaps.cli.sharing import all_of
from minicaps.experiments import equal
from minicaps.experiments.attacks import (
    QUICK_RESTARTS,
    RESTARTS,
    STEPS,
    STRENGTHS,
    gradients,
    pictures,
)
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import all_seeds, cost_cells, line, percent
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure

TITLE = "gradient attacks at five strengths, from one step to 500"
SEEDS = 3
DATA = "mnist"
PAIRED = 0.1  # the strength of the paired test: neither network is always correct or always wrong
PICTURES, QUICK_PICTURES = 1000, 100
ATTACKS = {
    "noise": "random signs",
    "loss": "signs of its loss gradient",
    "difference": "best wrong − correct score",
    "iterated": f"the same in {STEPS} steps",
    "restarts": "{} × {} steps, pre-squash".format(*RESTARTS),
    "other": "made for the other network",
}
ROWS = ATTACKS | {"worst": "misled by any attack"}
GRADIENTS = ("loss", "difference")
TRANSFERRED = ("difference", "iterated")  # images of `restarts` stop where they barely mislead
SAYS = "resist white-box, not black-box (toys)"
KEY = equal.KEY | {
    "accuracy, %": f"share of attacked test digits (at most {PICTURES:,}) classified correctly",
    "validation": "accuracy, %, on held-out digits after the last epoch, which is the one attacked",
    "no gradient": "share of the digits, %, with a gradient of exactly 0: they do not change",
    "attack": "what decides whether a pixel becomes brighter or darker:",
    "noise": "a random sign",
    "loss": "the sign of the gradient of the network's own training loss",
    "difference": "the sign of the gradient of the best wrong score − the correct score",
    "iterated": f"the same in {STEPS} small steps, each with a new gradient",
    "restarts": "projected gradient of the difference before the squash, {} starts × {} steps"
    " (quick: {} × {})".format(*RESTARTS, *QUICK_RESTARTS),
    "other": "as {} or {} for the other network, whichever misleads more".format(*TRANSFERRED),
    "worst": "correct only if it is correct under every attack up to ε",
    "ε": "largest change of a pixel (black is 0, white is 1); at ε = 0 the digits are unchanged",
    "source": "Hinton et al. 2018, section 6: do matrix capsules resist better than a CNN?",
}
TESTED = f"at most 1,000 MNIST test digits, the same for every seed; paired: worst, ε = {PAIRED:g}"
COMPARED = (("capsules", "cnn"),)


def parts(quick):
    common = {
        "data": DATA,
        "validation": 500 if quick else 5000,
        "shift": 2,
        "epochs": 2 if quick else 4,
        "schedule": "cosine",
        "learning_rate": 0.003,
    }
    return {part: common | own for part, own in equal.NETWORKS.items()}


def measure(lab, part, settings, seed):
    models = networks(lab, seed)
    model, (other,) = models[part], [models[name] for name in models if name != part]
    count = QUICK_PICTURES if lab.quick else PICTURES
    test = lab.data(DATA, seed).test.take(slice(count))
    own = [attack for attack in ATTACKS if attack != "other"]
    right = {attack: attacked(lab, model, model, test, attack) for attack in own}
    transferred = [attacked(lab, model, other, test, attack) for attack in TRANSFERRED]
    right["other"] = strongest(transferred)
    right["worst"] = worst([*right.values(), *transferred])
    folder = trained(lab, part, seed)
    return {
        "validation": equal.history(folder)["validation_accuracy"][-1],
        "clean": lab.accuracy(model, test),
        "against": {name: [float(one.mean()) for one in right[name]] for name in ROWS},
        "flat": flat(lab, model, test),
        **tested(right["worst"][STRENGTHS.index(PAIRED)]),
        **cost(read_summary(folder)),
    }


def attacked(lab, model, source, split, attack):
    """Return which images are correct, (strengths, n), when they are attacked with `source`."""
    return np.array([lab.right(model, made) for made in pictures(lab, source, split, attack)])


def strongest(right):
    """Return, for each strength, the row of the attack that misleads most.

    right: booleans (attacks, strengths, n). Returns booleans (strengths, n).
    """
    best = np.mean(right, axis=2).argmin(axis=0)
    return np.array(right)[best, np.arange(len(best))]


def worst(right):
    """Return whether each image is correct under every attack that may change it by at most ε.

    An image made with a smaller ε is allowed at a larger one, too.

    right: booleans (attacks, strengths, n). Returns booleans (strengths, n).
    """
    return np.logical_and.accumulate(np.all(right, axis=0), axis=0)


def trained(lab, part, seed):
    return lab.train(part, lab.data(DATA, seed), parts(lab.quick)[part] | {"seed": seed})


def networks(lab, seed):
    """Return the networks after their last epoch as a dictionary keyed by part."""
    folders = all_of(lambda part: trained(lab, part, seed), parts(lab.quick))
    return {part: lab.model(folder / "last.npz") for part, folder in folders.items()}


def flat(lab, model, split):
    """Return, for each attack, the fraction of images whose gradient is exactly zero."""
    found = {}
    for attack in GRADIENTS:
        steepest = np.abs(gradients(lab, model, split, attack)[0]).max(axis=(1, 2, 3))
        found[attack] = float((steepest == 0).mean())
    return found


def table(results):
    header = ["accuracy, %", "validation", "no gradient", "attack", "ε = 0"]
    rows = [[*header, *(f"ε = {e:g}" for e in STRENGTHS), "source"]]
    rows[0] += ["parameters", "images learned"]
    for part, seeds in results.items():
        for attack in ROWS:
            row = [part, percent([f["validation"] for f in seeds], digits=2)]
            row.append(percent([f["flat"][attack] for f in seeds]) if attack in GRADIENTS else "–")
            row += [attack, percent([f["clean"] for f in seeds])]
            row += [accuracy(seeds, attack, k) for k in range(len(STRENGTHS))]
            rows.append([*row, SAYS, *cost_cells(seeds)])
    return rows


def accuracy(seeds, attack, k):
    """Format the accuracy under an attack at strength k; `worst` comes with its interval."""
    count = seeds[0]["tested"] if attack == "worst" else None
    return percent([f["against"][attack][k] for f in seeds], count=count)


def headline(results):
    rows, k = [], STRENGTHS.index(PAIRED)
    for part, seeds in results.items():
        clean = percent([f["clean"] for f in seeds])
        attacked = [accuracy(seeds, attack, k) for attack in ("loss", "iterated", "worst")]
        what = f"{part}, after the last epoch: accuracy on digits as they are / attacked"
        what += f" (ε = {PAIRED:g}) by the loss / by the difference of scores in {STEPS} steps"
        what += " / by whichever attack misleads"
        rows.append(line(what, SAYS, " / ".join([clean, *attacked]) + " %", seeds))
    return rows


def draw(results, path, lab):
    """Plot accuracy against attack strength, and show attacked images with predictions."""
    figure = new_figure(11, 8.4)
    above, below = figure.subfigures(2, 1, height_ratios=(1.45, 1))
    panels = above.subplots(2, 4, sharex=True, sharey=True)
    for panel, (attack, title) in zip(panels.flat, ROWS.items(), strict=False):
        _draw_curves(panel, results, attack)
        panel.set_title(f"{attack}:\n{title}", fontsize=9.5)
    for panel in (*panels[1, :3], panels[0, 3]):
        panel.set_xlabel("ε")
        panel.xaxis.set_tick_params(labelbottom=True)
    panels[0, 0].set_ylabel(f"accuracy, %{all_seeds(results, 'band')}")
    panels[1, 0].set_ylabel("accuracy, %")
    panels[1, 3].axis("off")
    handles = panels[0, 0].get_legend_handles_labels()
    panels[1, 3].legend(*handles, frameon=False, loc="center", fontsize=11)
    above.suptitle("No pixel changes by more than ε; six attacks choose how", color=INK)
    _draw_pictures(below, lab)
    lab.save(figure, path)


def _draw_curves(panel, results, attack):
    """Plot the accuracy of each network, averaged over the seeds, against ε."""
    styles = zip(results.items(), (BLUE, ORANGE), "os", strict=False)
    for (part, seeds), colour, marker in styles:
        curves = 100 * np.array([[f["clean"], *f["against"][attack]] for f in seeds])
        mean, low, high = (f(curves, axis=0) for f in (np.mean, np.min, np.max))
        strengths = (0, *STRENGTHS)
        panel.plot(strengths, mean, color=colour, marker=marker, markersize=4, label=part)
        panel.fill_between(strengths, low, high, color=colour, alpha=0.2, linewidth=0)
    panel.set(ylim=(-2, 102))
    panel.grid(alpha=0.3)


def _draw_pictures(figure, lab):
    """Draw a digit under the iterated attack on each network, with the predicted classes."""
    digits = lab.data(DATA, 0)
    one = digits.test.take(slice(1))
    models = networks(lab, 0)
    axes = figure.subplots(len(models), 1 + len(STRENGTHS))
    for row, (part, model) in zip(axes, models.items(), strict=True):
        shown = [one, *pictures(lab, model, one, "iterated")]
        for panel, strength, made in zip(row, (0, *STRENGTHS), shown, strict=True):
            scores = lab.activations(model, made)
            answer = digits.class_names[scores[0].argmax()]
            panel.imshow(made.images[0, 0], cmap="gray_r", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
            right = scores[0].argmax() == one.labels[0]
            style = {"color": INK} if right else {"color": ORANGE, "fontweight": "bold"}
            panel.set_title(f"ε = {strength:g}: {answer}", **style)
        row[0].set_ylabel(f"against\n{part}")
    figure.suptitle("One digit, changed in ten steps, and the network's prediction", color=INK)
