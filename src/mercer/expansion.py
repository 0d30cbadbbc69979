r"""The one model object.

Every regression and classification model ends as a kernel expansion, :math:`f(x) = \sum_i w_i k(x, z_i) + b`. They
differ in how the points are chosen and in which linear system gives the coefficients; what is done with a model
afterwards (evaluation, error bars, gradients, compression, storage) is written once, for this object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import check_columns, check_finite, check_kernel, check_lower, check_shape, need
from mercer._typing import FloatArray
from mercer.engine import Executor, Features, Rows, Threads, as_rows, gram_matrix, kernel_times, map_rows, tile_rows
from mercer.kernels import Kernel, Precomputed

__all__ = ["KernelExpansion", "Variance", "as_dtype"]

# float32 is used only where its rounding, magnified by the coefficients, stays below this share of the function's size.
_FLOAT32_ERROR = 1e-3
# The largest error of float32 evaluation in units of eps·|w|₂·max k: 1 to 3 were seen on data with 54 features.
_FLOAT32_FACTOR = 4.0
_FLOAT32_LARGEST = 1e30  # coefficients beyond it would overflow


@stored
@dataclass(frozen=True)
class Variance:
    r"""Error bars of an expansion.

    With :math:`v = L^{-1}k_m(x)`,

    .. math:: \operatorname{var} f(x) = k(x,x) - |v|^2 + |Rv - c|^2 + \text{constant}.

    The last terms are what the data leave unknown on the basis, and what an intercept adds; without ``prior`` the first
    two, the variance of what the basis cannot represent, are left out.

    Attributes
    ----------
    lower : array (m, m)
        L, Fortran-contiguous; only its lower triangle is read.
    root : array (q, m) or None
        R.
    offset : array (q,) or None
        c.
    constant : float
    prior : bool
    """

    lower: FloatArray
    root: FloatArray | None = None
    offset: FloatArray | None = None
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
    """f(x) = Σ w_i k(x, z_i) + b, with one or several outputs.

    Attributes
    ----------
    kernel : Kernel
    points : array (m, d)
    coefficients : array (m, p)
    intercept : array (p,)
    variance : Variance or None
        What the predictive variance needs, where the method gives one.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.expansion import KernelExpansion
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

    def evaluate(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Values at the rows of X, shape (n, p), in float32 for float32 rows.

        Cost: n·m kernel values; memory of a tile per thread. float32 rows are computed in float32 where that is safe:
        where large coefficients of alternating sign would magnify its rounding, float64 is used inside.
        """
        rows, executor = as_rows(X), executor or Threads()
        single = rows.dtype == np.float32 and self._float32_is_safe
        dtype = np.float32 if single else np.float64
        values = kernel_times(rows, self.kernel, self.points, self.coefficients, executor=executor, dtype=dtype)
        values += self.intercept
        return as_dtype(values, rows.dtype)

    def variances(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Predictive variance of the function (without noise) at the rows of X, shape (n,), float64.

        Cost: m² operations per row.
        """
        variance, rows = self._need_variance(), as_rows(X)
        result = np.empty(rows.n_rows)

        def fill(block: FloatArray, whitened: FloatArray, target: FloatArray) -> None:
            residual = variance.residual(whitened)
            target[...] = np.einsum("ij,ij->i", residual, residual) + variance.constant
            if variance.prior:
                target += self.kernel.diagonal(block) - np.einsum("ij,ij->i", whitened, whitened)

        self._walk(rows, variance, fill, result, executor or Threads())
        return np.maximum(result, 0.0)  # a variance of zero may come out negative by rounding

    def covariance(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Predictive covariance between all rows of X, shape (n, n), float64; it also stores n·m numbers."""
        variance, rows, executor = self._need_variance(), as_rows(X), executor or Threads()
        whitened = np.empty((rows.n_rows, len(self.points)))

        def fill(_block: FloatArray, tile: FloatArray, target: FloatArray) -> None:
            target[...] = tile

        self._walk(rows, variance, fill, whitened, executor)
        residual = variance.residual(whitened)
        result = residual @ residual.T + variance.constant
        if variance.prior:
            result += gram_matrix(rows, self.kernel, executor=executor) - whitened @ whitened.T
        return np.asarray((result + result.T) / 2)

    def gradient(self, X: Any, *, executor: Executor | None = None) -> FloatArray:
        """Gradient with respect to the input at the rows of X, shape (n, p, d)."""
        rows, executor = as_rows(X), executor or Threads()
        n_outputs = self.coefficients.shape[1]
        result = np.empty((rows.n_rows, n_outputs, rows.n_features))

        def prepare() -> Callable[[FloatArray, FloatArray], None]:
            def function(block: FloatArray, target: FloatArray) -> None:
                for output in range(n_outputs):
                    weights = np.repeat(self.coefficients[:, output, np.newaxis], len(block), axis=1)
                    # k is symmetric: the gradient by the row is the gradient by the second argument.
                    target[:, output] = self.kernel.points_gradient(self.points, block, weights)

            return function

        # Slopes, weights and what a kernel needs beside them: four tiles each.
        tile = tile_rows(4 * len(self.points), workers=executor.n_jobs)
        map_rows(rows, executor, tile=tile, prepare=prepare, out=result, name="gradient")
        return result

    def _walk(
        self,
        rows: Rows,
        variance: Variance,
        fill: Callable[[FloatArray, FloatArray, FloatArray], None],
        out: FloatArray,
        executor: Executor,
    ) -> None:
        """Call ``fill(tile of rows, their whitened features, target)`` on all tiles."""
        features = Features(self.kernel, self.points, lower=variance.lower)
        features.prepare()
        tile = tile_rows(features.width, workers=executor.n_jobs, fewest=64)

        def prepare() -> Callable[[FloatArray, FloatArray], None]:
            buffer = np.empty((tile, features.width))

            def function(block: FloatArray, target: FloatArray) -> None:
                fill(block, features.tile(block, buffer[: len(block)]), target)

            return function

        map_rows(rows, executor, tile=tile, prepare=prepare, out=out, name="variance")

    def _need_variance(self) -> Variance:
        if self.variance is None:
            msg = "this model has no predictive variance."
            raise ValueError(msg)
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
    if np.max(np.abs(values), initial=0.0) > np.finfo(dtype).max:
        return values
    return values.astype(dtype, copy=False)
