"""How close the second class may come before a prediction after the spread loss is in doubt.

The spread loss compares activations but sets no level, so a class counts as a rival by the ratio of
its activation to the highest one. Which ratio means doubt depends on the network, and is therefore
learned from validation images.
"""

import numpy as np

RIVAL = 0.9  # without validation images, and for runs of older versions
HALF = 0.5  # at most this fraction of the validation images in doubt is classified correctly
MOST = 1 - 1e-6  # only an equal activation is a rival


def fitted_rival(activations, labels) -> float:
    """Return the ratio above which a class is a rival, learned from validation images.

    Of all validation images whose second activation comes at least as close to the highest, at most
    half are classified correctly; the ratio is the smallest for which that holds, or `MOST` if
    there is none.

    activations: (n, J), on the host. labels: (n,).
    """
    if activations.shape[1] < 2:
        return MOST
    second, first = np.sort(activations, axis=1)[:, -2:].T
    ratios = np.divide(second, first, out=np.ones_like(first), where=first > 0)
    order = np.argsort(-ratios, kind="stable")
    right = (activations.argmax(axis=1) == labels)[order]
    seldom = np.cumsum(right) <= HALF * np.arange(1, len(right) + 1)
    last = np.append(ratios[order][1:] < ratios[order][:-1], True)  # of equal ratios
    if not (found := np.flatnonzero(seldom & last)).size:
        return MOST
    return min(float(np.nextafter(ratios[order][found[-1]], 0)), MOST)
