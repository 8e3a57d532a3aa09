"""How close the second class may come before a prediction after the spread loss is in doubt.

The spread loss compares activations but sets no level, so a class counts as a rival by the ratio of
its activation to the highest one. Which ratio means doubt depends on the network, and is therefore
learned from validation images.
"""

import numpy as np

RIVAL = 0.9  # without validation images, and for runs of older versions
MOST = 1 - 1e-6  # only an equal activation is a rival


def fitted_rival(activations, labels) -> float:
    """Return the ratio above which a class is a rival, learned from validation images.

    It is the ratio for which doubt agrees best with errors: the number of wrong predictions in
    doubt minus the number of correct ones in doubt is as large as possible. If no ratio makes it
    positive, only an equal activation is a rival.

    activations: (n, J), on the host. labels: (n,).
    """
    if activations.shape[1] < 2:
        return MOST
    second, first = np.sort(activations, axis=1)[:, -2:].T
    ratios = np.divide(second, first, out=np.ones_like(first), where=first > 0)
    order = np.argsort(-ratios, kind="stable")
    wrong = (activations.argmax(axis=1) != labels)[order]
    gains = np.cumsum(np.where(wrong, 1, -1))  # of doubting the k + 1 closest
    ratios = np.append(ratios[order], -1)
    gains[ratios[:-1] == ratios[1:]] = 0  # images with equal ratios are doubted together
    if gains.max(initial=0) <= 0:
        return MOST
    return min(float(np.nextafter(ratios[gains.argmax()], 0)), MOST)
