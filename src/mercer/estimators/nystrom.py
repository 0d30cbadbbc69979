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
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from mercer._typing import AnyArray, FloatArray, RandomState
from mercer._validation import (
    Integral,
    Interval,
    Real,
    StrOptions,
    check_is_fitted,
    check_random_state,
)
from mercer.basis import Basis, choose_basis
from mercer.engine import Features, NormalStatistics, Rows, Threads, normal_statistics
from mercer.estimators.classification import OneVsRest, decide, flat_decision
from mercer.estimators.shell import (
    Data,
    all_or_nothing,
    encode_targets,
    make_threads,
    read_data,
    read_rows,
    resolve_kernel,
)
from mercer.expansion import KernelExpansion, Variance
from mercer.kernels import Kernel
from mercer.solvers.dense import pivoted_cholesky
from mercer.solvers.ridge import RidgeProblem, RidgeSolution

__all__ = ["NoisePath", "NystromClassifier", "NystromRegressor"]

# A basis point counts as a combination of the others below this pivot, relative to the first one: a few roundings of the
# kernel matrix in float64, of the tiles in float32.
_PIVOT_ROUNDINGS = {np.dtype(np.float64): 4.0, np.dtype(np.float32): 8.0}
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


@dataclass(frozen=True)
class _Frame:
    """The basis and its factor: what statistics of different rows must share to be added."""

    kernel: Kernel
    basis: Basis
    lower: FloatArray  # (m, m)
    smallest_pivot: float
    dtype: np.dtype[Any]

    @classmethod
    def build(cls, kernel: Kernel, basis: Basis, dtype: np.dtype[Any]) -> _Frame:
        """Factor K_mm = LLᵀ, greatest pivot first, and drop the points that the others span to rounding."""
        rounding = _PIVOT_ROUNDINGS[dtype] * np.finfo(dtype).eps
        tolerance = max(rounding, len(basis.points) * np.finfo(np.float64).eps)
        factor = pivoted_cholesky(kernel(basis.points), tolerance=tolerance)
        index = None if basis.index is None else basis.index[factor.order]
        kept = Basis(points=np.ascontiguousarray(basis.points[factor.order]), index=index)
        return cls(kernel, kept, factor.lower, factor.smallest_pivot, dtype)

    def features(self, *, whitened: bool) -> Features:
        return Features(self.kernel, self.basis.points, lower=self.lower if whitened else None, dtype=self.dtype)

    def unwhiten(self, weights: FloatArray) -> FloatArray:
        """w = L⁻ᵀu."""
        return np.asarray(solve_triangular(self.lower, weights, lower=True, trans="T", check_finite=False))


class _Nystrom(BaseEstimator, ABC):  # type: ignore[misc]
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
    _frame: _Frame
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

    def _choose_frame(self, data: Data) -> _Frame:
        random_state = check_random_state(self.random_state)
        kernel = resolve_kernel(self.kernel, data, random_state)
        basis = choose_basis(
            self.basis, data.rows, data.targets, kernel, int(self.n_basis),
            weights=data.weights, random_state=random_state, executor=make_threads(self),
        )  # fmt: skip
        return _Frame.build(kernel, basis, data.rows.dtype)

    def _plain_is_safe(self, frame: _Frame, data: Data) -> bool:
        # Rounding of K_mnK_nm is eps·n·k; whitening divides it by the smallest pivot; λ must drown it.
        if self.noise == "gcv" or self.noise == 0:
            return False
        total = data.rows.n_rows if data.weights is None else float(np.sum(data.weights))
        magnified = np.finfo(np.float64).eps * total * frame.lower[0, 0] ** 2 / frame.smallest_pivot
        return bool(magnified <= _PLAIN_ERROR * float(self.noise))

    def _summarise(self, data: Data, frame: _Frame, *, whitened: bool) -> NormalStatistics:
        features = frame.features(whitened=whitened)
        return normal_statistics(
            data.rows, data.targets, features, weights=data.weights, executor=make_threads(self)
        )

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
        return self.expansion_.evaluate(self._new_rows(X), executor=make_threads(self))

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


