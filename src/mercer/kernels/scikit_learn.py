r"""scikit-learn's kernels as kernels of ours, plus a constant.

A kernel of scikit-learn may hold a constant, :math:`k(x, z) + c`. In an expansion it joins the intercept,
:math:`\sum_i w_i (k(x, z_i) + c) = \sum_i w_i k(x, z_i) + c\sum_i w_i`; an estimator is given a ``Constant`` for it. A
``KernelPlusConstant`` is what sums, products and powers of such kernels are computed with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import mul
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import KERNEL_PARAMS, pairwise_kernels

from mercer.kernels.algebra import Product, Sum
from mercer.kernels.base import Kernel
from mercer.kernels.constant import Constant
from mercer.kernels.function import Function
from mercer.kernels.gaussian import Gaussian
from mercer.kernels.linear import Linear
from mercer.kernels.matern import Matern
from mercer.kernels.periodic import Periodic
from mercer.kernels.polynomial import Polynomial
from mercer.kernels.rational_quadratic import RationalQuadratic
from mercer.kernels.white import White


@dataclass(frozen=True)
class KernelPlusConstant:
    """k(x, z) + constant, where k is zero if it is None."""

    kernel: Kernel | None
    constant: float = 0.0

    def __add__(self, other: KernelPlusConstant) -> KernelPlusConstant:
        return KernelPlusConstant(_sum(self.kernel, other.kernel), self.constant + other.constant)

    def __mul__(self, other: KernelPlusConstant) -> KernelPlusConstant:
        # (k + a)(l + b) = kl + bk + al + ab
        terms = (
            _product(self.kernel, other.kernel),
            _scaled(self.kernel, other.constant),
            _scaled(other.kernel, self.constant),
        )
        return KernelPlusConstant(reduce(_sum, terms), self.constant * other.constant)

    def power(self, exponent: float) -> KernelPlusConstant | None:
        """The kernel to that power; None where it is none of ours."""
        kernel, constant = self.kernel, self.constant
        if kernel is None:
            return KernelPlusConstant(None, float(constant**exponent))
        if exponent > 0 and constant == 0 and type(kernel) is Gaussian:
            scale = np.asarray(kernel.length_scale) / np.sqrt(exponent)
            return KernelPlusConstant(Gaussian(_plain(scale), float(kernel.amplitude**exponent)))
        if exponent < 1 or not float(exponent).is_integer():
            return None
        if constant >= 0 and type(kernel) is Linear:
            return KernelPlusConstant(Polynomial(int(exponent), scale=float(kernel.amplitude), offset=constant))
        return reduce(mul, [self] * int(exponent))


def is_process_kernel(kernel: Any) -> bool:
    """Whether it is a kernel of ``sklearn.gaussian_process``."""
    return isinstance(kernel, gp.Kernel)


def read_process_kernel(kernel: Any, n_features: int | None = None) -> Kernel:
    """A kernel of ``sklearn.gaussian_process.kernels`` as one of ours; ``ValueError`` if it has no counterpart."""
    found = process_kernel(kernel, owner=type(kernel).__name__, n_features=n_features)
    unknown = next(_functions(found.kernel), None)
    if unknown is not None:
        raise ValueError(
            f"kernel={unknown!r} of scikit-learn has no counterpart among mercer's kernels (for {n_features or 'any'} "
            "features): choose another one, or pass mercer.kernels.Function(kernel), which takes it as a function "
            "without gradients and does not know whether it is positive definite."
        )
    if found.constant == 0 and found.kernel is not None:
        return found.kernel
    constant = Constant(found.constant)
    constant.check()
    return constant if found.kernel is None else Sum(found.kernel, constant)


def _functions(kernel: Kernel | None) -> Iterator[Any]:
    """What could not be read of a kernel."""
    if isinstance(kernel, (Sum, Product)):
        yield from _functions(kernel.left)
        yield from _functions(kernel.right)
    elif isinstance(kernel, Function):
        yield kernel.function


def _sum(left: Kernel | None, right: Kernel | None) -> Kernel | None:
    if left is None or right is None:
        return right if left is None else left
    return Sum(left, right)


def _product(left: Kernel | None, right: Kernel | None) -> Kernel | None:
    if left is None or right is None:
        return None
    if type(left) is Gaussian and type(right) is Gaussian:
        # exp(-r²/2ℓ²) exp(-r²/2m²) is the Gaussian of 1/(1/ℓ² + 1/m²)
        precision = np.asarray(left.length_scale) ** -2.0 + np.asarray(right.length_scale) ** -2.0
        return Gaussian(_plain(precision**-0.5), left.amplitude * right.amplitude)
    return Product(left, right)


def _scaled(kernel: Kernel | None, factor: float) -> Kernel | None:
    return None if kernel is None or factor == 0 else kernel * factor


def _plain(scale: Any) -> Any:
    """One scale as a float, several as an array."""
    scale = np.array(scale, dtype=np.float64)
    return float(scale.item()) if scale.size == 1 else scale


def named_kernel(name: str, *, gamma: float, degree: float, coef0: float, owner: str) -> KernelPlusConstant | None:
    """The kernel ``rbf``, ``linear`` or ``poly`` with scikit-learn's parameters as numbers; None for other names.

    ``owner`` names the model in the message if the kernel is not positive definite.
    """
    is_polynomial, reason = name in ("poly", "polynomial"), ""
    if name == "sigmoid":
        reason = ", which is not positive definite."
    elif name == "precomputed":
        reason = ": its kernel is not known as a function. Fit it on the rows themselves."
    elif (name == "rbf" or is_polynomial) and not gamma >= 0:
        reason = f" with gamma={gamma!r}: with gamma below 0 it is not positive definite."
    elif is_polynomial and not coef0 >= 0:
        reason = f" with coef0={coef0!r}: with coef0 below 0 it is not positive definite."
    elif is_polynomial and not (degree >= 0 and float(degree).is_integer()):
        reason = f" with degree={degree!r}: only whole degrees are positive definite."
    if reason:
        raise ValueError(f"{owner} has kernel={name!r}{reason}")
    if name == "linear":
        return KernelPlusConstant(Linear())
    if name == "rbf":
        return KernelPlusConstant(None, 1.0) if gamma == 0 else KernelPlusConstant(Gaussian((2.0 * gamma) ** -0.5))
    if not is_polynomial:
        return None
    if degree == 0 or gamma == 0:
        return KernelPlusConstant(None, float(coef0**degree))
    return KernelPlusConstant(Polynomial(int(degree), scale=float(gamma), offset=float(coef0)))


def pairwise_kernel(kernel: Any, parameters: dict[str, Any], *, n_features: int, owner: str) -> KernelPlusConstant:
    """The kernel that ``pairwise_kernels`` computes for this metric and these parameters, where None means default."""
    if isinstance(kernel, gp.Kernel):
        return process_kernel(kernel, owner=owner, n_features=n_features)
    if not isinstance(kernel, str):  # a function of two rows
        return KernelPlusConstant(Function(partial(pairwise_kernels, metric=kernel, **parameters)))
    given = {name: value for name, value in parameters.items() if value is not None}
    gamma, degree, coef0 = given.get("gamma", 1.0 / n_features), given.get("degree", 3), given.get("coef0", 1)
    known = named_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0, owner=owner)
    if known is not None:
        return known
    allowed = {name: value for name, value in given.items() if name in KERNEL_PARAMS.get(kernel, ())}
    return KernelPlusConstant(Function(partial(pairwise_kernels, metric=kernel, **allowed)))


def process_kernel(kernel: Any, *, owner: str, n_features: int | None) -> KernelPlusConstant:
    """A kernel of ``sklearn.gaussian_process.kernels``; or ours, or a function of matrices.

    What has no counterpart among our kernels is kept as a function, without a gradient. ``ExpSineSquared`` has one for
    rows of one feature, which are assumed if their number is not given.
    """
    if isinstance(kernel, Kernel):
        return KernelPlusConstant(kernel)
    # By exact type, not isinstance: a user's subclass may compute something else.
    kind, known = type(kernel), None
    if kind in (gp.Sum, gp.Product):
        left, right = (process_kernel(each, owner=owner, n_features=n_features) for each in (kernel.k1, kernel.k2))
        known = left + right if kind is gp.Sum else left * right
    elif kind is gp.Exponentiation:
        known = process_kernel(kernel.kernel, owner=owner, n_features=n_features).power(float(kernel.exponent))
    elif kind is gp.WhiteKernel:
        known = KernelPlusConstant(White(float(kernel.noise_level)) if kernel.noise_level > 0 else None)
    elif kind is gp.ConstantKernel:
        known = KernelPlusConstant(None, float(kernel.constant_value))
    elif kind is gp.DotProduct:
        known = KernelPlusConstant(Linear(), float(kernel.sigma_0) ** 2)
    elif kind is gp.RBF or (kind is gp.Matern and kernel.nu == np.inf):
        known = KernelPlusConstant(Gaussian(_plain(kernel.length_scale)))
    elif kind is gp.Matern and kernel.nu in (0.5, 1.5, 2.5):
        known = KernelPlusConstant(Matern(_plain(kernel.length_scale), nu=float(kernel.nu)))
    elif kind is gp.RationalQuadratic:
        known = KernelPlusConstant(RationalQuadratic(float(kernel.length_scale), shape=float(kernel.alpha)))
    elif kind is gp.ExpSineSquared and n_features in (None, 1):
        known = KernelPlusConstant(Periodic(float(kernel.periodicity), float(kernel.length_scale)))
    elif kind is gp.PairwiseKernel and isinstance(kernel.metric, str):
        options = kernel.pairwise_kernels_kwargs or {}
        degree, coef0 = options.get("degree", 3), options.get("coef0", 1)
        known = named_kernel(kernel.metric, gamma=float(kernel.gamma), degree=degree, coef0=coef0, owner=owner)
    return known or KernelPlusConstant(Function(kernel))
