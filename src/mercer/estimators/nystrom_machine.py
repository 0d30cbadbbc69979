r"""Regression and classification on a basis: the subset of representers.

===========  =======================  ============  ==========================================
symbol       code                     shape         meaning
===========  =======================  ============  ==========================================
z            ``basis_``               (m, d)        basis points
K_mm = LLᵀ   ``factor``               (m, m)        kernel matrix of the basis
φ, v         features                 (m,)          k_m(x), and L⁻¹k_m(x)
S            ``statistics_``          (m+p+1,)²     sums of [φ, y, 1][φ, y, 1]ᵀ over the rows
u            ridge weights            (m, p)        (λI + L⁻¹K_mnK_nmL⁻ᵀ)⁻¹ L⁻¹K_mn y
w = L⁻ᵀu     ``coefficients_``        (m, p)        weights of the basis points
===========  =======================  ============  ==========================================
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator

from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, check_random_state
from mercer.basis import choose_basis
from mercer.engine import NormalStatistics, Rows, normal_statistics
from mercer.estimators.nystrom_frame import Frame
from mercer.estimators.shell import Data, all_or_nothing, make_threads, read_rows, resolve_kernel
from mercer.expansion import KernelExpansion, Variance
from mercer.kernels import Kernel
from mercer.solvers.ridge import RidgeProblem, RidgeSolution

__all__ = ["NoisePath", "NystromMachine"]

# Plain sums are whitened afterwards if the rounding they magnify stays below this share of the noise.
_PLAIN_ERROR = 1e-5


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


class NystromMachine(BaseEstimator, ABC):
    """Parameters, statistics and solution that regression and classification share."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": "no_validation",  # type: ignore[dict-item]  # checked, with a message of its own, by as_kernel
        "n_basis": [Interval(Integral, 1, None, closed="left")],
        "basis": "no_validation",  # type: ignore[dict-item]  # checked, with a message of its own, by choose_basis
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"gcv"})],
        "intercept": ["boolean"],
        "variance": [StrOptions({"dtc", "sor"})],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    statistics_: NormalStatistics
    _frame: Frame
    _whitened: bool
    _solved: tuple[KernelExpansion, float] | None

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        n_basis: int = 500,
        basis: Any = "uniform",
        noise: float | Literal["gcv"] = 0.1,
        intercept: bool = False,
        variance: Literal["dtc", "sor"] = "dtc",
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_basis = n_basis
        self.basis = basis
        self.noise = noise
        self.intercept = intercept
        self.variance = variance
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _fit(self, data: Data) -> None:
        frame = self._choose_frame(data)
        whitened = not self._plain_is_safe(frame, data)
        statistics = self._summarise(data, frame, whitened=whitened)
        self._frame, self._whitened, self.statistics_ = frame, whitened, statistics
        self._solved = self._solve()

    def _partial_fit(self, data: Data) -> None:
        if not hasattr(self, "statistics_"):
            self._frame, self._whitened = self._choose_frame(data), True
            self.statistics_ = NormalStatistics.zeros(len(self._frame.lower), data.targets.shape[1])
        self.statistics_ = self.statistics_ + self._summarise(data, self._frame, whitened=self._whitened)
        self._solved = None

    def _forget(self, data: Data) -> None:
        if data.rows.n_rows > self.statistics_.n_rows:
            msg = f"cannot forget {data.rows.n_rows} rows of {self.statistics_.n_rows} seen."
            raise ValueError(msg)
        rest = self.statistics_ - self._summarise(data, self._frame, whitened=self._whitened)
        before = np.diagonal(self.statistics_.sums)
        if np.any(np.diagonal(rest.sums) < -1e-8 * before):
            msg = "the rows to forget were not seen: without them a sum of squares would be negative."
            raise ValueError(msg)
        if rest.n_rows == 0:
            rest = 0.0 * rest
        self.statistics_, self._solved = rest, None

    def merge(self, other: Self) -> Self:
        """Take in what another model has seen; exact, as if both sets of rows had been fitted here.

        Parameters
        ----------
        other : estimator of the same class
            Fitted with the same kernel and basis: fit the first with the basis you like, the others with
            ``basis=first.basis_`` and ``kernel=first.kernel_``.

        Returns
        -------
        self
        """
        check_is_fitted(self, "statistics_")
        if type(other) is not type(self):
            msg = f"cannot merge a {type(other).__name__} into a {type(self).__name__}."
            raise ValueError(msg)
        check_is_fitted(other, "statistics_")
        self._check_mergeable(other)
        with all_or_nothing(self):
            mine, theirs = self.statistics_, other.statistics_
            if self._whitened != other._whitened:
                mine, theirs = self._whiten_sums(), other._whiten_sums()
                self._whitened = True
            self.statistics_, self._solved = mine + theirs, None
        return self

    def _check_mergeable(self, other: Self) -> None:
        if not self._frame.kernel.equals(other._frame.kernel):
            msg = f"cannot merge models with different kernels: {self._frame.kernel} and {other._frame.kernel}."
            raise ValueError(msg)
        if not np.array_equal(self.basis_, other.basis_) or self._frame.dtype != other._frame.dtype:
            msg = (
                "cannot merge models with different bases: fit the second with basis=first.basis_ "
                "(and rows of the same dtype)."
            )
            raise ValueError(msg)
        if self.statistics_.sums.shape != other.statistics_.sums.shape:
            msg = "cannot merge models with different numbers of outputs."
            raise ValueError(msg)

    def noise_path(self, noises: Any) -> NoisePath:
        """Solve for many noises at the price of one eigendecomposition, from what was seen so far.

        Parameters
        ----------
        noises : array (k,)
            Values of λ.

        Returns
        -------
        NoisePath
        """
        check_is_fitted(self, "statistics_")
        noises = np.atleast_1d(np.asarray(noises, dtype=np.float64))
        if noises.ndim != 1 or not np.all(np.isfinite(noises) & (noises >= 0)):
            msg = "noises must be finite numbers of at least zero."
            raise ValueError(msg)
        path = self._problem().path()
        solutions = [path.solve(noise) for noise in noises]
        return NoisePath(
            noises=noises,
            gcv=np.array([path.gcv(noise) for noise in noises]),
            degrees_of_freedom=np.array([path.degrees_of_freedom(noise) for noise in noises]),
            coefficients=np.array([self._frame.unwhiten(solution.weights) for solution in solutions]),
            intercepts=np.array([solution.intercept for solution in solutions]),
        )

    def _choose_frame(self, data: Data) -> Frame:
        random_state = check_random_state(self.random_state)
        kernel = resolve_kernel(self.kernel, data, random_state)
        basis = choose_basis(
            self.basis, data.rows, data.targets, kernel, int(self.n_basis),
            weights=data.weights, random_state=random_state, executor=make_threads(self),
        )  # fmt: skip
        return Frame.build(kernel, basis, data.rows.dtype)

    def _plain_is_safe(self, frame: Frame, data: Data) -> bool:
        # Rounding of K_mnK_nm is eps·n·k; whitening divides it by the smallest pivot; λ must drown it.
        if self.noise in {"gcv", 0}:
            return False
        total = data.rows.n_rows if data.weights is None else float(np.sum(data.weights))
        magnified = np.finfo(np.float64).eps * total * frame.lower[0, 0] ** 2 / frame.smallest_pivot
        return bool(magnified <= _PLAIN_ERROR * float(self.noise))

    def _summarise(self, data: Data, frame: Frame, *, whitened: bool) -> NormalStatistics:
        features = frame.features(whitened=whitened)
        return normal_statistics(data.rows, data.targets, features, weights=data.weights, executor=make_threads(self))

    def _whiten_sums(self) -> NormalStatistics:
        return self.statistics_ if self._whitened else self.statistics_.whitened(self._frame.lower)

    def _problem(self) -> RidgeProblem:
        sums = self._whiten_sums()
        return RidgeProblem.from_sums(
            gram=sums.gram, cross=sums.cross, moments=sums.moments, intercept=bool(self.intercept)
        )

    def _solve(self) -> tuple[KernelExpansion, float]:
        problem = self._problem()
        if self.noise == "gcv":
            path = problem.path()
            solution = path.solve(path.best_noise())
        else:
            solution = problem.solve(float(self.noise))
        frame = self._frame
        expansion = KernelExpansion(
            kernel=frame.kernel,
            points=frame.basis.points,
            coefficients=frame.unwhiten(solution.weights),
            intercept=solution.intercept,
            variance=_variance(frame.lower, solution, prior=self.variance == "dtc"),
        )
        return expansion, solution.noise

    def _current(self) -> tuple[KernelExpansion, float]:
        """The solution for what was seen so far, found when it is first asked for."""
        check_is_fitted(self, "statistics_")
        if self._solved is None:
            self._solved = self._solve()
        return self._solved

    def _new_rows(self, X: Any) -> Rows:
        check_is_fitted(self, "statistics_")
        return read_rows(self, X, reset=False)

    def _evaluate(self, X: Any) -> FloatArray:
        rows = self._new_rows(X)
        return self.expansion_.evaluate(rows, executor=make_threads(self))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "statistics_")

    @property
    def expansion_(self) -> KernelExpansion:
        """The model."""
        return self._current()[0]

    @property
    def noise_(self) -> float:
        """The noise in use: the one given, or the one that GCV chose."""
        return self._current()[1]

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its parameters as numbers."""
        check_is_fitted(self, "statistics_")
        return self._frame.kernel

    @property
    def basis_(self) -> FloatArray:
        """Basis points that are in use, shape (rank, d)."""
        check_is_fitted(self, "statistics_")
        return self._frame.basis.points

    @property
    def basis_index_(self) -> Any:
        """Row numbers of the basis points (in the first rows seen), or None if they were given."""
        check_is_fitted(self, "statistics_")
        return self._frame.basis.index

    @property
    def rank_(self) -> int:
        """Numerical rank of the basis: points that the others span to rounding are left out."""
        return len(self.basis_)

    @property
    def n_seen_(self) -> int:
        """Rows in the statistics."""
        check_is_fitted(self, "statistics_")
        return self.statistics_.n_rows


def _variance(lower: FloatArray, solution: RidgeSolution, *, prior: bool) -> Variance:
    # k(x,x) - |v|² + λ (v - v̄)ᵀ(A + λI)⁻¹(v - v̄) + λ/n
    return Variance(
        lower=lower,
        root=solution.root,
        offset=solution.root @ solution.mean,
        constant=solution.constant,
        prior=prior,
    )
