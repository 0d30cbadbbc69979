"""Kernels: positive definite functions that fill tiles.

``Gaussian``, ``Matern``, ``RationalQuadratic``, ``Periodic``, ``Linear``, ``Polynomial``, ``Constant``, any
``Function``, and sums and products of them; ``CompactGaussian`` and ``Wendland`` are zero beyond a radius; ``White`` is
noise. Each stands in a file of its own; a new one is made of
``Stationary``, ``Formula`` and ``elementwise``.
"""

from inspect import isabstract, isclass

from mercer.kernels.algebra import Product, Sum
from mercer.kernels.base import Kernel, Section, as_kernel
from mercer.kernels.compact import Compact
from mercer.kernels.compact_gaussian import CompactGaussian
from mercer.kernels.constant import Constant
from mercer.kernels.function import Function
from mercer.kernels.gaussian import Gaussian
from mercer.kernels.linear import Linear
from mercer.kernels.matern import Matern
from mercer.kernels.metric import Metric
from mercer.kernels.periodic import Periodic
from mercer.kernels.polynomial import Polynomial
from mercer.kernels.precomputed import Precomputed
from mercer.kernels.profiles import elementwise
from mercer.kernels.rational_quadratic import RationalQuadratic
from mercer.kernels.stationary import Formula, Stationary
from mercer.kernels.wendland import Wendland
from mercer.kernels.white import White

__all__ = [
    "KERNELS",
    "Compact",
    "CompactGaussian",
    "Constant",
    "Formula",
    "Function",
    "Gaussian",
    "Kernel",
    "Linear",
    "Matern",
    "Metric",
    "Periodic",
    "Polynomial",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Section",
    "Stationary",
    "Sum",
    "Wendland",
    "White",
    "as_kernel",
    "elementwise",
]

# All that can be made: names, archives and the tests of all kernels follow the list above.
_MEMBERS = (globals().get(name) for name in __all__)
KERNELS: tuple[type[Kernel], ...] = tuple(
    member for member in _MEMBERS if isclass(member) and issubclass(member, Kernel) and not isabstract(member)
)
