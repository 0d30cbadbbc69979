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

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._typing import FloatArray
from mercer.engine import (
    ArrayTable,
    Executor,
    Features,
    NormalStatistics,
    Threads,
    feature_matrix,
    left_out_parts,
    normal_statistics,
)
from mercer.exceptions import JitterWarning, warn
from mercer.methods.forgetting import REFUSED_ERROR, check_digits, is_positive, weight_squares
from mercer.methods.frame import PLAIN_ERROR, Frame, target_shift
from mercer.methods.online_update import Changes, centred
from mercer.model import Calibration, KernelExpansion, Sample, leave_one_out
from mercer.model.calibration import sample_rows
from mercer.solvers.ridge import Choice, LeftOut, RidgePath, RidgeProblem, RidgeSolution, profiled_log_likelihood

# Rows for each basis point by which a noise is guessed, and the factor that the guess may be off.
_GUESSING, _GUESSED = 4, 10.0
_WORTH_GUESSING = 4  # times as many rows: the guess costs twice as much for each
# Rows by which a model is judged, so that its coverage is known to some percent.
_ENOUGH = 200
_COPIED = 10, 2  # rows that equal basis points, and times as many as are drawn with them: more are copies
# Where sums were so many times as large before rows were forgotten, their rounding is looked at.
_MUCH = 1e3
_CHANGES = "changes"  # where a summary keeps them: no field, as they are neither stored nor copied by ``replace``


