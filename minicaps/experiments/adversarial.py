"""adversarial: digits with every pixel changed slightly, in the direction that misleads most.

The attack is the fast gradient sign method of Goodfellow et al. 2015 (section 4): x + ε ·
sign(∂loss/∂x), clipped to [0, 1]. Hinton et al. (2018, section 6) find that on images of toys,
matrix capsules resist this attack better than a CNN does, but not images made to mislead another
CNN (a black-box attack). Popular accounts make the claim for all capsules. Here, both networks have
the same convolutions and about as many parameters. For each network, we use the epoch at which its
accuracy on held-out digits is closest to the best accuracy that both networks reach. For the
CapsNet this was the last of four epochs with both seeds, for the CNN the second or third, before
its learning rate had been annealed.

A network may seem to resist only because its gradient carries no information: for a confident
prediction, the margin loss is exactly flat, so the image would not change at all. We therefore
compare several attacks with the same maximum change ε. Those that need a gradient use the attacked
network's own, except for the last: noise (random signs), loss (the training loss), difference (the
best wrong score minus the correct score, which is never flat), iterated (ten smaller steps on the
difference; Kurakin et al. 2017), and other (the images that the difference gives for the other
network). The most successful of these attacks bounds a network's robustness from above only; a
stronger attack may exist.
"""

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.data import Split
from minicaps.experiments import equal
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import all_seeds, cost_cells, line, percent
from minicaps.models.base import EVALUATION_BATCH
from minicaps.models.losses import classification_loss, usual_loss
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure
from minicaps.runs.inference import batches_for
from minicaps.tensor import Tensor

TITLE = "fast-gradient-sign attacks at five strengths"
SEEDS = 3
DATA = "mnist"
STRENGTHS = (0.05, 0.1, 0.15, 0.2, 0.25)
ATTACKS = {
    "noise": "random signs",
    "loss": "signs of its loss gradient",
    "difference": "best wrong − correct score",
    "iterated": "the same in ten steps",
    "other": "made for the other network",
}
GRADIENTS = ("loss", "difference")
PICTURES, QUICK_PICTURES, STEPS = 1000, 100, 10
SAYS = "resist white-box, not black-box (toys)"
KEY = equal.KEY | {
    "accuracy, %": f"share of attacked test digits (at most {PICTURES:,}) classified correctly",
    "epoch": "epoch tested, by seed: both networks are then about equally good on held-out digits",
    "no gradient": "share of the digits, %, with a gradient of exactly 0: they do not change",
    "attack": "what decides whether a pixel becomes brighter or darker:",
    "noise": "a random sign",
    "loss": "the sign of the gradient of the network's own training loss",
    "difference": "the sign of the gradient of the best wrong score − the correct score",
    "iterated": f"the same in {STEPS} small steps, each with a new gradient",
    "other": "the sign given by the difference for the other network",
    "ε": "change of each pixel (black is 0, white is 1); at ε = 0 the digits are unchanged",
    "source": "Hinton et al. 2018, section 6: do matrix capsules resist better than a CNN?",
}
TESTED = "at most 1,000 MNIST test digits, the same for every seed; paired: iterated, ε = 0.25"
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
    models, epochs = networks(lab, seed)
    model, (other,) = models[part], [models[name] for name in models if name != part]
    count = QUICK_PICTURES if lab.quick else PICTURES
    test = lab.data(DATA, seed).test.take(slice(count))
    made = {attack: pictures(lab, model, test, attack) for attack in ATTACKS if attack != "other"}
    made["other"] = pictures(lab, other, test, "difference")
    right = {attack: [lab.right(model, one) for one in made[attack]] for attack in ATTACKS}
    return {
        "epoch": epochs[part],
        "clean": lab.accuracy(model, test),
        "against": {name: [float(one.mean()) for one in right[name]] for name in ATTACKS},
        "flat": flat(lab, model, test),
        **tested(right["iterated"][-1]),
        **cost(read_summary(trained(lab, part, seed))),
    }


def trained(lab, part, seed):
    return lab.train(part, lab.data(DATA, seed), parts(lab.quick)[part] | {"seed": seed})


def networks(lab, seed):
    """Return the networks at equal accuracy and their epochs, as dictionaries keyed by part."""
    folders = {part: trained(lab, part, seed) for part in parts(lab.quick)}
    curves = {part: equal.validation_curve(folder) for part, folder in folders.items()}
    epochs = equal.epochs(curves)
    paths = {part: folder / f"epoch-{epochs[part]}.npz" for part, folder in folders.items()}
    return {part: lab.model(path) for part, path in paths.items()}, epochs


