r"""Kernels as formulas: what a writer of another language needs to know of them.

Every stationary kernel of mercer is one formula of the scaled distance :math:`r = |(x - z)\cdot s|`,

.. math:: k(x, z) = A\,(1 - r/\theta)_+^{\nu}\,(c_0 + c_1 r + c_2 r^2)\,h(r),\qquad
          h(r)\in\{1,\ e^{-r^2/2},\ e^{-r}\},

and every kernel of the inner product is :math:`A\,(a\,x^\top z + c)^p`. Sums and products join them.

================  ============  =====  =========  =======================  ==============
kernel            s             θ      ν          c₀, c₁, c₂               h
================  ============  =====  =========  =======================  ==============
Gaussian          1/ℓ           ∞                 1                        exp(-r²/2)
Matérn 1/2        1/ℓ           ∞                 1                        exp(-r)
Matérn 3/2        √3/ℓ          ∞                 1, 1                     exp(-r)
Matérn 5/2        √5/ℓ          ∞                 1, 1, 1/3                exp(-r)
CompactGaussian   1/ℓ           θ      exponent   1                        exp(-r²/2)
Wendland 0, 1, 2  1/ℓ           1      p          1; 1, p; 1, p, (p²-1)/3  1
================  ============  =====  =========  =======================  ==============
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from mercer._typing import FloatArray
from mercer.kernels import CompactGaussian, Gaussian, Kernel, Linear, Matern, Polynomial, Product, Sum, Wendland

__all__ = ["LARGEST_PRODUCT", "Form", "OfDistance", "OfInnerProduct", "Pair", "closed_form", "is_product"]

# Whole powers up to here are written as products of repeated squares; others are left to the language's function.
LARGEST_PRODUCT = 127


@dataclass(frozen=True)
class OfDistance:
    """amplitude · (1 - r/radius)₊^power · polynomial(r) · decay(r); without a radius the second factor is 1."""

    amplitude: float
    inverse_scale: FloatArray  # s, (d,)
    decay: Literal["none", "squared", "plain"]  # h: 1, exp(-r²/2), exp(-r)
    polynomial: tuple[float, ...] = (1.0,)
    radius: float = np.inf
    power: float = 0.0

    @property
    def needs_root(self) -> bool:
        """Whether r is needed, and not r² alone."""
        return self.decay == "plain" or len(self.polynomial) > 1 or bool(np.isfinite(self.radius))


@dataclass(frozen=True)
class OfInnerProduct:
    """amplitude · (scale · xᵀz + offset)^degree."""

    amplitude: float
    scale: float = 1.0
    offset: float = 0.0
    degree: int = 1


@dataclass(frozen=True)
class Pair:
    """The sum or the product of two forms."""

    operation: Literal["sum", "product"]
    left: Form
    right: Form


Form: TypeAlias = OfDistance | OfInnerProduct | Pair


def closed_form(kernel: Kernel, n_features: int) -> Form:
    """The formula of a kernel on rows of that width.

    Raises
    ------
    TypeError
        If the kernel is not one of those above: an arbitrary Python function cannot be written in another language.
    """
    kernel.check(n_features)
    write = _FORMS.get(type(kernel))
    if write is None:
        msg = (
            f"a kernel of type {type(kernel).__name__} has no formula that can be exported. Those that have: "
            f"{', '.join(sorted(kind.__name__ for kind in _FORMS))}."
        )
        raise TypeError(msg)
    return write(kernel, n_features)


def is_product(power: float) -> bool:
    """Whether a power is to be written as products."""
    return float(power).is_integer() and 0 <= power <= LARGEST_PRODUCT


def _inverse_scale(kernel: Any, n_features: int, root: float = 1.0) -> FloatArray:
    if isinstance(kernel.length_scale, str):
        msg = f"length_scale={kernel.length_scale!r} is a number only for given rows: export a model that is fitted."
        raise ValueError(msg)  # noqa: TRY004  as for other values of this parameter
    return np.full(n_features, root / np.asarray(kernel.length_scale, dtype=np.float64))


def _gaussian(kernel: Any, n_features: int) -> Form:
    return OfDistance(float(kernel.amplitude), _inverse_scale(kernel, n_features), "squared")


def _matern(kernel: Any, n_features: int) -> Form:
    polynomial = {0.5: (1.0,), 1.5: (1.0, 1.0), 2.5: (1.0, 1.0, 1.0 / 3.0)}[float(kernel.nu)]
    inverse_scale = _inverse_scale(kernel, n_features, float(np.sqrt(2.0 * kernel.nu)))
    return OfDistance(float(kernel.amplitude), inverse_scale, "plain", polynomial)


def _compact_gaussian(kernel: Any, n_features: int) -> Form:
    inverse_scale = _inverse_scale(kernel, n_features)
    exponent = float(kernel.for_dimension(n_features).exponent)
    return OfDistance(float(kernel.amplitude), inverse_scale, "squared", radius=kernel.radius, power=exponent)


def _wendland(kernel: Any, n_features: int) -> Form:
    # q = ⌊dimension/2⌋ + smoothness + 1, and the power of the first factor is p = q + smoothness
    p = kernel.for_dimension(n_features).dimension // 2 + 2 * kernel.smoothness + 1
    polynomial = (1.0, float(p), (p**2 - 1) / 3)[: kernel.smoothness + 1]
    inverse_scale = _inverse_scale(kernel, n_features)
    return OfDistance(float(kernel.amplitude), inverse_scale, "none", polynomial, radius=1.0, power=float(p))


def _linear(kernel: Any, _n_features: int) -> Form:
    return OfInnerProduct(float(kernel.amplitude))


def _polynomial(kernel: Any, _n_features: int) -> Form:
    return OfInnerProduct(float(kernel.amplitude), float(kernel.scale), float(kernel.offset), int(kernel.degree))


def _sum(kernel: Any, n_features: int) -> Form:
    return Pair("sum", closed_form(kernel.left, n_features), closed_form(kernel.right, n_features))


def _product(kernel: Any, n_features: int) -> Form:
    return Pair("product", closed_form(kernel.left, n_features), closed_form(kernel.right, n_features))


# By the exact type: a subclass may have changed the formula.
_FORMS: dict[type[Kernel], Callable[[Any, int], Form]] = {
    CompactGaussian: _compact_gaussian,
    Gaussian: _gaussian,
    Linear: _linear,
    Matern: _matern,
    Polynomial: _polynomial,
    Product: _product,
    Sum: _sum,
    Wendland: _wendland,
}
