"""A dictionary of rows that grows to a budget, and rows projected on it in their order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_kernel, check_lower, need
from mercer._typing import FloatArray, IntArray
from mercer.engine.statistics import Features
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Precomputed
from mercer.solvers.hebbian import factor_in_order

_LARGEST = 1e153  # of kernel values: squares must be numbers
# Share of (1 + |a|²) k(x, x) below which a squared distance from the span is rounding. The weights a = K_mm⁻¹k_m(x) of
# a row that is extrapolated are large, and magnify the rounding of kernel values. (1 + |a|²)/distance², the squared
# length of its row in L⁻¹, so stays below 1/share.
_SPANNED = 1e-10
_PIECE = 256  # rows among which kernel values are taken while there is room


@stored
@dataclass(frozen=True)
class Dictionary:
    """Rows z, and the factor of K_mm = LLᵀ; a row x has coordinates v(x) = L⁻¹k_m(x) on it."""

    kernel: Kernel  # with numbers for parameters
    points: FloatArray  # (m, d)
    lower: FloatArray  # (m, m)

    def check_stored(self) -> None:
        """Refuse a factor or a kernel of other points."""
        need(self.points.ndim == 2 and self.points.dtype == np.float64, "the dictionary is no table of float64.")
        check_lower(self.lower, len(self.points), "the factor of the dictionary")
        check_kernel(self.kernel, self.points.shape[1])
        need(not isinstance(self.kernel, Precomputed), "the kernel of a dictionary needs rows.")
        check_finite(self.points, "the dictionary")

    @classmethod
    def empty(cls, kernel: Kernel, n_features: int) -> Dictionary:
        """No rows."""
        return cls(kernel, np.empty((0, n_features)), np.empty((0, 0), order="F"))

    @cached_property
    def features(self) -> Features:
        """v(x) of whole tiles; bound to the points once."""
        return Features(self.kernel, self.points, lower=self.lower)

    def __getstate__(self) -> dict[str, object]:
        """Without what is bound."""
        return {name: value for name, value in vars(self).items() if name != "features"}

    def learned(self, rows: FloatArray, *, most: int, novelty_tol: float) -> tuple[Dictionary, FloatArray, IntArray]:
        """Let rows (T, d) join in their order, and project each on the dictionary as it then is.

        A row joins while there are fewer than ``most``, if its squared distance from the span of the others exceeds the
        share ``novelty_tol`` of k(x, x).

        Returns
        -------
        dictionary : Dictionary
        features : array (T, m)
            v(x); what a row does not know, because it came before a point, is zero.
        sizes : array (T,)
            How many of them each row knows.

        Notes
        -----
        Cost: T·m² multiply-adds in matrix products; T² kernel values and T³ operations at most for those that are new.
        """
        m = len(self.points)
        features = self._values(rows)
        if m >= most:
            return self, features, np.full(len(rows), m)
        prior = self._prior(rows)
        least = max(novelty_tol, _SPANNED) * prior
        new = np.flatnonzero(prior - np.einsum("ij,ij->i", features, features) > least)
        if not len(new):
            return self, features, np.full(len(rows), m)
        # k(x, x') - v(x)ᵀv(x')
        residual = np.ascontiguousarray(self.kernel(rows, rows[new])) - features @ features[new].T
        _check_values(residual)
        room = min(len(new), most - m)
        coordinates = np.zeros((len(rows), room))
        origin, place = np.empty(room, dtype=np.intp), np.empty(room, dtype=np.intp)
        known = np.ascontiguousarray(self._weights(features[new]))
        rounding, memory = _SPANNED * prior, np.empty(room)
        number = int(factor_in_order(residual, new, least, coordinates, origin, place, known, rounding, memory))
        origin, coordinates = origin[:number], coordinates[:, :number]
        features = np.hstack([features, coordinates])
        sizes = m + np.searchsorted(origin, np.arange(len(rows)), side="right")
        return self._with(rows[origin], features[origin]), features, sizes

    def _with(self, points: FloatArray, lower: FloatArray) -> Dictionary:
        """The dictionary with more points, whose rows of the factor are ``lower`` (b, m + b)."""
        m, b = len(self.points), len(points)
        whole = np.zeros((m + b, m + b), order="F")
        whole[:m, :m], whole[m:] = self.lower, lower
        return Dictionary(self.kernel, np.concatenate([self.points, points]), whole)

    def _values(self, rows: FloatArray) -> FloatArray:
        if not len(self.points):
            return np.empty((len(rows), 0))
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.features.tile(rows)
        _check_values(values)
        return values

    def _weights(self, features: FloatArray) -> FloatArray:
        """K_mm⁻¹k_m(x), shape (T, m), from v(x)."""
        if not len(self.points):
            return features
        return np.asarray(solve_triangular(self.lower, features.T, lower=True, trans="T", check_finite=False).T)

    def _prior(self, rows: FloatArray) -> FloatArray:
        """k(x, x), checked."""
        with np.errstate(over="ignore"):
            prior = self.kernel.diagonal(rows)
        if not np.all(prior >= 0):
            msg = "k(x, x) is negative or NaN on some rows: the kernel is not positive definite."
            raise NotPositiveDefiniteError(msg)
        if np.max(prior, initial=0.0) > _LARGEST:
            msg = f"k(x, x) goes up to {np.max(prior):.1g}: kernel values overflow when they are squared. Scale X."
            raise ValueError(msg)
        return np.asarray(prior)

    def rows_together(self, most: int) -> int:
        """How many rows to project at a time: fewer, as long as kernel values among them may be needed."""
        return _PIECE if len(self.points) < most else 4 * _PIECE


def _check_values(values: FloatArray) -> None:
    if not np.isfinite(np.sum(values)):
        msg = "kernel values contain NaN or infinity: the kernel overflows on these rows; scale X."
        raise NotPositiveDefiniteError(msg)
