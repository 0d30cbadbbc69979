"""The polynomial kernel."""

from numbers import Real
from typing import Any, ClassVar

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import Gradients, Kernel, Section, check_positive, tile_buffer
from mercer.kernels.closed_form import OfInnerProduct


@stored
class Polynomial(Kernel):
    r"""Polynomial kernel, :math:`A\,(s\,x^\top z + c)^p`.

    It depends on where zero is: features that lie far from it, at 100 spreads and a degree of 3 already, leave no
    digits to their differences. Estimators warn of that; subtract the means.

    Parameters
    ----------
    degree : int, default=3
        p ≥ 1.
    scale : float, default=1.0
        s > 0.
    offset : float, default=1.0
        c ≥ 0; with c = 0 the kernel is homogeneous.
    amplitude : float, default=1.0
        A > 0.

    Examples
    --------
    >>> from mercer.kernels import Polynomial
    >>> Polynomial(degree=2)([[1.0, 2.0]], [[3.0, 4.0]])
    array([[144.]])
    """

    name: ClassVar[str | None] = "polynomial"

    def __init__(self, degree: int = 3, scale: float = 1.0, offset: float = 1.0, amplitude: float = 1.0) -> None:
        self.degree = degree
        self.scale = scale
        self.offset = offset
        self.amplitude = amplitude

    @property
    def log_parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """An offset of zero has no logarithm and stays as it is."""
        return ("scale", "offset", "amplitude") if self.offset > 0 else ("scale", "amplitude")

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for parameters outside their range."""
        check_positive(self.amplitude, "amplitude")
        check_positive(self.scale, "scale")
        if isinstance(self.degree, bool) or not (
            isinstance(self.degree, Real) and self.degree >= 1 and float(self.degree).is_integer()
        ):
            raise ValueError(f"degree must be a whole number of at least 1, got {self.degree!r}.")
        if not (isinstance(self.offset, Real) and 0 <= self.offset < np.inf):
            msg = f"offset must be a finite number of at least 0 (else the kernel is indefinite), got {self.offset!r}."
            raise ValueError(msg)

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> Section:
        """Prepare k(·, points) for many tiles of rows."""
        self.check()
        return _PolynomialSection(self, points, np.dtype(dtype))

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """A (s|x|² + c)^p."""
        return np.asarray(self.amplitude * self._base(_squares(rows)) ** self.degree)

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> Gradients:
        """Contract ∂k/∂z = A p s (s x·z + c)^(p-1) x, and by log scale, log offset, log amplitude; see ``Kernel``."""
        rows = np.asarray(rows, dtype=np.float64)
        inner = rows @ np.asarray(points, dtype=np.float64).T
        slopes = weights * self._slopes(inner)
        by_points = np.asarray(self.scale * slopes.T @ rows)
        return by_points, self._contracted(inner, weights, slopes) if parameters else {}

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """As above, with x·x in place of x·z."""
        inner = _squares(rows)
        return self._contracted(inner, weights, weights * self._slopes(inner))

    def _contracted(self, inner: FloatArray, weights: FloatArray, slopes: FloatArray) -> dict[str, FloatArray]:
        gradient: dict[str, FloatArray] = {
            "scale": np.asarray(self.scale * np.sum(slopes * inner)),
            "offset": np.asarray(self.offset * np.sum(slopes)),
            "amplitude": np.asarray(self.amplitude * np.sum(weights * self._base(inner) ** self.degree)),
        }
        return {name: gradient[name] for name in self.log_parameters}

    def _base(self, inner: FloatArray) -> FloatArray:
        return self.scale * inner + self.offset

    def _slopes(self, inner: FloatArray) -> FloatArray:
        # A p (s x·z + c)^(p-1)
        return np.asarray(self.amplitude * self.degree * self._base(inner) ** (self.degree - 1))

    def closed_form(self, n_features: int) -> OfInnerProduct:
        """A (s xᵀz + c)^p."""
        return OfInnerProduct(float(self.amplitude), float(self.scale), float(self.offset), int(self.degree))


class _PolynomialSection(Section):
    def __init__(self, kernel: Polynomial, points: FloatArray, dtype: np.dtype[Any]) -> None:
        self.n_points, self.dtype = len(points), dtype
        self._offset, self._degree = dtype.type(kernel.offset), int(kernel.degree)
        self._amplitude = dtype.type(kernel.amplitude)
        self._is_linear = self._degree == 1 and self._offset == 0
        factor = float(kernel.scale) * (float(kernel.amplitude) if self._is_linear else 1.0)
        self._points = np.ascontiguousarray((factor * np.asarray(points, dtype=np.float64)).astype(dtype).T)

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        out = tile_buffer(self, len(rows), out)
        np.matmul(np.ascontiguousarray(rows, dtype=self.dtype), self._points, out=out)
        if self._is_linear:
            return out
        out += self._offset
        with np.errstate(over="ignore"):  # who uses the values refuses infinities
            np.power(out, self._degree, out=out)
            out *= self._amplitude
        out[np.abs(out) < np.finfo(self.dtype).tiny] = 0.0  # BLAS is slow with subnormal numbers
        return out


def _squares(rows: FloatArray) -> FloatArray:
    rows = np.asarray(rows, dtype=np.float64)
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