@stored
@dataclass(frozen=True)
class Settings:
    """What the solution depends on besides the rows, as it was when the rows came."""

    noise: float | Choice
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
    sample: Sometimes[Sample | None] = None  # of the rows seen; only models of earlier versions have none
    heaviest: Sometimes[float] = 0.0  # the largest Σω from which rows were forgotten: its rounding remains
    least_noise: Sometimes[float] = 0.0  # that the rounding of plain sums allows which were whitened since

    def check_stored(self) -> None:
        """Refuse sums and a model of another basis."""
        self.frame.check_sums(self.statistics, self.target_shift)
        self.frame.check_expansion(vars(self).get("solved", (None,))[0], len(self.target_shift))

    @classmethod
    def start(cls, frame: Frame, table: ArrayTable, settings: Settings, *, once: Executor | None = None) -> Summary:
        """Summary of no rows. ``once`` promises that no other rows will come than these, summed by that executor."""
        whitened = once is None or not _plain_is_safe(frame, table, settings, once)
        statistics = NormalStatistics.zeros(len(frame.lower), table.n_outputs, is_whitened=whitened)
        return cls(frame, statistics, target_shift(table, intercept=settings.intercept), settings)

    def plus(self, table: ArrayTable, executor: Executor) -> Summary:
        """Return the summary with these rows added."""
        sample = Sample.draw(table)
        sample = sample if self.sample is None else self.sample.merged(sample)
        changes = self._changes(table)
        if changes is None:
            return replace(self, statistics=self.statistics + self._sum(table, executor), sample=sample)
        before, features, sums = self._small_sum(table, executor)
        rows = centred(features, table, before.statistics, intercept=self.settings.intercept)
        new = replace(before, statistics=before.statistics + sums, sample=sample)
        return new._followed_by(changes.plus(rows))

    def minus(self, table: ArrayTable, executor: Executor) -> Summary:
        """Return the summary without these rows."""
        if table.n_rows > self.statistics.n_rows:
            raise ValueError(f"cannot forget {table.n_rows} rows of {self.statistics.n_rows} seen.")
        changes = self._changes(table)
        if changes is None:
            return self._without(table, self._sum(table, executor))
        before, features, sums = self._small_sum(table, executor)
        new = before._without(table, sums)
        rows = centred(features, table, new.statistics, intercept=self.settings.intercept)
        return new._followed_by(changes.minus(rows)) if new.statistics.total_weight > 0 else new

    def _without(self, table: ArrayTable, sums: NormalStatistics) -> Summary:
        before = self.statistics
        rest = before - sums
        sample = None if self.sample is None else self.sample.without(table)
        nothing_left = rest.n_rows == 0 if sample is None else sample.n_rows == 0
        if not is_positive(rest, before, must_vanish=nothing_left, slack=self.least_noise):
            msg = "the rows to forget were not seen with these targets and weights: sums without them are not positive."
            raise ValueError(msg)
        if nothing_left:
            return replace(self, statistics=0.0 * rest, sample=sample, heaviest=0.0, least_noise=0.0)
        zero = np.zeros(len(self.target_shift), dtype=bool)
        if sample is not None and len(sample.targets):
            zero = np.all(sample.targets == self.target_shift, axis=0)
        check_digits(rest, before, zero)
        rest = replace(rest, weight_squares=weight_squares(rest, before, sample))
        new = replace(self, statistics=rest, sample=sample, heaviest=max(self.heaviest, before.total_weight))
        if not isinstance(self.settings.noise, str):
            new._check_noise(float(self.settings.noise))
        return new

    def merged(self, other: Summary) -> Summary:
        """Return the summary of both sets of rows."""
        if self.statistics.is_whitened != other.statistics.is_whitened:
            return self._whitened().merged(other._whitened())
        mine = self.statistics
        theirs = other.statistics.with_targets_shifted(other.target_shift - self.target_shift)
        both = self.sample is not None and other.sample is not None
        sample = self.sample.merged(other.sample) if both else None  # type: ignore[union-attr,arg-type]
        heaviest, least = max(self.heaviest, other.heaviest), max(self.least_noise, other.least_noise)
        return replace(self, statistics=mine + theirs, sample=sample, heaviest=heaviest, least_noise=least)

    def with_settings(self, settings: Settings) -> Summary:
        """The summary of the same rows with these settings."""
        return self if settings == self.settings else replace(self, settings=settings)

    @cached_property
    def solved(self) -> tuple[KernelExpansion, float]:
        """The model, and the noise it was solved with."""
        problem, settings = self._problem(), self.settings
        if isinstance(settings.noise, str):
            path = problem.path()
            solution = path.solve(self._choose_noise(path, settings.noise))
        else:
            self._check_noise(float(settings.noise))
            solution = self._follow(problem) or problem.solve(float(settings.noise))
        return self.frame.expansion(solution, self.target_shift, prior=settings.prior), solution.noise

    @property
    def is_solved_directly(self) -> bool:
        """Whether the model does not follow from the one before a few rows came or went."""
        _ = self.solved
        return _CHANGES not in vars(self)

    def _follow(self, problem: RidgeProblem) -> RidgeSolution | None:
        """The solution that follows from the one before; None where it must be found directly."""
        changes: Changes | None = vars(self).pop(_CHANGES, None)
        solution = None if changes is None else changes.solve(problem)
        if changes is not None and solution is not None:
            self._followed_by(changes.applied(solution))
        return solution

    def _changes(self, table: ArrayTable) -> Changes | None:
        """What has changed since a solution from which the one with a few rows more or less can follow."""
        changes: Changes | None = vars(self).get(_CHANGES)
        if isinstance(self.settings.noise, str) or (changes is None and "solved" not in vars(self)):
            return None
        if changes is None:
            root = self.solved[0].variance.root  # type: ignore[union-attr]
            changes = Changes.since(np.asarray(root), float(self.settings.noise), self.statistics.n_rows)
        return changes if changes.admit(table.n_rows) else None

    def _followed_by(self, changes: Changes) -> Summary:
        vars(self)[_CHANGES] = changes
        return self

    @property
    def log_likelihood(self) -> float:
        """Of the targets at the best σ; with an intercept, integrated over its flat prior. A weight counts rows."""
        expansion, noise = self.solved
        if noise <= 0:
            raise ValueError(
                "log_marginal_likelihood_ needs a noise above zero: without, targets beyond the basis have no density."
            )
        problem, root = self._problem(), np.asarray(expansion.variance.root)  # type: ignore[union-attr]
        # |VVᵀ + λI| = λⁿ|I + A/λ|, and root is (I + A/λ)^(-1/2); with an intercept, 1ᵀ(VVᵀ + λI)⁻¹1 is in it
        determinant = problem.freedom * np.log(noise) - 2.0 * float(np.linalg.slogdet(root)[1])
        if problem.has_intercept:
            determinant += np.log(problem.total_weight)
        return profiled_log_likelihood(expansion.scales, determinant, problem.freedom)

    @cached_property
    def calibration(self) -> Calibration | None:
        """Leave-one-out residuals of a sample of the rows; None without noise, and for models of earlier versions."""
        if self.sample is None:
            return None
        expansion, noise = self.solved
        return leave_one_out(expansion, self._judges(self.sample), noise=noise, executor=Threads(1))

    def _judges(self, sample: Sample) -> ArrayTable:
        """The sample without basis points, if enough are left: the basis represents these better than new rows.

        Where many rows are copies of basis points, new rows may be, too, and all judge.
        """
        table = sample.table(counted=self.statistics.counted)
        points = {point.tobytes() for point in self.frame.basis.points.astype(np.float64) + 0.0}  # -0 is 0
        rows = table.rows.read(0, table.n_rows) + 0.0
        others = np.array([row.tobytes() not in points for row in rows], dtype=bool)
        left = float(np.sum(sample.weights[others] if table.counted else others))
        copied = np.sum(~others) > _COPIED[0] + _COPIED[1] * len(others) * len(points) / max(sample.n_rows, 1)
        return table.subset(np.flatnonzero(others)) if left >= _ENOUGH and not copied else table

    def _choose_noise(self, path: RidgePath, choice: Choice) -> float:
        if choice == "gcv":
            return path.best_noise()
        left_out = self._left_out(path)
        by_likelihood = left_out is None or choice == "auto"
        noise = path.likeliest_noise(left_out) if by_likelihood else left_out.best_noise()  # type: ignore[union-attr]
        smallest = self._smallest_noise()
        if noise < smallest and self._is_rounded:
            warn(
                f"noise={noise:.3g} would be chosen, but rows of much larger weight were forgotten: what their sums' "
                f"rounding allows, {smallest:.3g}, is used. Fit the remaining rows anew.",
                JitterWarning,
            )
        return max(noise, smallest)

    def _left_out(self, path: RidgePath) -> LeftOut | None:
        if self.sample is None or len(self.sample.rows) == 0:
            return None
        counted = self.statistics.counted
        sample = self.sample.table(counted=counted)
        if self.settings.intercept:
            sample = sample.shifted(self.target_shift)
        features = self.frame.features(whitened=True).tile(sample.rows.read(0, sample.n_rows))
        weights = self.sample.weights
        return LeftOut(path, features, sample.targets, weights, left_out_parts(weights, counted=counted))

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
        features = self._features(table, whitened=self.statistics.is_whitened)
        return normal_statistics(table.shifted(self.target_shift), features, executor=executor)

    def _small_sum(self, table: ArrayTable, executor: Executor) -> tuple[Summary, FloatArray, NormalStatistics]:
        """The summary with whitened sums, and the whitened features of few rows with the sums of just these."""
        features = feature_matrix(table.rows, self._features(table, whitened=True), executor=executor)
        sums = NormalStatistics.of_features(features, table.shifted(self.target_shift), is_whitened=True)
        return self._whitened(), features, sums

    def _features(self, table: ArrayTable, *, whitened: bool) -> Features:
        # float64 rows after float32 ones keep their digits.
        dtype = np.promote_types(self.frame.dtype, table.dtype)
        return replace(self.frame, dtype=dtype).features(whitened=whitened)

    def _whitened(self) -> Summary:
        if self.statistics.is_whitened:
            return self
        return replace(self, statistics=self.statistics.whitened(self.frame.lower), least_noise=self._smallest_noise())

    def _problem(self) -> RidgeProblem:
        return self.frame.problem(self.statistics, self.target_shift, intercept=self.settings.intercept)

    @property
    def _is_rounded(self) -> bool:
        """Whether the sums are small differences of large ones."""
        return self.heaviest > _MUCH * self.statistics.total_weight

    def _smallest_noise(self) -> float:
        """The least noise that the rounding of the sums allows."""
        heaviest = max(self.statistics.total_weight, self.heaviest)
        if not self.statistics.is_whitened:
            return self.frame.plain_rounding(heaviest) / REFUSED_ERROR
        rounding = float(np.finfo(np.float64).eps) * heaviest * self.frame.largest_kernel
        return max(self.least_noise, rounding / REFUSED_ERROR if self._is_rounded else 0.0)

    def _check_noise(self, noise: float) -> None:
        smallest = self._smallest_noise()
        if noise >= smallest:
            return
        if self._is_rounded:
            raise ValueError(
                f"noise={noise:.3g} is too small for what is left of sums from which rows of much larger weight are "
                f"forgotten: their rounding allows {smallest:.1e} and more. Fit the remaining rows anew."
            )
        raise ValueError(
            f"noise={noise:.3g} is too small for sums that were made for a larger one: their rounding allows "
            f"{smallest:.1e} and more. Fit with this noise, or with noise='gcv'."
        )


def _plain_is_safe(frame: Frame, table: ArrayTable, settings: Settings, executor: Executor) -> bool:
    n, m = table.n_rows, len(frame.lower)
    if not frame.may_sum_plain(n):
        return False
    noise = settings.noise
    if isinstance(noise, str):  # a few rows tell about how large it will be, if they are few
        if n < _WORTH_GUESSING * _GUESSING * m:
            return False
        some = table.subset(sample_rows(np.arange(n), _GUESSING * m))
        noise = Summary.start(frame, some, settings).plus(some, executor).solved[1] / _GUESSED
    total = n if table.weights is None else float(np.sum(table.weights))
    # Predictions then differ from whitened sums' by a few times this share.
    return frame.plain_rounding(total) <= PLAIN_ERROR * float(noise)
