"""The linear kernel."""

from typing import Any, ClassVar

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import Gradients, Kernel, Section, check_positive, tile_buffer
from mercer.kernels.closed_form import OfInnerProduct


@stored
class Linear(Kernel):
    r"""Linear kernel, :math:`A\,x^\top z`.

    Parameters
    ----------
    amplitude : float, default=1.0
        A, the prior variance of each coefficient of the linear function.

    Examples
    --------
    >>> from mercer.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    name: ClassVar[str | None] = "linear"
    log_parameters: ClassVar[tuple[str, ...]] = ("amplitude",)

    def __init__(self, amplitude: float = 1.0) -> None:
        self.amplitude = amplitude

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for an amplitude that is not positive."""
        check_positive(self.amplitude, "amplitude")

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> Section:
        """Prepare k(·, points) for many tiles of rows."""
        self.check()
        return InnerProducts(points, factor=float(self.amplitude), dtype=np.dtype(dtype))

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """A |x|²."""
        rows = np.asarray(rows, dtype=np.float64)
        return np.asarray(float(self.amplitude) * np.einsum("ij,ij->i", rows, rows))

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> Gradients:
        """Contract ∂k/∂z = A x and ∂k/∂log A = k; see ``Kernel``."""
        by_points = np.asarray(self.amplitude * (weights.T @ np.asarray(rows, dtype=np.float64)))
        return by_points, {"amplitude": np.asarray(np.sum(weights * self(rows, points)))} if parameters else {}

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """∂k/∂log A = k."""
        return {"amplitude": np.asarray(weights @ self.diagonal(rows))}

    def closed_form(self, n_features: int) -> OfInnerProduct:
        """A xᵀz."""
        return OfInnerProduct(float(self.amplitude))


class InnerProducts(Section):
    """factor · xᵀz."""

    def __init__(self, points: FloatArray, *, factor: float, dtype: np.dtype[Any]) -> None:
        self.n_points, self.dtype = len(points), dtype
        self._points = np.ascontiguousarray((factor * np.asarray(points, dtype=np.float64)).astype(dtype).T)

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Multiples of the inner products of rows and points."""
        out = tile_buffer(self, len(rows), out)
        return np.matmul(np.ascontiguousarray(rows, dtype=self.dtype), self._points, out=out)
