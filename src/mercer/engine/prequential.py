r"""What is kept of the rows of a stream besides the model: residuals before learning, and moments of the targets.

A row is predicted before it is learned, so its residual ρ is honest. By the chain rule, a Gaussian process whose
dictionary holds all rows has

.. math:: y^\top(K + \lambda W^{-1})^{-1}y = \sum_i \frac{\rho_i^2}{v_i},\qquad
          v_i = \delta_i + \lambda k^\top P^{-1}k + \lambda/\omega_i,

so the amplitude that is likeliest, :math:`\hat\sigma^2 = q/N`, is the mean of squared standardised residuals. With
forgetting, sums are multiplied by φ before each row.

=========  ======================  =======  ============================================================
symbol     code                    shape    meaning
=========  ======================  =======  ============================================================
q          ``squares``             (p,)     Σ ρ²/v
N          ``weight``, ``count``            Σ ω or the number of rows, whichever is more
y, ρ       ``targets`` and so on   (k, p)   of a sample of rows
=========  ======================  =======  ============================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._jit import jit
from mercer._stored import stored
from mercer._stored.checks import check_columns, check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray

KEPT = 2048  # rows of a sample
_PIECE = 8192  # rows that are taken in together: memory does not grow with a batch
_MIX = tuple(np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS = tuple(np.uint64(each) for each in (30, 27, 31, 11))


@stored
@dataclass(frozen=True)
class Prequential:
    """Residuals of rows before they were learned: sums over all of them, and a sample.

    The sample prefers late rows, as the model has grown: with weights in proportion to the number of a row, or, where
    the model forgets, the last rows. It depends on the rows and their order, not on how they were batched.
    """

    squares: FloatArray  # (p,)
    weight: float
    count: float
    numbers: IntArray  # (k,), of the sample's rows among all, ascending
    targets: FloatArray  # (k, p)
    residuals: FloatArray  # (k, p)
    variances: FloatArray  # (k,), of an observation, in units of σ²
    weights: FloatArray  # (k,)

    def check_stored(self) -> None:
        """Refuse parts of different lengths."""
        k = len(self.numbers)
        check_columns(self.targets, k, "targets of a sample")
        check_shape(self.residuals, self.targets.shape, "residuals of a sample")
        check_shape(self.squares, self.targets.shape[1:], "squares of residuals")
        check_shape(self.numbers, (k,), "numbers of a sample")
        for name in ("variances", "weights"):
            check_shape(getattr(self, name), (k,), f"{name} of a sample")
            need(np.all(getattr(self, name) > 0), f"{name} of a sample are not positive.")
        for name in ("squares", "targets", "residuals", "variances", "weights"):
            check_finite(getattr(self, name), f"{name} of a sample")
        good = np.all(self.squares >= 0) and self.weight >= 0 and self.count >= 0 and np.all(self.numbers >= 0)
        need(good, "sums of residuals are negative.")

    @classmethod
    def nothing(cls, n_outputs: int) -> Prequential:
        """Of no rows."""
        none, table = np.empty(0), np.empty((0, n_outputs))
        return cls(np.zeros(n_outputs), 0.0, 0.0, np.empty(0, dtype=np.int64), table, table, none, none)

    @property
    def scale(self) -> FloatArray:
        """σ of each output, (p,)."""
        counted = max(self.weight, self.count)
        return np.sqrt(self.squares / counted) if counted > 0 else np.zeros(len(self.squares))

    def plus(self, rows: Learned, *, noise: float, forgetting: float, free: bool) -> Prequential:
        """With rows that follow those so far; ``free`` if the first one alone has decided a constant."""
        result, n = self, len(rows.weights)
        for start in range(0, n, _PIECE):
            some = slice(start, start + _PIECE)
            parts = (rows.targets, rows.weights, rows.residuals, rows.variances)
            piece = Learned(rows.first + start, *(each[some] for each in parts))
            result = result._plus(piece, noise=noise, forgetting=forgetting, free=free and start == 0)
        return result

    def _plus(self, rows: Learned, *, noise: float, forgetting: float, free: bool) -> Prequential:
        # A row of weight ω is ω rows; if the constant is free, the first of all has no residual.
        counts = np.column_stack([rows.weights, np.ones(len(rows.weights))])
        terms = rows.residuals**2 / (rows.variances + noise / rows.weights)[:, np.newaxis]
        some = slice(int(free), None)
        if free:
            counts[0], terms[0] = np.maximum(counts[0] - 1.0, 0.0), 0.0
        sums = np.concatenate([self.squares, [self.weight, self.count]])
        sums = discounted(np.column_stack([terms, counts]), forgetting, sums)[-1]
        weights = rows.weights[some]
        new = replace(
            self,
            squares=sums[:-2],
            weight=float(sums[-2]),
            count=float(sums[-1]),
            numbers=rows.first + np.arange(len(rows.weights))[some],
            targets=rows.targets[some],
            residuals=rows.residuals[some],
            variances=rows.variances[some] + noise,
            weights=weights,
        )
        return replace(new, **self._joined(new, forgetting))

    def of_fit(self, squares: FloatArray, weight: float, count: float, *, free: bool) -> Prequential:
        """With the sums q and N of a fit to all rows; the sample stays."""
        return replace(self, squares=squares, weight=max(weight - free, 0.0), count=float(max(count - free, 0)))

    def merged(self, other: Prequential) -> Prequential:
        """With the rows of another stream, beside these; neither forgets."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("squares", "weight", "count")}
        return replace(self, **sums, **self._joined(other, 1.0))

    def _joined(self, other: Prequential, forgetting: float) -> dict[str, Any]:
        """A sample of both samples."""
        numbers = np.concatenate([self.numbers, other.numbers])
        if forgetting < 1.0:
            kept = np.argsort(numbers, kind="stable")[-KEPT:]
        elif len(numbers) > KEPT:
            # Weighted sampling without replacement (Efraimidis and Spirakis, 2006): the least -log(u)/w, with w = i + 1
            keys = np.log(-np.log(_uniform(numbers))) - np.log(numbers + 1.0)
            kept = np.argsort(keys, kind="stable")[:KEPT]
            kept = kept[np.argsort(numbers[kept], kind="stable")]
        else:
            kept = np.argsort(numbers, kind="stable")
        parts: dict[str, Any] = {"numbers": numbers[kept]}
        for name in ("targets", "residuals", "variances", "weights"):
            parts[name] = np.concatenate([getattr(self, name), getattr(other, name)])[kept]
        return parts

    def mapped(self, signs: FloatArray) -> Prequential:
        """With other outputs, each of which is plus or minus one of these: columns of ``signs`` (p, q)."""
        targets, residuals = self.targets @ signs, self.residuals @ signs
        return replace(self, squares=self.squares @ np.abs(signs), targets=targets, residuals=residuals)

    def late(self, *, by_target: bool, before: int | None = None) -> IntArray:
        """Which of the sample are of its later half: early rows met a model that knew little.

        ``by_target`` takes the later half of the rows of each target (of each class); only rows of numbers below
        ``before`` are looked at.
        """
        index = np.arange(len(self.numbers) if before is None else np.searchsorted(self.numbers, before))
        groups = [index]
        if by_target and len(index):
            codes = np.unique(self.targets[index], axis=0, return_inverse=True)[1].ravel()
            groups = [index[codes == code] for code in range(np.max(codes) + 1)]
        return np.sort(np.concatenate([group[len(group) // 2 :] for group in groups]))


@dataclass(frozen=True)
class Learned:
    """Rows that were learned, the first one of that number, and what the model before each of them said."""

    first: int
    targets: FloatArray  # (n, p)
    weights: FloatArray  # (n,)
    residuals: FloatArray  # (n, p)
    variances: FloatArray  # (n,), of the function, in units of σ²


@stored
@dataclass(frozen=True)
class Moments:
    """Sums of the targets of a stream, which tell their mean and spread at each row; φ discounts them."""

    centred: bool  # whether the mean is subtracted before a row is learned
    about_mean: bool  # whether the spread is that about the mean, or about zero
    origin: FloatArray  # (p,), the first targets: a large offset would cost the sums their digits
    sums: FloatArray  # (1 + 2p,): of ω, ω(y - origin) and its squares

    def check_stored(self) -> None:
        """Refuse sums of other outputs."""
        check_shape(self.sums, (1 + 2 * self.origin.size,), "moments")
        check_finite(self.sums, "moments")
        check_shape(self.origin, (self.origin.size,), "the origin of moments")
        check_finite(self.origin, "the origin of moments")

    @classmethod
    def nothing(cls, n_outputs: int, *, centred: bool, about_mean: bool) -> Moments:
        """Of no rows."""
        return cls(centred, about_mean, np.zeros(n_outputs), np.zeros(1 + 2 * n_outputs))

    @property
    def mean(self) -> FloatArray:
        """Of the targets, (p,)."""
        return np.asarray(self._means(self.sums[np.newaxis])[0])

    def _means(self, sums: FloatArray) -> FloatArray:
        return self.origin + sums[:, 1 : 1 + len(self.origin)] / np.where(sums[:, :1] > 0, sums[:, :1], 1.0)

    def plus(
        self, targets: FloatArray, weights: FloatArray, *, forgetting: float, hidden: int
    ) -> tuple[Moments, FloatArray, FloatArray]:
        """With more rows; and the mean before each of them, (n, p), and their spread with each of them, (n,).

        The spread is the mean square about the mean or zero, summed over the outputs that are not hidden. The mean
        before the first row of all is that row.
        """
        start, p = self, targets.shape[1]
        if not self.sums[0] > 0 and self.about_mean:
            start = replace(self, origin=targets[0].copy())
        moved = targets - start.origin
        terms = np.column_stack([np.ones(len(moved)), moved, moved**2]) * weights[:, np.newaxis]
        sums = discounted(terms, forgetting, self.sums)
        means = start._means(np.concatenate([self.sums[np.newaxis], sums[:-1]]))
        shares = sums[:, 1:] / sums[:, :1]
        spreads = shares[:, p:] - (shares[:, :p] ** 2 if self.about_mean else 0.0)
        return replace(start, sums=sums[-1]), means, np.sum(np.maximum(spreads[:, : p - hidden], 0.0), axis=1)

    def merged(self, other: Moments) -> Moments:
        """With the rows of another stream."""
        p, by = len(self.origin), other.origin - self.origin
        sums = other.sums.copy()
        # Σω(y - o)² for another origin o
        sums[1 + p :] += 2.0 * by * sums[1 : 1 + p] + sums[0] * by**2
        sums[1 : 1 + p] += sums[0] * by
        return replace(self, sums=self.sums + sums)

    def mapped(self, signs: FloatArray) -> Moments:
        """With other outputs, each of which is plus or minus one of these: columns of ``signs`` (p, q)."""
        p = len(self.origin)
        sums = [self.sums[:1], self.sums[1 : 1 + p] @ signs, self.sums[1 + p :] @ np.abs(signs)]
        return replace(self, origin=self.origin @ signs, sums=np.concatenate(sums))


def discounted(terms: FloatArray, share: float, before: FloatArray) -> FloatArray:
    """Sums s_t = φ s_{t-1} + x_t of terms (n, k), (n, k)."""
    sums = np.array(terms, dtype=np.float64, order="C")
    add_discounted(sums, float(share), np.array(before, dtype=np.float64))
    return sums


@jit
def add_discounted(terms: FloatArray, share: float, before: FloatArray) -> None:
    """Replace terms by their discounted sums; the last ones are left in ``before``."""
    for t in range(terms.shape[0]):
        for j in range(terms.shape[1]):
            before[j] = share * before[j] + terms[t, j]
            terms[t, j] = before[j]


def _uniform(numbers: IntArray) -> FloatArray:
    """Random numbers between 0 and 1, one for each given number (SplitMix64)."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * _MIX[0]
    mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _MIX[1]
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _MIX[2]
    mixed ^= mixed >> _SHIFTS[2]
    return ((mixed >> _SHIFTS[3]).astype(np.float64) + 0.5) * 2.0**-53
