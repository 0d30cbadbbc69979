"""Sums and products of kernels."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import Gradients, Kernel, Section
from mercer.kernels.closed_form import Pair, closed_form
from mercer.kernels.profiles import CUTOFF

_Values = Callable[[Kernel], FloatArray]


class _Pair(Kernel):
    """Two kernels, ``left`` and ``right``; their parameters nest under these names."""

    _operation: ClassVar[np.ufunc]

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left = left
        self.right = right

    def check(self, n_features: int | None = None) -> None:
        """Check both kernels."""
        self.left.check(n_features)
        self.right.check(n_features)

    @property
    def needs_data(self) -> bool:
        """Whether one of the two needs data."""
        return self.left.needs_data or self.right.needs_data

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Resolve both kernels."""
        return type(self)(self.left.resolve(sample, weights), self.right.resolve(sample, weights))

    def get_log_parameters(self) -> dict[str, FloatArray]:
        """Logarithms of both kernels' parameters, named ``left__…`` and ``right__…``."""
        return _named(self.left.get_log_parameters(), self.right.get_log_parameters())

    @property
    def same_diagonal(self) -> bool:  # type: ignore[override]
        """Whether both diagonals are constant."""
        return self.left.same_diagonal and self.right.same_diagonal

    def __call__(self, rows: FloatArray, points: FloatArray | None = None, out: FloatArray | None = None) -> FloatArray:
        """As of every kernel; noise is on the diagonal of k(rows), and not between rows and points."""
        if self.without_noise() is self:
            return super().__call__(rows, points, out)
        return np.asarray(self._operation(self.left(rows, points), self.right(rows, points), out=out))

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> Section:
        """Prepare k(·, points) for many tiles of rows."""
        return _PairSection(self.left.bind(points, dtype), self.right.bind(points, dtype), self._operation)

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """Sum or product of the diagonals."""
        return np.asarray(self._operation(self.left.diagonal(rows), self.right.diagonal(rows)))

    @abstractmethod
    def _shares(self, weights: FloatArray, values: _Values) -> tuple[FloatArray, FloatArray]:
        """By what a gradient of each kernel is weighted, given a function that computes the values of a kernel."""

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> Gradients:
        """Of a sum, those of both kernels; of a product, each is weighted by the other kernel (product rule)."""
        left, right = self._shares(weights, lambda kernel: kernel(rows, points))
        by_points, by_left = self.left.gradients(rows, points, left, parameters=parameters)
        more, by_right = self.right.gradients(rows, points, right, parameters=parameters)
        return by_points + more, _named(by_left, by_right)

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Those of both kernels, weighted in the same way."""
        left, right = self._shares(weights, lambda kernel: kernel.diagonal(rows))
        return _named(self.left.diagonal_gradient(rows, left), self.right.diagonal_gradient(rows, right))


@stored
class Sum(_Pair):
    """Sum of two kernels, written ``left + right``.

    Examples
    --------
    >>> from mercer.kernels import Gaussian, Linear
    >>> (Gaussian() + Linear())([[1.0]], [[1.0], [2.0]]).round(4)
    array([[2.    , 2.6065]])
    """

    _operation = np.add

    @property
    def noise_level(self) -> float:
        """Sum of both."""
        return self.left.noise_level + self.right.noise_level

    def without_noise(self) -> Kernel | None:
        """The sum of what remains of both."""
        left, right = self.left.without_noise(), self.right.without_noise()
        if left is self.left and right is self.right:
            return self
        return Sum(left, right) if left is not None and right is not None else left or right

    def _shares(self, weights: FloatArray, values: _Values) -> tuple[FloatArray, FloatArray]:
        return weights, weights

    def closed_form(self, n_features: int) -> Pair:
        """The sum of both."""
        return Pair("sum", closed_form(self.left, n_features), closed_form(self.right, n_features))

    def _scaled(self, factor: float) -> Kernel:
        return Sum(self.left * factor, self.right * factor)


@stored
class Product(_Pair):
    """Product of two kernels, written ``left * right``.

    Examples
    --------
    >>> from mercer.kernels import Gaussian, Linear
    >>> (Gaussian() * Linear())([[1.0]], [[1.0], [2.0]]).round(4)
    array([[1.    , 1.2131]])
    """

    _operation = np.multiply

    @property
    def noise_level(self) -> float:
        """a l(x, x) + b (k(x, x) + a), of the product (k + a δ)(l + b δ)."""
        left, right = self.left.noise_level, self.right.noise_level
        total = 0.0
        if left > 0:
            total += left * _constant(self.right.without_noise())
        return total + right * (_constant(self.left.without_noise()) + left) if right > 0 else total

    def without_noise(self) -> Kernel | None:
        """The product of what remains of both."""
        left, right = self.left.without_noise(), self.right.without_noise()
        if left is self.left and right is self.right:
            return self
        return None if left is None or right is None else Product(left, right)

    def _shares(self, weights: FloatArray, values: _Values) -> tuple[FloatArray, FloatArray]:
        return weights * values(self.right), weights * values(self.left)  # the product rule

    def closed_form(self, n_features: int) -> Pair:
        """The product of both."""
        return Pair("product", closed_form(self.left, n_features), closed_form(self.right, n_features))

    def _scaled(self, factor: float) -> Kernel:
        return Product(self.left * factor, clone(self.right))


class _PairSection(Section):
    def __init__(self, left: Section, right: Section, operation: np.ufunc) -> None:
        self._left, self._right, self._operation = left, right, operation
        self.n_points, self.dtype = left.n_points, left.dtype

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        out = self._left.tile(rows, out)
        self._operation(out, self._right.tile(rows), out=out)
        if self._operation is np.multiply:  # a product of two small values may be subnormal
            out[np.abs(out) < CUTOFF[self.dtype]] = 0.0
        return out


def _constant(kernel: Kernel | None) -> float:
    """k(x, x), which is the same for all x; zero of nothing."""
    if kernel is None:
        return 0.0
    if not kernel.same_diagonal:
        raise ValueError(
            f"White times {kernel!r} is noise that differs from row to row: pass it as sample_weight, which divides "
            "the noise of a row."
        )
    return float(kernel.diagonal(np.zeros((1, 1)))[0])


def _named(left: dict[str, FloatArray], right: dict[str, FloatArray]) -> dict[str, FloatArray]:
    both = {"left": left, "right": right}
    return {f"{side}__{name}": value for side, values in both.items() for name, value in values.items()}
