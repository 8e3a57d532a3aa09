"""Situations of lessons 9, 10, 13 and 14 that the playground shows, with the lessons' votes.

A preset's `text` says what to look at. Its other values are those of the controls (see
`static/methods.js`); `votes` names one of the sets of votes, which hold a vote for each child, or
one for each child and parent. The numbers that the page shows are those that the lesson prints.
"""

from typing import Any

import numpy as np


def wholes() -> np.ndarray:
    """Return the votes of lesson 9: crowds of 6, 12 and 24 (42, 2)."""
    rng = np.random.default_rng(0)
    turn = np.pi * np.array([1 / 2, 7 / 6, 11 / 6])
    middles = 2 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    crowds = [
        middle + 0.5 * rng.normal(size=(n, 2))
        for middle, n in zip(middles, (6, 12, 24), strict=True)
    ]
    return np.concatenate(crowds)


def twelve() -> np.ndarray:
    """Return the votes of lesson 10's figure: five and four that agree, three strays (12, 2, 2)."""
    rng = np.random.default_rng(3)
    angle = rng.uniform(0, 2 * np.pi, size=(12, 2))
    angle[:5, 0] = 0.6 + 0.15 * rng.normal(size=5)
    angle[5:9, 1] = 2.3 + 0.15 * rng.normal(size=4)
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def faces() -> np.ndarray:
    """Return the two faces of section 10.9 with noise of 1e-6, in the plane that they span.

    Routing depends only on inner products, to which noise across this plane adds about 1e-12.
    """
    rng = np.random.default_rng(0)
    earlier = 200 * (30 * 3 + 3 + 10 + 6) * 16 + 4 * 3 + 100 * 12 * 3 * 4 + 8 * 2 * 4 * 4
    rng.normal(size=earlier)  # what the lesson has drawn before
    frame = np.array([[3, 1, 1, 0], [0, 0, 0, 1]]) / np.sqrt([[11], [1]])  # (2, 4)
    poses = np.repeat([[0.0, 0, 0, 1], [3, 1, 1, 0]], 4, axis=0)
    votes = np.stack([poses, poses], axis=1)
    return (votes + 1e-6 * rng.normal(size=votes.shape)) @ frame.T  # (8, 2, 2)


def shapes() -> np.ndarray:
    """Return the points of lesson 13: a rod, a cloud and a coin (190, 2)."""
    rng = np.random.default_rng(0)
    frame = np.array([[0.8, 0.6], [-0.6, 0.8]])
    crowds = ((80, [0, 0.8], [2, 0.25]), (80, [1, -1.3], [1, 1]), (30, [-1.4, -1.2], [0.15, 0.15]))
    return np.concatenate(
        [middle + rng.normal(size=(n, 2)) * spread @ frame for n, middle, spread in crowds]
    )


def ghosts() -> np.ndarray:
    """Return the votes of lesson 14: 12 united children, 6 ghosts and a crowd of 24 (42, 2, 2)."""
    rng = np.random.default_rng(2)
    votes = 2 * rng.normal(size=(42, 2, 2))
    votes[:12, 0] = [1, 1] + 0.15 * rng.normal(size=(12, 2))
    votes[12:18, 0] = [2.5, 1] + 0.15 * rng.normal(size=(6, 2))
    votes[18:, 1] = [-1, -0.5] + 0.8 * rng.normal(size=(24, 2))
    return votes


HAND = [[[1, 0], [1, 0]], [[1, 0], [0, 1]], [[1, 0], [-1, 0]]]  # section 10.5, (3, 2, 2)
MIDDLES = [[0, 0.8], [1, -1.3], [-1.4, -1.2]]  # of the shapes
STUCK = [4, 31, 29]  # votes from which K-means ends with L = 64.7


def presets() -> dict[str, Any]:
    """Return the sets of votes and the list of presets, as JSON-serializable values."""
    v = ghosts()
    sets = {
        "wholes": wholes(), "twelve": twelve(), "hand": np.array(HAND, float), "faces": faces(),
        "shapes": shapes(), "ghosts": v, "twin": np.concatenate([v, v[:, :1]], axis=1),
    }  # fmt: skip
    listed = [*clustering(sets["wholes"]), *agreement(), *mixtures(), *em_routing()]
    return {"sets": {name: votes.tolist() for name, votes in sets.items()}, "presets": listed}


