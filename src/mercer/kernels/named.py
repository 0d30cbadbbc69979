"""Kernels by name."""

from typing import Any

from mercer.kernels.base import Kernel
from mercer.kernels.function import Function
from mercer.kernels.stationary import Stationary

__all__ = ["as_kernel", "kernel_names"]


def kernel_names() -> dict[str, type[Kernel]]:
    """The public kernels that have a name, by it."""
    from mercer.kernels import KERNELS

    return {kernel.name: kernel for kernel in KERNELS if kernel.name is not None}


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
    named = kernel_names()
    if isinstance(kernel, str) and kernel in named:
        return named[kernel](length_scale="median") if issubclass(named[kernel], Stationary) else named[kernel]()
    if callable(kernel) and not isinstance(kernel, type):
        return Function(kernel)
    names = ", ".join(repr(name) for name in named)
    msg = f"kernel must be one of {names}, a kernel object, or a function of two matrices; got {kernel!r}."
    raise ValueError(msg)