class NystromRegressor(RegressorMixin, _Nystrom):  # type: ignore[misc]
    r"""Kernel regression on a basis of m points, for any number of rows.

    Minimises :math:`\sum_i\omega_i(y_i - f(x_i) - b)^2 + \lambda|f|^2` over :math:`f = \sum_j w_j k(\cdot, z_j)` (subset of
    representers, Nyström ridge, deterministic training conditional of a Gaussian process).

    Time n·m² and memory m² per thread, however many rows; one pass over the data.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        A name ("gaussian", "matern", "linear", "polynomial"), a kernel of ``mercer.kernels``, or a function of two
        matrices. By name, length scales are the median distance of the rows.
    n_basis : int, default=500
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen: a name ("uniform"), a strategy of ``mercer.basis``, or the points themselves.
        ``partial_fit`` chooses them from the first rows it is given.
    noise : float or "gcv", default=0.1
        λ. "gcv" chooses it by generalised cross-validation on the whole path, from one eigendecomposition.
    intercept : bool, default=False
        Whether to add a constant b that is not penalised.
    variance : {"dtc", "sor"}, default="dtc"
        Form of the predictive variance. "dtc" grows to the prior's far from the basis; "sor" leaves out what the basis
        cannot represent and shrinks to zero there, which misleads: it is here for comparison.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    basis_ : array (rank_, d)
        Basis points in use, the most informative first.
    basis_index_ : array (rank_,) or None
        Their row numbers, where they are rows.
    rank_ : int
        Numerical rank of the basis; points that the others span to rounding (duplicates) are left out.
    coefficients_ : array (rank_,) or (rank_, p)
    intercept_ : float or array (p,)
    noise_ : float
        λ in use.
    n_seen_ : int
        Rows in the statistics.
    statistics_ : NormalStatistics
        What was kept of the rows.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    ExactRegressor : All rows as basis.

    Notes
    -----
    The system is solved in whitened form, :math:`\lambda I + L^{-1}K_{mn}K_{nm}L^{-\top}` with :math:`K_{mm} = LL^\top`. Where
    rounding of :math:`K_{mn}K_{nm}` could matter beside λ, the features are whitened tile by tile before they are summed,
    which takes about twice as long and loses half as many digits.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(10_000, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=10_000)
    >>> model = NystromRegressor(n_basis=50, noise="gcv", random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.5], [3.0]], return_std=True)
    >>> mean.round(2)
    array([1.  , 0.14])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p); weight 2 is the same as the row twice."""
        self._validate_params()
        with all_or_nothing(self):
            self._fit(read_data(self, X, y, sample_weight, encode=encode_targets, reset=True))
            self._flat = np.ndim(y) == 1
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to what was seen; the basis is that of the first call, and no row is kept."""
        self._validate_params()
        with all_or_nothing(self):
            first = not hasattr(self, "statistics_")
            data = read_data(self, X, y, sample_weight, encode=encode_targets, reset=first)
            if first:
                self._flat = np.ndim(y) == 1
            self._check_outputs(y, data)
            self._partial_fit(data)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take rows out of what was seen, exactly; they must have been seen with these targets and weights."""
        self._validate_params()
        check_is_fitted(self, "statistics_")
        with all_or_nothing(self):
            data = read_data(self, X, y, sample_weight, encode=encode_targets, reset=False)
            self._check_outputs(y, data)
            self._forget(data)
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean, and on request the standard deviation (n,) or the covariance (n, n) of the function.

        They are those of the function without noise, in units in which λ is the noise variance and the kernel's
        amplitude the prior variance. All outputs share them.
        """
        rows, threads = self._new_rows(X), make_threads(self)
        mean = self.expansion_.evaluate(rows, executor=threads)
        mean = mean[:, 0] if self._flat else mean
        if return_cov:
            return mean, self.expansion_.covariance(rows, executor=threads)
        if return_std:
            return mean, np.sqrt(self.expansion_.variances(rows, executor=threads))
        return mean

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the basis points."""
        return self.expansion_.coefficients[:, 0] if self._flat else self.expansion_.coefficients

    @property
    def intercept_(self) -> Any:
        """The constant b."""
        return float(self.expansion_.intercept[0]) if self._flat else self.expansion_.intercept

    def _check_outputs(self, y: Any, data: Data) -> None:
        if hasattr(self, "statistics_"):
            expected = self.statistics_.moments.shape[0] - 1
            if data.targets.shape[1] != expected or (np.ndim(y) == 1) != self._flat:
                msg = f"y has {data.targets.shape[1]} output(s) in {np.ndim(y)} dimension(s); the model was fitted with {expected}."
                raise ValueError(msg)


