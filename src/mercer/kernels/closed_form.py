r"""Kernels as data: what a writer of another language (C, ONNX) needs to know of them.

A kernel that can be exported declares its closed form in a method ``closed_form``, beside its formula; one that does
not is refused by name. Every stationary kernel of mercer is one formula of the scaled distance
:math:`r = |(x - z)\cdot s|`,

.. math:: k(x, z) = A\,(1 - r/\theta)_+^{\nu}\,(c_0 + c_1 r + c_2 r^2)\,h(r),\qquad
          h(r)\in\{1,\ e^{-r^2/2},\ e^{-r},\ (1+r^2)^{-\alpha}\},

and every kernel of the inner product is :math:`A\,(a\,x^\top z + c)^p`. Sums and products join them.

=================  ============  =====  =========  =======================  ==============
kernel             s             θ      ν          c₀, c₁, c₂               h
=================  ============  =====  =========  =======================  ==============
Gaussian           1/ℓ           ∞                 1                        exp(-r²/2)
Matérn 1/2         1/ℓ           ∞                 1                        exp(-r)
Matérn 3/2         √3/ℓ          ∞                 1, 1                     exp(-r)
Matérn 5/2         √5/ℓ          ∞                 1, 1, 1/3                exp(-r)
RationalQuadratic  1/(√(2α)ℓ)    ∞                 1                        (1 + r²)^-α
CompactGaussian    1/ℓ           θ      exponent   1                        exp(-r²/2)
Wendland 0, 1, 2   1/ℓ           1      p          1; 1, p; 1, p, (p²-1)/3  1
=================  ============  =====  =========  =======================  ==============

For ``Periodic``, a Gaussian kernel on circles, :math:`r = |a\sin((x - z)\cdot s)|` with s = π/p and a = 2/ℓ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from mercer._typing import FloatArray

if TYPE_CHECKING:
    from mercer.kernels.base import Kernel


@dataclass(frozen=True)
class OfDistance:
    """amplitude · (1 - r/radius)₊^power · polynomial(r) · decay(r); without a radius the second factor is 1."""

    amplitude: float
    inverse_scale: FloatArray  # s, (d,)
    decay: Literal["none", "squared", "plain", "rational"]  # h: 1, exp(-r²/2), exp(-r), (1 + r²)^-shape
    polynomial: tuple[float, ...] = (1.0,)
    radius: float = np.inf
    power: float = 0.0
    shape: float = 0.0
    waves: FloatArray | None = None  # a, (d,): where given, differences (x - z)·s are replaced by a sin((x - z)·s)

    @property
    def period(self) -> FloatArray:
        """π/s: after such a difference, sin² repeats."""
        return np.asarray(np.pi / self.inverse_scale)

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

    ``TypeError`` if its own class does not declare one: an arbitrary Python function cannot be written in C, and a
    subclass may have changed the formula.
    """
    kernel.check(n_features)
    if "closed_form" not in vars(type(kernel)):
        name = type(kernel).__name__
        raise TypeError(f"the kernel {name} has no closed form for C or ONNX: give {name} a method `closed_form`.")
    return kernel.closed_form(n_features)


def is_product(power: float) -> bool:
    """Whether a power is a product of repeated squares, seven at most; others are left to the language's function."""
    return float(power).is_integer() and 0 <= power <= 127
