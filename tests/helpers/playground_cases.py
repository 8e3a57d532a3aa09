"""Random votes for the twins of the playground (votes.js), and what minicaps makes of them.

A case is a twin's name, its votes and options, and a list with the named arrays of every iteration.
"""

import numpy as np

from minicaps import Tensor, clustering, routing

STEPS = ("gmm", "activation", "input-activation", "complete")
FIELDS = {  # names in votes.js -> in Clusters
    "centres": "centres", "shares": "responsibilities", "objective": "objective",
    "weights": "weights", "covariances": "covariances",
}  # fmt: skip


def clusterings(seeds):
    """Yield cases of K-means in all variants and of mixtures."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(4, 25)), int(rng.integers(1, 5))
        x = rng.normal(size=(n, 2)) * 10 ** rng.uniform(-1, 1, size=2) + rng.normal(size=2)
        start = x[rng.choice(n, k, replace=False)] if seed % 3 else rng.normal(size=(k, 2))
        given = {"start": start, "iterations": int(rng.integers(1, 25))}
        K = 10 ** rng.uniform(-2, 1)
        yield "kmeans", x, given, clustered(clustering.kmeans(x, k, **given))
        soft, spherical = clustering.soft_kmeans, clustering.spherical_kmeans
        for method, scale in ((soft, K), (spherical, K), (spherical, np.inf)):
            name = "softKmeans" if method is soft else "sphericalKmeans"
            found = method(x, k, inverse_temperature=scale, **given)
            yield name, x, {**given, "K": scale}, clustered(found)
        for options in mixtures(x, k, given, rng):
            theirs = dict(options)
            if "shares" in theirs:
                theirs["start"] = theirs.pop("shares")
            yield "gmm", x, options, clustered(clustering.gmm(x, k, **theirs))


def mixtures(x, k, given, rng):
    """Yield options of mixtures: all covariances, with and without floor, from means and shares."""
    for covariance in ("full", "diagonal", "isotropic"):
        yield {**given, "covariance": covariance}
        yield {**given, "covariance": covariance, "floor": 10 ** rng.uniform(-2, 0)}
        if len(x) != k and k != 2:  # else `gmm` might take shares for means
            shares = rng.dirichlet(np.ones(k), size=len(x))
            yield {"shares": shares, "covariance": covariance, "iterations": given["iterations"]}
    yield {**given, "covariance": "isotropic", "sigma": 10 ** rng.uniform(-0.5, 0.5)}


def clustered(found):
    """Return the named arrays of every iteration."""
    return [
        {ours: value for ours, name in FIELDS.items() if (value := getattr(one, name)) is not None}
        for one in found.history
    ]


def routings(seeds):
    """Yield cases of every routing of the page."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        shape = int(rng.integers(2, 25)), int(rng.integers(1, 6)), 2
        votes = rng.normal(size=shape) * 10 ** rng.uniform(-1, 0.5)
        r, K = int(rng.integers(2, 25)), 10 ** rng.uniform(-1, 1)
        for update in routing.UPDATES:
            for orphans in (False, True):
                given = {"iterations": r, "update": update, "orphans": orphans}
                found = routed(routing.agreement, votes, inverse_temperature=K, **given)
                yield "agreement", votes, {**given, "K": K}, found
        found = routed(routing.distance, votes, iterations=r, inverse_temperature=K)
        yield "distance", votes, {"iterations": r, "K": K}, found
        for step in STEPS:
            yield em_case(votes, r, step, rng)


def em_case(votes, iterations, step, rng):
    """Return a case of EM routing with random parameters, of which some steps use none."""
    strengths, betas = rng.uniform(size=len(votes)), rng.normal(size=(2, votes.shape[1]))
    shared = {"iterations": iterations, "step": step, "floor": 10 ** rng.uniform(-4, -1)}
    ours, theirs = dict(shared), dict(shared)
    if step != "gmm":
        ours |= {"lambda": 10 ** rng.uniform(-2, 0.5), "betaU": betas[0], "betaA": betas[1]}
        theirs |= {"beta_u": Tensor(betas[0]), "beta_a": Tensor(betas[1])}
        theirs["inverse_temperature"] = ours["lambda"]
    if step in STEPS[2:]:
        ours["strengths"], theirs["activations"] = strengths, Tensor(strengths[None])
    return "em", votes, ours, routed(routing.em_plain, votes, **theirs)


def routed(route, votes, **options):
    """Return the named arrays of every iteration."""
    with routing.keep_history():
        found = route(Tensor(votes[None]), **options)
    names = "poses", "activations", "couplings"
    return [{name: getattr(one, name).data[0] for name in names} for one in found.history]