class NystromClassifier(ClassifierMixin, _Nystrom):  # type: ignore[misc]
    """Kernel classification on a basis of m points: least squares on ±1, one class against the rest.

    Time n·m² and memory m² per thread, however many rows; one pass over the data.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        See ``NystromRegressor``, as for the other parameters.
    n_basis : int, default=500
        Number of basis points.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen.
    noise : float or "gcv", default=0.1
        λ, or how to choose it.
    intercept : bool, default=False
        Whether to add a constant that is not penalised.
    variance : {"dtc", "sor"}, default="dtc"
        Form of the variance of ``expansion_``.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : array (classes,)
    kernel_, basis_, basis_index_, rank_, noise_, n_seen_, statistics_, expansion_
        As in ``NystromRegressor``; one output for two classes, one per class for more.

    See Also
    --------
    ExactClassifier : All rows as basis.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mercer import NystromClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NystromClassifier(n_basis=300, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.94
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and labels y (n,); weight 2 is the same as the row twice."""
        self._validate_params()
        with all_or_nothing(self):
            encode = OneVsRest()
            self._fit(read_data(self, X, y, sample_weight, encode=encode, reset=True))
            self.classes_ = encode.classes
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to what was seen; the first call must name all ``classes``, unless its labels show them all."""
        self._validate_params()
        with all_or_nothing(self):
            first = not hasattr(self, "statistics_")
            encode = self._encoder(classes, first=first)
            data = read_data(self, X, y, sample_weight, encode=encode, reset=first)
            self.classes_ = encode.classes
            self._partial_fit(data)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take rows out of what was seen, exactly; they must have been seen with these labels and weights."""
        self._validate_params()
        check_is_fitted(self, "statistics_")
        with all_or_nothing(self):
            encode = OneVsRest(self.classes_)
            self._forget(read_data(self, X, y, sample_weight, encode=encode, reset=False))
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Values of the functions, shape (n,) for two classes (positive for the second), else (n, classes)."""
        return flat_decision(self._evaluate(X))

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each row."""
        return decide(self._evaluate(X), self.classes_)

    def _encoder(self, classes: Any, *, first: bool) -> OneVsRest:
        if first:
            return OneVsRest(classes)
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            msg = f"classes={classes!r} differ from those of the first call, {self.classes_.tolist()}."
            raise ValueError(msg)
        return OneVsRest(self.classes_)

    def _check_mergeable(self, other: Self) -> None:
        if not np.array_equal(self.classes_, other.classes_):
            msg = f"cannot merge models with different classes: {self.classes_.tolist()}, {other.classes_.tolist()}."
            raise ValueError(msg)
        super()._check_mergeable(other)


def _variance(lower: FloatArray, solution: RidgeSolution, *, prior: bool) -> Variance:
    # k(x,x) - |v|² + λ (v - v̄)ᵀ(A + λI)⁻¹(v - v̄) + λ/n
    return Variance(
        lower=lower,
        root=solution.root,
        offset=solution.root @ solution.mean,
        constant=solution.constant,
        prior=prior,
    )
