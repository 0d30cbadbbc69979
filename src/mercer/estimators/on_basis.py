"""What all estimators on a basis share: its parameters, its choice, and reported attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer._validation import Integral, Interval, check_is_fitted, check_random_state
from mercer.basis import choose_basis
from mercer.engine import ArrayTable
from mercer.estimators.shell import make_executor
from mercer.kernels import Kernel
from mercer.methods.frame import Frame, resolve_kernel, target_shift

__all__ = ["BASIS_CONSTRAINTS", "OnBasis", "check_mergeable", "check_same_frame", "check_same_outputs"]

BASIS_CONSTRAINTS: dict[str, Any] = {
    "kernel": "no_validation",  # checked, with a message of its own, by as_kernel
    "n_basis": [Interval(Integral, 1, None, closed="left")],
    "basis": "no_validation",  # checked, with a message of its own, by choose_basis
    "intercept": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [None, Integral],
    "verbose": ["verbose"],
}


class OnBasis(ABC):
    """An estimator with the parameters above and, once fitted, a ``_frame``."""

    kernel: Any
    n_basis: int
    basis: Any
    random_state: Any

    @property
    @abstractmethod
    def _frame(self) -> Frame:
        """The basis and the factor of its kernel matrix."""

    def _choose_frame(self, table: ArrayTable, dtype: np.dtype[Any], *, steady: bool = False) -> Frame:
        """Choose the basis; ``steady`` if differences k(x, x) - |v|² will be taken (see ``Frame.build``)."""
        random_state = check_random_state(self.random_state)
        kernel = resolve_kernel(self.kernel, table, random_state)
        targets = table.shifted(target_shift(table, intercept=getattr(self, "intercept", False))).targets
        basis = choose_basis(
            self.basis, table.rows, targets, kernel, int(self.n_basis),
            weights=table.weights, random_state=random_state, executor=make_executor(self),
        )  # fmt: skip
        return Frame.build(kernel, basis, dtype, steady=steady)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its parameters as numbers."""
        check_is_fitted(self)
        return self._frame.kernel

    @property
    def basis_(self) -> FloatArray:
        """Basis points that are in use, shape (rank, d)."""
        check_is_fitted(self)
        return self._frame.basis.points

    @property
    def basis_index_(self) -> Any:
        """Row numbers of the basis points (in the first rows seen), or None if they were given."""
        check_is_fitted(self)
        return self._frame.basis.index

    @property
    def basis_note_(self) -> str:
        """Why there are fewer basis points than were asked for, or an empty string."""
        check_is_fitted(self)
        return self._frame.basis.note

    @property
    def basis_residual_trace_(self) -> float | None:
        """Share of the trace of the kernel matrix that the basis leaves, if the strategy knows it."""
        check_is_fitted(self)
        return self._frame.basis.residual_trace

    @property
    def rank_(self) -> int:
        """Numerical rank of the basis: points that the others span to rounding are left out."""
        return len(self.basis_)


def check_mergeable(mine: Any, theirs: Any) -> None:
    """Refuse to merge with an estimator of another class, or one that is not fitted."""
    check_is_fitted(mine)
    if type(theirs) is not type(mine):
        msg = f"cannot merge a {type(theirs).__name__} into a {type(mine).__name__}."
        raise ValueError(msg)
    check_is_fitted(theirs)


def check_same_frame(mine: Frame, theirs: Frame) -> None:
    """Refuse to merge what was summed on different bases."""
    if not mine.kernel.equals(theirs.kernel):
        msg = (
            f"cannot merge models with different kernels, {mine.kernel} and {theirs.kernel}: "
            "fit the second with kernel=first.kernel_."
        )
        raise ValueError(msg)
    if not mine.same_as(theirs):
        msg = (
            "cannot merge models with different bases: fit the second with basis=first.basis_ "
            "(and rows of the same dtype)."
        )
        raise ValueError(msg)


def check_same_outputs(mine: int, theirs: int) -> None:
    """Refuse to merge models of different targets."""
    if mine != theirs:
        msg = f"cannot merge models with different numbers of outputs, {mine} and {theirs}."
        raise ValueError(msg)