def pictures(lab, model, split, attack):
    """Attack the images of `split` at each strength, and return one `Split` per strength."""
    if attack == "iterated":
        return [iterated(lab, model, split, strength) for strength in STRENGTHS]
    if attack == "noise":
        signs = np.random.default_rng(0).choice([-1, 1], split.images.shape)
    else:
        signs = np.sign(gradients(lab, model, split, attack))
    return [moved(split, strength * signs) for strength in STRENGTHS]


def iterated(lab, model, split, strength):
    for _ in range(STEPS):
        slope = gradients(lab, model, split, "difference")
        split = moved(split, strength / STEPS * np.sign(slope))
    return split


def moved(split, change):
    """Add `change` to the images, and clip the result to [0, 1]."""
    return Split(np.clip(split.images + change, 0, 1, dtype=np.float32), split.labels)


def gradients(lab, model, split, attack):
    """∂loss/∂image for every image, (n, C, H, W). attack: which loss, "loss" or "difference"."""
    found = []
    for images, labels in batches_for(model, split, EVALUATION_BATCH, stop=lab.stop):
        x = Tensor(images.data, requires_grad=True)
        scores = model(x).activations
        if attack == "loss":
            name = usual_loss(model.config["name"])
            classification_loss(name, model, scores, labels).backward()
        else:
            difference(scores, labels).backward()
        model.zero_grad()  # the gradients of its parameters are not needed
        found.append(to_host(x.grad))
    return np.concatenate(found)


def difference(scores, labels):
    """Compute the highest score of a wrong class minus the score of the correct class.

    The difference is summed over the images.

    scores: (B, J). labels: (B,).
    """
    each, wrong = array_module(labels).arange(len(labels)), scores.data.copy()
    wrong[each, labels] = -np.inf
    return (scores[each, wrong.argmax(axis=1)] - scores[each, labels]).sum()


def flat(lab, model, split):
    """Return, for each attack, the fraction of images whose gradient is exactly zero."""
    found = {}
    for attack in GRADIENTS:
        steepest = np.abs(gradients(lab, model, split, attack)).max(axis=(1, 2, 3))
        found[attack] = float((steepest == 0).mean())
    return found


def table(results):
    header = ["accuracy, %", "epoch", "no gradient", "attack", "ε = 0"]
    rows = [[*header, *(f"ε = {e:g}" for e in STRENGTHS), "source"]]
    rows[0] += ["parameters", "images learned"]
    for part, seeds in results.items():
        for attack in ATTACKS:
            row = [part, ", ".join(str(f["epoch"]) for f in seeds)]
            row.append(percent([f["flat"][attack] for f in seeds]) if attack in GRADIENTS else "–")
            row += [attack, percent([f["clean"] for f in seeds])]
            row += [
                percent([f["against"][attack][k] for f in seeds]) for k in range(len(STRENGTHS))
            ]
            rows.append([*row, SAYS, *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        clean = percent([f["clean"] for f in seeds])
        attacked = [
            percent([f["against"][attack][-1] for f in seeds])
            for attack in ("loss", "iterated", "noise")
        ]
        what = f"{part}, at equal validation: accuracy on digits as they are / attacked (ε ="
        what += f" {STRENGTHS[-1]:g}) by the loss / by the difference of scores in {STEPS}"
        what += " steps / by noise"
        rows.append(line(what, SAYS, " / ".join([clean, *attacked]) + " %", seeds))
    return rows


def draw(results, path, lab):
    """Plot accuracy against attack strength, and show attacked images with predictions."""
    figure = new_figure(11, 6.4)
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.05))
    panels = above.subplots(1, len(ATTACKS), sharey=True)
    for panel, (attack, title) in zip(panels, ATTACKS.items(), strict=True):
        for (part, seeds), colour, marker in zip(
            results.items(), (BLUE, ORANGE), "os", strict=False
        ):
            curves = 100 * np.array([[f["clean"], *f["against"][attack]] for f in seeds])
            mean, low, high = (f(curves, axis=0) for f in (np.mean, np.min, np.max))
            strengths = (0, *STRENGTHS)
            panel.plot(strengths, mean, color=colour, marker=marker, markersize=4, label=part)
            panel.fill_between(strengths, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.set(xlabel="ε", ylim=(0, 102))
        panel.set_title(f"{attack}:\n{title}", fontsize=9.5)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"accuracy, %{all_seeds(results, 'band')}")
    panels[0].legend(frameon=False, loc="lower left")
    above.suptitle("The same change of each pixel, with its sign chosen in five ways", color=INK)
    _draw_pictures(below, lab)
    lab.save(figure, path)


def _draw_pictures(figure, lab):
    """Draw a digit under the iterated attack on each network, with the predicted classes."""
    digits = lab.data(DATA, 0)
    one = digits.test.take(slice(1))
    models, _ = networks(lab, 0)
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
