"""What all regressors share: outputs that may be one column, predictions with error bars, scikit-learn's tags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from mercer._typing import FloatArray
from mercer._validation import check_is_fitted, check_targets
from mercer.engine import ArrayTable, Rows
from mercer.estimators.shell import all_or_nothing, check_one_spread, make_executor, read_rows, read_table
from mercer.model import KernelExpansion, Regression

__all__ = ["KernelRegressor", "Targets"]


class Targets:
    """Checks targets and makes columns of them, for ``read_table``.

    Attributes
    ----------
    flat : bool
        Whether the last ones had one dimension.
    """

    flat: bool

    def __call__(self, y: Any, n_rows: int) -> tuple[FloatArray, None]:
        """Targets (n, p), float64."""
        targets = check_targets(y, n_rows=n_rows)
        self.flat = targets.ndim == 1
        return Regression(self.flat).columns(targets), None


class KernelRegressor(RegressorMixin):
    """A regressor that ends in an expansion; ``_flat`` tells whether y had one dimension."""

    _flat: bool

    @property
    def outputs_(self) -> Regression:
        """What the columns of the expansion mean."""
        check_is_fitted(self)
        return Regression(self._flat)

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the expansion's points, shape (m,) or (m, p)."""
        return self.outputs_.predict(self._mean_expansion().coefficients)

    @property
    def intercept_(self) -> Any:
        """The constant b, a number or an array (p,)."""
        flat, intercept = self.outputs_.flat, self._mean_expansion().intercept
        return float(intercept[0]) if flat else intercept

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean, and on request the standard deviation (n,) or the covariance (n, n) of the function.

        They are those of the function without noise, in units in which λ is the noise variance and the kernel's
        amplitude the prior variance. All outputs share them.
        """
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        check_one_spread(return_std, return_cov)
        mean = outputs.predict(self._evaluate_rows(rows))
        if return_cov:
            return mean, self._covariance(rows)
        return (mean, self._standard_deviations(rows)) if return_std else mean

    @contextmanager
    def _fitting(self, X: Any, y: Any, sample_weight: Any, *, go_on: bool = False) -> Iterator[ArrayTable]:
        """Check what ``fit`` is given, and make a table of it; if the work inside fails, nothing is changed.

        With ``go_on`` rows must look like those seen before, if there are any: an estimator that has seen rows has
        ``_n_outputs``.
        """
        self._validate_params()
        with all_or_nothing(self):
            targets, n_outputs = Targets(), getattr(self, "_n_outputs", None) if go_on else None
            table = read_table(self, X, y, sample_weight, encode=targets, reset=n_outputs is None)
            if n_outputs is not None:
                self._check_outputs(table, targets, n_outputs)
            yield table
            self._flat = targets.flat

    def _mean_expansion(self) -> KernelExpansion:
        """The model; without its variance, where that is computed on demand."""
        expansion: KernelExpansion = self.expansion_
        return expansion

    def _evaluate_rows(self, rows: Rows) -> FloatArray:
        return self._mean_expansion().evaluate(rows, executor=make_executor(self))

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        expansion: KernelExpansion = self.expansion_
        return np.sqrt(expansion.variances(rows, executor=make_executor(self)))

    def _covariance(self, rows: Rows) -> FloatArray:
        expansion: KernelExpansion = self.expansion_
        return expansion.covariance(rows, executor=make_executor(self))

    def _check_outputs(self, table: ArrayTable, targets: Targets, n_outputs: int) -> None:
        """Refuse later targets that do not look like the first."""
        if (table.n_outputs, targets.flat) != (n_outputs, self._flat):
            shape = "(n,)" if self._flat else f"(n, {n_outputs})"
            msg = f"y must have the shape {shape} of the first rows seen; it has {table.n_outputs} output(s)."
            raise ValueError(msg)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        return tags
