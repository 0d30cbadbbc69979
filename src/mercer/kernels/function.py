"""Any Python function as a kernel."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from mercer._typing import FloatArray
from mercer.kernels.base import Kernel, Section, check_positive, tile_buffer


class Function(Kernel):
    """A kernel given by a function of two matrices.

    Parameters
    ----------
    function : callable
        ``function(rows, points)``, with arrays of shape (n, d) and (m, d), returns the kernel matrix (n, m). It must be
        positive definite, and safe to call from several threads at once. Kernels of
        ``sklearn.gaussian_process.kernels`` are such functions.
    amplitude : float, default=1.0
        A factor on what the function returns.

    Examples
    --------
    >>> from sklearn.metrics.pairwise import laplacian_kernel
    >>> from mercer.kernels import Function
    >>> Function(laplacian_kernel)([[0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    def __init__(self, function: Callable[[FloatArray, FloatArray], FloatArray], amplitude: float = 1.0) -> None:
        self.function = function
        self.amplitude = amplitude

    def check(self, n_features: int | None = None) -> None:
        """Raise ``TypeError`` if the function cannot be called."""
        if not callable(self.function):
            raise TypeError(f"function must be callable as function(rows, points), got {self.function!r}.")
        check_positive(self.amplitude, "amplitude")

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Check the parameters; the function itself is shared, not copied."""
        self.check()
        return type(self)(self.function, self.amplitude)

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> Section:
        """Prepare k(·, points) for many tiles of rows."""
        self.check()
        return _FunctionSection(self, points, dtype=np.dtype(dtype))


class _FunctionSection(Section):
    def __init__(self, kernel: Function, points: FloatArray, *, dtype: np.dtype[Any]) -> None:
        self._function, self._amplitude = kernel.function, dtype.type(kernel.amplitude)
        self._points = np.array(points, dtype=dtype)  # a copy: the caller's points may change
        self.n_points, self.dtype = len(points), dtype

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        out = tile_buffer(self, len(rows), out)
        values = np.asarray(self._function(np.asarray(rows, dtype=self.dtype), self._points))
        if values.shape != out.shape:
            raise ValueError(f"the kernel function must return an array of shape {out.shape}, got {values.shape}.")
        np.multiply(values, self._amplitude, out=out, casting="same_kind")
        return out
