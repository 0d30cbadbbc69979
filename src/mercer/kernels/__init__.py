"""Kernels: positive definite functions that fill tiles.

``Gaussian``, ``Matern``, ``Linear``, ``Polynomial``, any ``Function``, and sums and products of them;
``CompactGaussian`` and ``Wendland`` are zero beyond a radius.
"""

from mercer.kernels.algebra import Product, Sum
from mercer.kernels.base import Kernel, Section
from mercer.kernels.compact import Compact, CompactGaussian, Wendland
from mercer.kernels.dot_product import Linear, Polynomial
from mercer.kernels.function import Function
from mercer.kernels.named import as_kernel
from mercer.kernels.precomputed import Precomputed
from mercer.kernels.stationary import Gaussian, Matern

__all__ = [
    "Compact",
    "CompactGaussian",
    "Function",
    "Gaussian",
    "Kernel",
    "Linear",
    "Matern",
    "Polynomial",
    "Precomputed",
    "Product",
    "Section",
    "Sum",
    "Wendland",
    "as_kernel",
]
