r"""What a model on a basis has seen, and the model that follows from it.

===========  =======================  ============  ==========================================
symbol       code                     shape         meaning
===========  =======================  ============  ==========================================
z            ``frame.basis``          (m, d)        basis points
K_mm = LLᵀ   ``frame.lower``          (m, m)        kernel matrix of the basis
φ, v         features                 (m,)          k_m(x), and L⁻¹k_m(x)
S            ``statistics``           (m+p+1,)²     sums of [φ, y, 1][φ, y, 1]ᵀ over the rows
u            ridge weights            (m, p)        (λI + L⁻¹K_mnK_nmL⁻ᵀ)⁻¹ L⁻¹K_mn y
w = L⁻ᵀu     ``coefficients``         (m, p)        weights of the basis points
===========  =======================  ============  ==========================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.linalg import lapack

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.engine import ArrayTable, Executor, NormalStatistics, normal_statistics
from mercer.kernels.stationary import Stationary
from mercer.methods.frame import Frame, target_shift
from mercer.model import KernelExpansion
from mercer.solvers.ridge import RidgeProblem

# Plain sums are taken, and whitened afterwards, where the pass over the rows is long and the rounding that this
# magnifies stays below this share of the noise: then predictions differ from whitened sums' by a few times this share.
_PLAIN_ERROR = 1e-5
_LONG_PASS = 1e10  # multiply-adds: a good part of a second
# A plain sum is refused for a noise so small that its rounding is a larger share of it than this.
_REFUSED_ERROR = 1e-3
# Sums that should vanish, or be positive, are so up to this share of what they were: rounding, in float64.
_FORGOTTEN = 1e-8


@stored
@dataclass(frozen=True)
class Settings:
    """What the solution depends on besides the rows, as it was when the rows came."""

    noise: float | Literal["gcv"]
    intercept: bool
    prior: bool  # whether the variance counts what the basis cannot represent


@dataclass(frozen=True)
class NoisePath:
    """Models for many noises, from one eigendecomposition.

    Attributes
    ----------
    noises : array (k,)
    gcv : array (k,)
        Generalised cross-validation score, summed over the outputs.
    degrees_of_freedom : array (k,)
    coefficients : array (k, m, p)
    intercepts : array (k, p)
    """

    noises: FloatArray
    gcv: FloatArray
    degrees_of_freedom: FloatArray
    coefficients: FloatArray
    intercepts: FloatArray


@stored(also=("solved",))
@dataclass(frozen=True)
class Summary:
    """Statistics of the rows seen, on a frame. New rows make a new summary; the old one stays as it is.

    ``target_shift`` is subtracted from the targets: near their mean if there is an intercept, else zero.
    """

    frame: Frame
    statistics: NormalStatistics
    target_shift: FloatArray  # (p,)
    settings: Settings

    def check_stored(self) -> None:
        """Refuse sums and a model of another basis."""
        self.frame.check_sums(self.statistics, self.target_shift)
        self.frame.check_expansion(vars(self).get("solved", (None,))[0], len(self.target_shift))

    @classmethod
    def start(cls, frame: Frame, table: ArrayTable, settings: Settings, *, once: bool) -> Summary:
        """Summary of no rows. ``once`` promises that no other rows will come."""
        whitened = not (once and _plain_is_safe(frame, table, settings))
        statistics = NormalStatistics.zeros(len(frame.lower), table.n_outputs, is_whitened=whitened)
        return cls(frame, statistics, target_shift(table, intercept=settings.intercept), settings)

    def plus(self, table: ArrayTable, executor: Executor) -> Summary:
        """Return the summary with these rows added."""
        return replace(self, statistics=self.statistics + self._sum(table, executor))

    def minus(self, table: ArrayTable, executor: Executor) -> Summary:
        """Return the summary without these rows."""
        before = self.statistics
        if table.n_rows > before.n_rows:
            raise ValueError(f"cannot forget {table.n_rows} rows of {before.n_rows} seen.")
        rest = before - self._sum(table, executor)
        nothing_left = rest.n_rows == 0 or rest.total_weight <= _FORGOTTEN * before.total_weight
        if not _positive(rest.sums, before.sums, must_vanish=nothing_left):
            msg = "the rows to forget were not seen with these targets and weights: sums without them are not positive."
            raise ValueError(msg)
        return replace(self, statistics=0.0 * rest if nothing_left else rest)

    def merged(self, other: Summary) -> Summary:
        """Return the summary of both sets of rows."""
        mine = self.statistics
        theirs = other.statistics.with_targets_shifted(other.target_shift - self.target_shift)
        if mine.is_whitened != theirs.is_whitened:
            mine, theirs = mine.whitened(self.frame.lower), theirs.whitened(self.frame.lower)
        return replace(self, statistics=mine + theirs)

    @cached_property
    def solved(self) -> tuple[KernelExpansion, float]:
        """The model, and the noise it was solved with."""
        problem, settings = self._problem(), self.settings
        if settings.noise == "gcv":
            self._check_weights_count_rows()
            path = problem.path()
            solution = path.solve(path.best_noise())
        else:
            self._check_noise(float(settings.noise))
            solution = problem.solve(float(settings.noise))
        return self.frame.expansion(solution, self.target_shift, prior=settings.prior), solution.noise

    def path(self, noises: FloatArray) -> NoisePath:
        """Solve for many noises."""
        path = self._problem().path()
        coefficients, intercepts = [], []
        for noise in noises:
            self._check_noise(float(noise))
            solution = path.solve(noise)
            coefficients.append(self.frame.unwhiten(solution.weights))
            intercepts.append(solution.shifted_intercept(self.target_shift))
        return NoisePath(
            noises=noises,
            gcv=np.array([path.gcv(noise) for noise in noises]),
            degrees_of_freedom=np.array([path.degrees_of_freedom(noise) for noise in noises]),
            coefficients=np.array(coefficients),
            intercepts=np.array(intercepts),
        )

    def _sum(self, table: ArrayTable, executor: Executor) -> NormalStatistics:
        features = self.frame.features(whitened=self.statistics.is_whitened)
        return normal_statistics(table.shifted(self.target_shift), features, executor=executor)

    def _problem(self) -> RidgeProblem:
        return self.frame.problem(self.statistics, self.target_shift, intercept=self.settings.intercept)

    def _check_noise(self, noise: float) -> None:
        if self.statistics.is_whitened:
            return
        smallest = _magnified_rounding(self.frame, self.statistics.total_weight) / _REFUSED_ERROR
        if noise < smallest:
            raise ValueError(
                f"noise={noise:.3g} is too small for sums that were made for a larger one: their rounding allows "
                f"{smallest:.1e} and more. Fit with this noise, or with noise='gcv'."
            )

    def _check_weights_count_rows(self) -> None:
        if self.statistics.n_rows > 1 and self.statistics.total_weight <= 1.0 + _FORGOTTEN:
            raise ValueError(
                f"noise='gcv' counts a weight as a number of rows, but sample_weight sums to "
                f"{self.statistics.total_weight:.3g} for {self.statistics.n_rows} rows: scale it to a mean of 1."
            )


def _plain_is_safe(frame: Frame, table: ArrayTable, settings: Settings) -> bool:
    n, m = table.n_rows, len(frame.lower)
    # The kernel must be bounded on rows that were not seen yet: only stationary ones are.
    if settings.noise == "gcv" or n * m**2 < _LONG_PASS or not isinstance(frame.kernel, Stationary):
        return False
    total = n if table.weights is None else float(np.sum(table.weights))
    return _magnified_rounding(frame, total) <= _PLAIN_ERROR * float(settings.noise)


def _magnified_rounding(frame: Frame, total_weight: float) -> float:
    # Entries of K_mnK_nm are sums of n products k·k, known to eps; whitening divides them by the pivots.
    return float(np.finfo(np.float64).eps * total_weight * frame.largest_kernel**2 / frame.smallest_pivot)


def _positive(sums: FloatArray, before: FloatArray, *, must_vanish: bool) -> bool:
    """Whether a difference of sums is positive semi-definite (or zero) up to the rounding of what it was taken from."""
    scale = np.sqrt(np.diagonal(before))
    scale[scale == 0] = 1.0
    scaled = sums / np.outer(scale, scale)
    if must_vanish:
        return bool(np.max(np.abs(scaled)) <= _FORGOTTEN)
    scaled[np.diag_indices_from(scaled)] += _FORGOTTEN
    return int(lapack.dpotrf(scaled, lower=1, overwrite_a=1)[1]) == 0
