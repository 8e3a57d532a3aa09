"""Moments of votes about centres, with which EM passes over the votes fewer times.

Since (V − μ)² = (V − c)² − 2 (μ − c)(V − c) + (μ − c)², all sums over deviations from a mean μ are
products with V − c and (V − c)², which are computed once instead of in each iteration. Digits
cancel in these sums if a mean is many standard deviations from its centre c, so such a centre is
moved. The results are as accurate as with the deviations themselves.

`em.em_plain` is the plain twin.
"""

import numpy as np

from minicaps.backend import array_module
from minicaps.clustering.steps import LEAST, weighted_mean, weighted_sum

FAR = 4  # squared distance of a mean from its centre, in variances; more would cost digits


class Centred:
    """Votes X (B, J, D, I) relative to a centre c (B, J, D) near the mean of each cluster."""

    def __init__(self, X, centre):
        self.X, self.centre = X, centre
        self.first = X - centre[..., None]  # V − c
        self.second = self.first * self.first

    def move(self, clusters, centre):
        """Move the centres of the clusters in a mask (B, J); return whether there are any.

        A GPU moves all of them, because asking would stall the computation.
        """
        xp = array_module(centre)
        if xp is np and not clusters.any():
            return False
        self.centre = xp.where(clusters[..., None], centre, self.centre)
        some = clusters if xp is np else slice(None)
        moved = self.X[some] - self.centre[some][..., None]
        self.first[some], self.second[some] = moved, moved * moved
        return True

    def m_step(self, weights, floor):
        """Return the results of `steps.m_step`, but μ − c in place of the squares."""
        total, share, shift, variance = self._fit(weights, floor)
        if self.move((shift * shift > FAR * variance).any(axis=2), self.centre + shift):
            total, share, shift, variance = self._fit(weights, floor)
        return total, share, self.centre + shift, shift, variance

    def _fit(self, weights, floor):
        xp = array_module(weights)
        total, share, shift = weighted_mean(self.first, weights)
        empty = (total <= LEAST)[..., None]  # not those whose total is NaN
        shift = xp.where(empty, -self.centre, shift)  # empty ones have mean 0
        variance = weighted_sum(self.second, share) - shift * shift
        return total, share, shift, xp.maximum(variance, floor)

    def log_density(self, shift, variance):
        """Return ln N(V; μ, σ²) (B, J, I), up to a constant factor of the density."""
        xp = array_module(shift)
        scaled = over_dimensions(1 / variance, self.second)
        scaled += over_dimensions(-2 * shift / variance, self.first)
        rest = (shift * shift / variance + xp.log(variance)).sum(axis=2)
        return -0.5 * (scaled + rest[..., None])

    def sums(self, weights, amount, shift):
        """Return Σ_i w_i (V − μ) and Σ_i w_i (V − μ)² (B, J, D); amount: Σ_i w_i (B, J, 1)."""
        first, second = weighted_sum(self.first, weights), weighted_sum(self.second, weights)
        return first - shift * amount, second - shift * (2 * first - shift * amount)

    def add_gradients(self, grad_X, terms):
        """Add Σ w_ji (α_jd (V − c)_jdi + β_jd) over all terms (w, α, β) to grad_X, if any."""
        weights, slopes, offsets = zip(*terms, strict=True)
        xp = array_module(weights[0])
        weights = xp.stack(weights, axis=2)
        grad = xp.stack(slopes, axis=3) @ weights
        grad *= self.first
        grad += xp.stack(offsets, axis=3) @ weights
        return grad if grad_X is None else grad_X + grad


def over_dimensions(weights, x):
    """Return Σ_d w_jd x_jdi, of shape (B, J, I), for weights (B, J, D) and x (B, J, D, I)."""
    return (weights[..., None, :] @ x)[..., 0, :]
