"""What all estimators on a basis share: its parameters, its choice, and reported attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, Self

import numpy as np

from mercer._stored.checks import check_estimator
from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Interval, check_is_fitted, check_random_state, parameters
from mercer.basis import choose_basis
from mercer.engine import ArrayTable
from mercer.estimators.shell import all_or_nothing, make_executor, snapshot
from mercer.kernels import Kernel
from mercer.methods.frame import Frame
from mercer.methods.inputs import resolve_kernel, target_shift

__all__ = [
    "BASIS_CONSTRAINTS",
    "OnBasis",
    "SummedOnBasis",
    "check_mergeable",
    "check_same_frame",
    "check_same_outputs",
]

BASIS_CONSTRAINTS: dict[str, Any] = {
    "kernel": "no_validation",  # checked, with a message of its own, by as_kernel
    "n_basis": [Interval(Integral, 1, None, closed="left")],
    "basis": "no_validation",  # checked, with a message of its own, by choose_basis
    "intercept": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [None, Integral],
    "verbose": ["verbose"],
}


@parameters
class OnBasis(ABC):
    """An estimator with these parameters and, once fitted, a ``_frame``."""

    kernel: Any = field(default="gaussian", kw_only=False)
    n_basis: int = 500
    basis: Any = "uniform"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

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


class SummedOnBasis(OnBasis):
    """An estimator on a basis whose state is one summary, of sums over the rows seen, which is replaced as a whole."""

    _summary: Any

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_summary")

    @property
    def _frame(self) -> Frame:
        frame: Frame = self._summary.frame
        return frame

    @property
    def _n_outputs(self) -> int | None:
        return len(self._summary.target_shift) if hasattr(self, "_summary") else None

    def check_stored(self) -> None:
        """Refuse outputs and features that are not those of the summary."""
        points, n_outputs = self._frame.basis.points, len(self._summary.target_shift)
        check_estimator(self, n_outputs=n_outputs, n_features=points.shape[1], flat=getattr(self, "_flat", False))

    def merge(self, other: Self) -> Self:
        """Add the rows that another model has seen; exact, as if all had been fitted here.

        Parameters
        ----------
        other : estimator of the same class
            Fitted with the same kernel and basis: fit the first with any basis, the others with
            ``basis=first.basis_`` and ``kernel=first.kernel_``.

        Returns
        -------
        self
        """
        self._validate_params()  # type: ignore[attr-defined]  # of BaseEstimator
        check_mergeable(self, other)
        other = snapshot(other)
        with all_or_nothing(self):
            self._check_mergeable(other)
            self._add_summary(other)
        return self

    def _check_mergeable(self, other: Self) -> None:
        check_same_frame(self._frame, other._frame)
        check_same_outputs(len(self._summary.target_shift), len(other._summary.target_shift))

    @abstractmethod
    def _add_summary(self, other: Self) -> None:
        """Take in the other's summary, which is on the same basis."""


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
