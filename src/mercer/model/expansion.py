r"""The one model object.

Every regression and classification model ends as a kernel expansion, :math:`f(x) = \sum_i w_i k(x, z_i) + b`. They
differ in how the points are chosen and in which linear system gives the coefficients; what is done with a model
afterwards (evaluation, error bars, gradients, compression, storage) is written once, for this object.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_columns, check_finite, check_kernel, check_lower, check_shape, need
from mercer._typing import AnyArray, FloatArray
from mercer.engine import (
    ArrayTable,
    Evaluation,
    Executor,
    Features,
    OnFeatures,
    RowPass,
    Threads,
    Tile,
    as_rows,
    feature_matrix,
    gram_matrix,
    kernel_times,
)
from mercer.kernels import Kernel, Precomputed
from mercer.model.gradients import GradientProduct

# float32 is used only where its rounding, magnified by the coefficients, stays below this share of the function's size.
_FLOAT32_ERROR = 1e-3
# The largest error of float32 evaluation in units of eps·|w|₂·max k: 1 to 3 were seen on data with 54 features.
_FLOAT32_FACTOR = 4.0
_FLOAT32_LARGEST = 1e30  # coefficients beyond it would overflow
# Points of so many numbers stay bound to the kernel between calls, which takes some 24 MB; with more of them, what one
# row costs is not the binding.
_LARGEST_KEPT = 1 << 20

Work = TypeVar("Work")


@stored
@dataclass(frozen=True)
class Variance:
    r"""Error bars of an expansion.

    With :math:`v = L^{-1}k_m(x)`,

    .. math:: \operatorname{var} f(x) = k(x,x) - |v|^2 + |Rv - c|^2 + \text{constant}.

    The last terms are what the data leave unknown on the basis, and what an intercept adds; without ``prior`` the first
    two, the variance of what the basis cannot represent, are left out.
    """

    lower: FloatArray  # L, (m, m), Fortran-contiguous; only its lower triangle is read
    root: FloatArray | None = None  # R, (q, m)
    offset: FloatArray | None = None  # c, (q,)
    constant: float = 0.0
    prior: bool = True

    def check_stored(self) -> None:
        """Refuse parts of different sizes."""
        m, root = len(self.lower), self.root
        check_lower(self.lower, m, "the factor of a variance")
        need(root is None or (root.ndim == 2 and root.shape[1] == m), "the root of a variance does not fit its factor.")
        if self.offset is not None:
            need(root is not None, "a variance has an offset and no root.")
            check_shape(self.offset, (0 if root is None else len(root),), "the offset of a variance")
        for name in ("root", "offset", "constant"):
            if getattr(self, name) is not None:
                check_finite(np.asarray(getattr(self, name)), f"{name} of a variance")

    def residual(self, whitened: FloatArray) -> FloatArray:
        """Rv - c of each row of whitened features, shape (T, q)."""
        if self.root is None:
            return np.zeros((len(whitened), 0))
        projected = whitened @ self.root.T
        return projected if self.offset is None else projected - self.offset


@stored(alone=True)
@dataclass(frozen=True)
class KernelExpansion:
    """f(x) = Σ w_i k(x, z_i) + b, with one or several outputs; its arrays are read-only.

    Attributes
    ----------
    kernel : Kernel
    points : array (m, d)
    coefficients : array (m, p)
    intercept : array (p,)
    variance : Variance or None
        What the predictive variance needs, where the method gives one.
    scale : array (p,) or None
        σ: what standard deviations are multiplied by to have the units of the targets; None for 1.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.model import KernelExpansion
    >>> from mercer.kernels import Gaussian
    >>> bump = KernelExpansion(Gaussian(), np.zeros((1, 2)), np.ones((1, 1)), np.zeros(1))
    >>> bump.evaluate(np.array([[0.0, 0.0], [1.0, 0.0]])).round(4)
    array([[1.    ],
           [0.6065]])
    """

    kernel: Kernel
    points: FloatArray
    coefficients: FloatArray
    intercept: FloatArray
    variance: Variance | None = None
    scale: Sometimes[FloatArray | None] = None

    def __post_init__(self) -> None:
        # What is kept between calls would not notice a change in place: that is an error instead.
        for name in ("points", "coefficients", "intercept"):
            array = np.asarray(getattr(self, name)).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def check_stored(self) -> None:
        """Refuse points, coefficients and a variance that do not fit each other."""
        need(self.points.ndim == 2, "the points of an expansion are no table.")
        m, d = self.points.shape
        check_kernel(self.kernel, d)
        check_columns(self.coefficients, m, "coefficients of an expansion")
        check_shape(self.intercept, (self.coefficients.shape[1],), "the intercept of an expansion")
        for name in ("points", "coefficients", "intercept"):
            check_finite(getattr(self, name), f"{name} of an expansion")
        need(self.variance is None or len(self.variance.lower) == m, "the variance of an expansion has other points.")
        if self.scale is not None:
            check_shape(self.scale, self.intercept.shape, "the scale of an expansion")
            check_finite(self.scale, "the scale of an expansion")
            need(np.all(self.scale >= 0), "the scale of an expansion is negative.")

    def evaluate(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Values at the rows of X, shape (n, p), in float32 for float32 rows.

        Cost: n·m kernel values; memory of a tile per thread. float32 rows are computed in float32 where that is safe:
        where large coefficients of alternating sign would magnify its rounding, float64 is used inside.
        """
        rows, executor = as_rows(X), executor or Threads()
        kind = np.float32 if rows.dtype == np.float32 and self._float32_is_safe else np.float64
        work = self._keep(kind, Evaluation(self.kernel, self.points, self.coefficients, kind))
        values: FloatArray = executor.map(work, ArrayTable(rows))
        values += self.intercept
        return as_dtype(values, rows.dtype)

    def variances(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Predictive variance of the function (without noise) at the rows of X, shape (n,), in units of σ²; float64.

        Cost: m² operations per row.
        """
        work = _Variances(self._whitened_features(), self._need_variance())
        return (executor or Threads()).map(work, ArrayTable(as_rows(X)))

    def covariance(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Covariance between all rows of X, shape (n, n), in units of σ², float64; it also stores n·m numbers."""
        variance, rows, executor = self._need_variance(), as_rows(X), executor or Threads()
        whitened = feature_matrix(rows, self._whitened_features(), executor=executor)
        residual = variance.residual(whitened)
        result = residual @ residual.T + variance.constant
        if variance.prior:
            result += gram_matrix(rows, self.kernel, executor=executor) - whitened @ whitened.T
        return np.asarray((result + result.T) / 2)

    @property
    def scales(self) -> FloatArray:
        """σ of each output, shape (p,)."""
        return np.ones(len(self.intercept)) if self.scale is None else self.scale

    def gradient(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Gradient with respect to the input at the rows of X, shape (n, p, d)."""
        work = _InputGradient(self.kernel, self.points, self.coefficients)
        return (executor or Threads()).map(work, ArrayTable(as_rows(X)))

    def gradient_product(
        self, X: Any, sample_weight: FloatArray | None = None, *, executor: Executor | None = None
    ) -> FloatArray:
        """Mean of ∇f∇fᵀ over the rows of X, summed over the outputs, shape (d, d), float64.

        Cost: n·m kernel slopes and n·m·d·p multiplications; memory of a tile per thread, whatever p.
        """
        work = GradientProduct(self.kernel, self.points, self.coefficients)
        return (executor or Threads()).reduce(work, ArrayTable(as_rows(X), weights=sample_weight))

    def _whitened_features(self) -> Features:
        return self._keep("whitened", Features(self.kernel, self.points, lower=self._need_variance().lower))

    def _keep(self, name: Any, work: Work) -> Work:
        """The object of that name from the last call, whose points are bound to the kernel; else this one.

        Both say the same, so it does not matter which of two threads came first.
        """
        if self.points.size > _LARGEST_KEPT:
            return work
        kept: Work = self._kept.setdefault(name, work)
        return kept

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept for the next call."""
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    def _need_variance(self) -> Variance:
        if self.variance is None:
            raise ValueError("this model has no predictive variance.")
        return self.variance

    @cached_property
    def _float32_is_safe(self) -> bool:
        if isinstance(self.kernel, Precomputed):  # kernel values of the points among themselves are not at hand
            return False
        if np.max(np.abs(self.coefficients), initial=0.0) > _FLOAT32_LARGEST:
            return False
        sample = self.points[:: max(1, len(self.points) // 256)]
        values = kernel_times(as_rows(sample), self.kernel, self.points, self.coefficients, executor=Threads(1))
        largest_kernel = np.max(np.abs(self.kernel(sample[:64])), initial=0.0)
        norms = np.linalg.norm(self.coefficients, axis=0)
        rounding = _FLOAT32_FACTOR * np.finfo(np.float32).eps * largest_kernel * norms
        return bool(np.all(rounding <= _FLOAT32_ERROR * np.max(np.abs(values), axis=0, initial=0.0)))


def as_dtype(values: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
    """Values in the dtype of the rows they belong to, or as they are if float32 cannot hold them."""
    if values.dtype == dtype or np.max(np.abs(values), initial=0.0) > np.finfo(dtype).max:
        return values
    return values.astype(dtype, copy=False)


@dataclass(frozen=True)
class _Variances(OnFeatures, RowPass):
    """k(x,x) - |v|² + |Rv - c|² + constant, with whitened features v."""

    variance: Variance

    name, fewest, shape = "variance", 64, ()

    def apply(self, tile: Tile, out: AnyArray) -> None:
        whitened = self.phi(tile)
        residual = self.variance.residual(whitened)
        out[...] = np.einsum("ij,ij->i", residual, residual) + self.variance.constant
        if self.variance.prior:
            out += self.features.kernel.diagonal(tile.rows) - np.einsum("ij,ij->i", whitened, whitened)
        np.maximum(out, 0.0, out=out)  # a variance of zero may come out negative by rounding


@dataclass(frozen=True)
class _InputGradient(RowPass):
    """∂f/∂x of every output."""

    kernel: Kernel
    points: FloatArray
    coefficients: FloatArray

    name = "gradient"

    @property
    def width(self) -> int:
        """Slopes, weights and what a kernel needs beside them: four tiles."""
        return 4 * len(self.points)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.coefficients.shape[1], self.points.shape[1]

    def apply(self, tile: Tile, out: AnyArray) -> None:
        for output in range(out.shape[1]):
            weights = np.repeat(self.coefficients[:, output, np.newaxis], tile.n_rows, axis=1)
            # k is symmetric: the gradient by the row is the gradient by the second argument.
            out[:, output] = self.kernel.points_gradient(self.points, tile.rows, weights)
