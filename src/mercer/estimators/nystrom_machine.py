"""Regression and classification on a basis (the subset of representers): what both share."""

from __future__ import annotations

from abc import ABC
from dataclasses import field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator

from mercer._stored.checks import check_estimator
from mercer._typing import RandomState
from mercer._validation import Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayTable, NormalStatistics
from mercer.estimators.on_basis import BASIS_CONSTRAINTS, OnBasis, check_mergeable, check_same_frame, check_same_outputs
from mercer.estimators.shell import all_or_nothing, make_executor, snapshot
from mercer.methods.frame import Frame
from mercer.methods.nystrom import NoisePath, Settings, Summary
from mercer.model import KernelExpansion

__all__ = ["NystromMachine"]


@parameters
class NystromMachine(OnBasis, BaseEstimator, ABC):
    """Parameters and fitted state; all of the state is one ``Summary``, replaced as a whole."""

    kernel: Any = field(default="gaussian", kw_only=False)
    n_basis: int = 500
    basis: Any = "uniform"
    noise: float | Literal["gcv"] = 0.1
    intercept: bool = False
    variance: Literal["dtc", "sor"] = "dtc"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"gcv"})],
        "variance": [StrOptions({"dtc", "sor"})],
    }

    _summary: Summary = field(init=False)

    def check_stored(self) -> None:
        """Refuse outputs and features that are not those of the summary."""
        points, n_outputs = self._frame.basis.points, len(self._summary.target_shift)
        check_estimator(self, n_outputs=n_outputs, n_features=points.shape[1], flat=getattr(self, "_flat", False))

    def _fit(self, table: ArrayTable) -> None:
        summary = Summary.start(self._choose_frame(table, table.dtype), table, self._settings(), once=True)
        self._summary = summary.plus(table, make_executor(self))
        _ = self._summary.solved  # what cannot be solved is refused here, not when it is first used

    def _partial_fit(self, table: ArrayTable) -> None:
        if hasattr(self, "_summary"):
            summary = replace(self._summary, settings=self._settings())
        else:
            frame = self._choose_frame(table, table.dtype)
            summary = Summary.start(frame, table, self._settings(), once=False)
        self._summary = summary.plus(table, make_executor(self))

    def _forget(self, table: ArrayTable) -> None:
        summary = replace(self._summary, settings=self._settings())
        self._summary = summary.minus(table, make_executor(self))

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
        self._validate_params()
        check_mergeable(self, other)
        other = snapshot(other)
        with all_or_nothing(self):
            self._check_mergeable(other)
            self._summary = replace(self._summary.merged(other._summary), settings=self._settings())
        return self

    def _check_mergeable(self, other: Self) -> None:
        check_same_frame(self._frame, other._frame)
        check_same_outputs(len(self._summary.target_shift), len(other._summary.target_shift))

    def noise_path(self, noises: Any) -> NoisePath:
        """Solve for many noises at the price of one eigendecomposition, from what was seen so far.

        Parameters
        ----------
        noises : array (k,)
            Values of λ.

        Returns
        -------
        NoisePath
        """
        check_is_fitted(self)
        noises = np.atleast_1d(np.asarray(noises, dtype=np.float64))
        if noises.ndim != 1 or not np.all(np.isfinite(noises) & (noises >= 0)):
            msg = "noises must be finite numbers of at least zero."
            raise ValueError(msg)
        return self._summary.path(noises)

    def _settings(self) -> Settings:
        noise: Any = self.noise if isinstance(self.noise, str) else float(self.noise)
        return Settings(noise=noise, intercept=bool(self.intercept), prior=self.variance == "dtc")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_summary")

    @property
    def _frame(self) -> Frame:
        return self._summary.frame

    @property
    def statistics_(self) -> NormalStatistics:
        """What was kept of the rows."""
        check_is_fitted(self)
        return self._summary.statistics

    @property
    def expansion_(self) -> KernelExpansion:
        """The model, solved for on first access."""
        check_is_fitted(self)
        return self._summary.solved[0]

    @property
    def noise_(self) -> float:
        """The noise in use: the one given, or the one that GCV chose."""
        check_is_fitted(self)
        return self._summary.solved[1]

    @property
    def n_seen_(self) -> int:
        """Rows in the statistics."""
        return self.statistics_.n_rows

    @property
    def _whitened(self) -> bool:
        return self.statistics_.is_whitened
