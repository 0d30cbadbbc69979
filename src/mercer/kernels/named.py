"""Kernels by name."""

from collections.abc import Callable
from typing import Any

from mercer.kernels.base import Kernel
from mercer.kernels.dot_product import Linear, Polynomial
from mercer.kernels.function import Function
from mercer.kernels.stationary import Gaussian, Matern

__all__ = ["KERNEL_NAMES", "as_kernel"]

_NAMED: dict[str, Callable[[], Kernel]] = {
    "gaussian": lambda: Gaussian(length_scale="median"),
    "matern": lambda: Matern(length_scale="median"),
    "linear": Linear,
    "polynomial": Polynomial,
}
KERNEL_NAMES = tuple(_NAMED)


def as_kernel(kernel: Any) -> Kernel:
    """Return the kernel object for a name, a kernel, or a function of two matrices.

    By name the Gaussian and Matérn kernels take their length scale from the data (the median distance).

    Examples
    --------
    >>> from mercer.kernels import as_kernel
    >>> as_kernel("gaussian")
    Gaussian(length_scale='median')
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in _NAMED:
        return _NAMED[kernel]()
    if callable(kernel) and not isinstance(kernel, type):
        return Function(kernel)
    names = ", ".join(repr(name) for name in KERNEL_NAMES)
    msg = f"kernel must be one of {names}, a kernel object, or a function of two matrices; got {kernel!r}."
    raise ValueError(msg)
