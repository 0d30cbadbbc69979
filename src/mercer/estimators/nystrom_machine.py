"""Regression and classification on a basis (the subset of representers): what both share."""

from __future__ import annotations

from abc import ABC
from dataclasses import field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator

from mercer._validation import Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayTable, NormalStatistics
from mercer.estimators.on_basis import BASIS_CONSTRAINTS, SummedOnBasis
from mercer.estimators.shell import make_executor
from mercer.methods.nystrom import NoisePath, Settings, Summary
from mercer.model import KernelExpansion

__all__ = ["NystromMachine"]


@parameters
class NystromMachine(SummedOnBasis, BaseEstimator, ABC):
    """Parameters and fitted state; all of the state is one ``Summary``, replaced as a whole."""

    noise: float | Literal["gcv"] = 0.1
    intercept: bool = False
    variance: Literal["dtc", "sor"] = "dtc"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"gcv"})],
        "variance": [StrOptions({"dtc", "sor"})],
    }

    _summary: Summary = field(init=False)

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

    def _add_summary(self, other: Self) -> None:
        self._summary = replace(self._summary.merged(other._summary), settings=self._settings())

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
