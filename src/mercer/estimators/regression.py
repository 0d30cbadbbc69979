"""What all regressors share: outputs that may be one column, and scikit-learn's tags."""

from __future__ import annotations

from typing import Any

from sklearn.base import RegressorMixin

from mercer._typing import FloatArray
from mercer._validation import check_is_fitted
from mercer.estimators.shell import Data

__all__ = ["KernelRegressor"]


class KernelRegressor(RegressorMixin):
    """A regressor that ends in an expansion; ``_flat`` tells whether y had one dimension."""

    _flat: bool

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the expansion's points, shape (m,) or (m, p)."""
        check_is_fitted(self)
        coefficients: FloatArray = self.expansion_.coefficients
        return coefficients[:, 0] if self._flat else coefficients

    @property
    def intercept_(self) -> Any:
        """The constant b, a number or an array (p,)."""
        check_is_fitted(self)
        intercept: FloatArray = self.expansion_.intercept
        return float(intercept[0]) if self._flat else intercept

    def _check_outputs(self, data: Data, n_outputs: int) -> None:
        """Refuse later targets that do not look like the first."""
        if (data.targets.shape[1], data.flat) != (n_outputs, self._flat):
            shape = "(n,)" if self._flat else f"(n, {n_outputs})"
            msg = f"y must have the shape {shape} of the first rows seen; it has {data.targets.shape[1]} output(s)."
            raise ValueError(msg)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