def clustering(u):
    """Return the presets of lesson 9, with its votes u."""
    m = u.mean(axis=0)
    nudged = m + 1e-6 * np.random.default_rng(0).normal(size=(3, 2))
    return [
        preset("wholes", "9.5", "Three wholes", (
            "Three centers start in the same crowd. L seems to settle near 51 for ten iterations,"
            " then a center finds its own crowd."),
            method="soft", K=1, T=40, r=40, starts=u[[33, 34, 35]]),
        preset("symmetry", "9.11", "Symmetry that does not break", (
            "All centers start at the mean of the votes. Equal centers get equal shares, so they"
            " stay equal forever. Drag one start a little."),
            votes="wholes", method="soft", K=0.5, T=40, r=40, starts=np.tile(m, (3, 1))),
        preset("nudge", "9.11", "A millionth breaks it", (
            "The starts differ by a millionth. At K = 0.5, differences are multiplied by 3.1 in"
            " each iteration, 2K times the largest variance of the votes (λ in the lesson). At"
            " K = 0.1, they shrink."),
            votes="wholes", method="soft", K=0.5, T=100, r=100, starts=nudged),
        preset("temperature", "9.11", "The temperature at which parents part", (
            "Raise K. One center becomes two where 2K times the largest variance is 1, then"
            " three: the curve over K shows both forks."),
            votes="wholes", method="soft", K=0.12, T=1000, r=1000, starts=nudged),
        preset("two-in-one", "9.12", "Two wholes in one parent", (
            "K-means is stuck at L = 64.7: B and C share a crowd, and A holds two. Drag the start"
            " of C into the crowd on the left, and K-means finds 17.8."),
            votes="wholes", method="kmeans", T=10, r=10, starts=u[STUCK]),
        preset("sums", "9.9", "Sums count followers", (
            "Centers are sums, so their lengths grow with the number of votes: 12, 26 and 51 for"
            " crowds of 6, 12 and 24. With soft K-means, all three have a length near 2."),
            votes="wholes", method="spherical", K=5, T=40, r=40, starts=u[[0, 6, 18]]),
    ]  # fmt: skip


def agreement():
    """Return the presets of lesson 10."""
    return [
        preset("twelve", "10.5", "Two bundles and three strays", (
            "Five children agree on A and four on B; three strays agree on nothing, but must"
            " choose a parent too. Lines are as thick as their couplings."),
            method="added", K=1, T=30, r=10),
        preset("hand", "10.5", "Three children, by hand", (
            "All three agree on A and disagree on B. After one iteration, A has length 0.692; it"
            " grows with each iteration, and B fades."),
            method="added", K=1, T=10, r=3),
        preset("faces", "10.9", "Equal votes: what tells parents apart", (
            "Both parents get the same votes, up to a millionth. With added logits, the difference"
            " grows until each face has its own parent, after about 40 iterations."),
            method="added", K=1, T=100, r=30),
        preset("faces-temperature", "10.9", "Two faces in one parent", (
            "Renewed logits at K = 1 leave both faces in both parents. Raise K: the parents part"
            " between 1.5 and 2."),
            votes="faces", method="renewed", K=1, T=1000, r=1000),
    ]  # fmt: skip


def mixtures():
    """Return the presets of lesson 13."""
    return [
        preset("shapes", "13.6", "A rod, a cloud and a coin", (
            "K-means, the start, cuts the rod in two. EM learns the shape of each cluster: the"
            " log-likelihood rises from −615 to −538."),
            method="mixture", covariance="full", fromKmeans=True, T=40, r=40, starts=MIDDLES),
        preset("sigma", "13.10", "σ → 0: EM becomes K-means", (
            "All clusters are circles of the same, fixed size. Make σ² small: shares become 0 or"
            " 1, and the centers move to those of K-means."),
            votes="shapes", method="mixture", covariance="fixed", sigma2=1, fromKmeans=True,
            T=300, r=300, starts=MIDDLES),
    ]  # fmt: skip


def em_routing():
    """Return the presets of lesson 14."""
    strengths = np.full(42, 0.9)
    strengths[12:18] = 0.02
    em = {"method": "em", "lambda": 0.1, "strengths": strengths.tolist(), "T": 10, "r": 6}
    return [
        preset("ghosts", "14.7", "Ghosts have no say", (
            "Six children (rings) are absent: their activation is 0.02, but they vote for A."
            " Choose step 2: without the activations, they pull A to their side."),
            **em, step="complete"),
        preset("twin", "14.6", "A parent with a twin", (
            "C gets the votes of A. In step 1, the shares sum to 1, so the twin halves A's"
            " strength; in the other steps, both can be active."),
            **em, step="gmm"),
    ]  # fmt: skip


def preset(name, section, title, text, *, votes=None, **settings):
    """Return a preset; its votes are the set of its own name unless `votes` names another."""
    pages = {"9": "09_kmeans", "10": "10_agreement", "13": "13_mixtures", "14": "14_em_routing"}
    if "starts" in settings:
        settings["starts"] = np.asarray(settings["starts"], float).tolist()
    page = pages[section.partition(".")[0]]
    facts = {"id": name, "section": section, "page": page, "title": title, "text": text}
    return facts | {"votes": votes or name} | settings
