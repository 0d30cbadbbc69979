r"""Vectors one after the other: step 2 to 5 of the document's algorithm.

Each new vector minimises, from several starts at once,

.. math:: E(z) = -\sum_o f_{i,o}(z)^2/k(z, z), \qquad f_i = f - \sum_{j<i}\beta_j\phi(z_j),

by iRprop⁺; then all coefficients are solved for anew. Starts are drawn by stochastic universal sampling: a wheel with
a slot for each point of the expansion, as wide as its coefficients are large, is spun once, and equally spaced markers
say which points are taken.
"""

import numpy as np
from scipy.linalg import solve_triangular

from mercer._typing import FloatArray, IntArray
from mercer.compression.distance import FeatureDistance
from mercer.compression.irprop import irprop
from mercer.kernels.stationary import Stationary

# A vector is refused if the others span it but for this share of k(z, z).
NEAR_DEPENDENT = 1e-9
_EXPLAINED = 1e-14  # share of |f|² below which nothing is left to explain but rounding
_POOL = 1000  # draws from which the best starts are chosen, at the least
_FALLBACK = 100  # points that are tried in its place where a search has found no vector
_LEAST_DIAGONAL = 1e-150  # k(z, z) is zero at the origin of a linear kernel; its square must not vanish


def universal_sampling(sizes: FloatArray, n_draws: int, rng: np.random.RandomState) -> IntArray:
    """Indices drawn in proportion to sizes, by equally spaced markers on a wheel that is spun once, in random order.

    An index comes up ⌊e⌋ or ⌈e⌉ times, where e is how often it is expected.
    """
    wheel = np.cumsum(sizes, dtype=np.float64)
    markers = (np.arange(n_draws) + rng.uniform()) * (wheel[-1] / n_draws)
    drawn = np.searchsorted(wheel, markers, side="right")
    last = int(np.flatnonzero(sizes)[-1])  # rounding may carry a marker past the last slot
    return np.asarray(rng.permutation(np.minimum(drawn, last)))


def construct(
    distance: FeatureDistance,
    n_vectors: int,
    *,
    unit: FloatArray,
    rng: np.random.RandomState,
    n_starts: int,
    max_iter: int,
    given: FloatArray | None = None,
    best_starts: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Build up to ``n_vectors`` vectors, after given ones; fewer where no vector is left that the others do not span.

    Each is searched for from ``n_starts`` points at once, by at most ``max_iter`` steps of iRprop⁺ with ``unit`` (d,)
    as a large step. The starts are the best points of a pool that is drawn in proportion to the coefficients or, if not
    ``best_starts``, the points as they are drawn. Cost: n·n_starts kernel values per step.

    Returns the vectors (m, d) in the order in which they came, and ρ² after each (m,).
    """
    builder = _Builder(distance, n_vectors)
    for vector in np.empty((0, len(unit))) if given is None else given:
        builder.add(vector[np.newaxis])
    sizes = np.sqrt(np.sum(distance.products.coefficients**2, axis=1))
    drawn = universal_sampling(sizes, max(n_starts * n_vectors, _POOL if best_starts else 0), rng)
    pool = _Pool(distance, np.unique(drawn) if best_starts else drawn, n_vectors)
    while builder.size < n_vectors and builder.curve[-1] > _EXPLAINED * distance.start:
        if best_starts:
            starts = pool.best(builder, n_starts)
        else:
            starts = pool.points.take(builder.size * n_starts + np.arange(n_starts), axis=0, mode="wrap")
        if max_iter > 0:
            found = irprop(builder.search, starts, unit=unit, max_iter=max_iter, tol=1e-3)
            starts = np.concatenate([found.parameters[np.argsort(found.errors)], starts])
        if not builder.add(starts) and not builder.add(pool.best(builder, _FALLBACK)):
            break
    return builder.vectors[: builder.size].copy(), np.array(builder.curve[1:])


class _Builder:
    """The vectors so far, K = LLᵀ of them, the best coefficients K⁻¹c, and what they leave of f; c are values of f."""

    def __init__(self, distance: FeatureDistance, room: int) -> None:
        self._distance, self._kernel, n_outputs = distance, distance.kernel, distance.products.n_outputs
        self.size, self.vectors = 0, np.empty((room, distance.points.shape[1]))
        self._lower, self._whitened = np.zeros((room, room), order="F"), np.zeros((room, n_outputs))  # L, L⁻¹c
        self.coefficients: FloatArray = np.empty((0, n_outputs))
        self.curve = [distance.start]  # ρ² before and after each vector

    def add(self, candidates: FloatArray) -> bool:
        """Take in the first candidate that the vectors do not span; whether there is one."""
        m, L, whitened = self.size, self._lower, self._whitened
        values, diagonal = self._distance.products.values(candidates), self._kernel.diagonal(candidates)
        columns = self._kernel(self.vectors[:m], candidates) if m else np.empty((0, len(candidates)))
        for j, candidate in enumerate(candidates):
            row = solve_triangular(L[:m, :m], columns[:, j], lower=True) if m else np.empty(0)
            pivot = diagonal[j] - row @ row
            if not pivot > NEAR_DEPENDENT * diagonal[j]:
                continue
            self.size, self.vectors[m] = m + 1, candidate
            L[m, :m], L[m, m] = row, np.sqrt(pivot)
            whitened[m] = (values[j] - row @ whitened[:m]) / L[m, m]
            known = whitened[: m + 1]
            self.coefficients = solve_triangular(L[: m + 1, : m + 1], known, lower=True, trans=1)
            # cᵀK⁻¹c, summed over the outputs, is by how much the vectors have lowered the distance
            self.curve.append(max(self._distance.start - self._distance.norm * float(np.sum(known**2)), 0.0))
            return True
        return False

    def search(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """E of each row and its gradient."""
        kernel, here = self._kernel, self._distance.products.at(z, self.vectors[: self.size])
        diagonal = np.maximum(kernel.diagonal(z), _LEAST_DIAGONAL)[:, np.newaxis]
        residual = here.values - here.tile.T @ self.coefficients
        weights = -2.0 * residual / diagonal
        gradient = here.gradient(weights, -self.coefficients @ weights.T)
        squares = np.sum(residual**2, axis=1, keepdims=True)
        if not isinstance(kernel, Stationary):  # k(z, z) varies
            gradient += 2.0 * kernel.points_gradient(z, z, np.diag((squares / diagonal**2)[:, 0]))
        return -(squares / diagonal)[:, 0], gradient


class _Pool:
    """Points of the expansion from which searches start, and what is known of them."""

    def __init__(self, distance: FeatureDistance, drawn: IntArray, room: int) -> None:
        self._kernel, self.points = distance.kernel, distance.points[drawn]
        self._values = distance.values[drawn] / distance.units
        self._columns, self._known = np.empty((len(drawn), room)), 0  # k with the vectors, of which so many are known

    def best(self, builder: _Builder, number: int) -> FloatArray:
        """Points where E is least, the best first."""
        new = builder.vectors[self._known : builder.size]
        if len(new):
            self._columns[:, self._known : builder.size] = self._kernel(self.points, new)
            self._known = builder.size
        residual = self._values - self._columns[:, : self._known] @ builder.coefficients
        errors = -np.sum(residual**2, axis=1) / np.maximum(self._kernel.diagonal(self.points), _LEAST_DIAGONAL)
        return np.asarray(self.points[np.argsort(errors, kind="stable")[:number]])
