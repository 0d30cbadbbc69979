"""Pipelines whose last step is a compressed model."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from mercer._typing import FloatArray
from mercer.compression.foreign import read_model
from mercer.model import KernelExpansion, Outputs

__all__ = ["CompressedPipeline"]


class CompressedPipeline(Pipeline):
    """A pipeline that ends in a compressed model, and can be exported as one.

    It is scikit-learn's ``Pipeline`` in every respect. Scalers before the model are folded into ``expansion_``, so that
    exported code takes the rows as they are given to the pipeline.

    Attributes
    ----------
    expansion_ : KernelExpansion
        The pipeline as one function of its rows. Missing where a step cannot be folded into the kernel;
        ``as_expansion`` says why.
    outputs_, decision_rule_, distances_, relative_distance_
        Those of the last step; ``decision_rule_`` if it is a classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.svm import SVR
    >>> from mercer.compression import compress
    >>> X = np.random.default_rng(0).uniform(0, 1000, size=(200, 1))
    >>> model = make_pipeline(StandardScaler(), SVR()).fit(X, np.sin(X[:, 0] / 200))
    >>> small = compress(model, 8, random_state=0)
    >>> [name for name, step in small.steps]
    ['standardscaler', 'svr']
    >>> bool(np.allclose(small.expansion_.evaluate(X)[:, 0], small.predict(X)))
    True
    """

    @property
    def expansion_(self) -> KernelExpansion:
        """The pipeline as one expansion."""
        try:
            return read_model(self).expansion
        except NotFittedError:
            raise
        except (TypeError, ValueError) as error:  # as properties are missing: hasattr is False, the reason is told
            raise AttributeError(str(error)) from error

    @property
    def outputs_(self) -> Outputs:
        """What the columns of ``expansion_`` mean: the same as in the last step."""
        outputs: Outputs = self._last().outputs_
        return outputs

    @property
    def decision_rule_(self) -> str:
        """How a classifier decides."""
        return str(self._last().decision_rule_)

    @property
    def distances_(self) -> FloatArray:
        """Squared distances, as the last step has them."""
        distances: FloatArray = self._last().distances_
        return distances

    @property
    def relative_distance_(self) -> float:
        """The last of the distances, relative to the squared norm of the original function."""
        return float(self._last().relative_distance_)

    def _last(self) -> Any:
        return self.steps[-1][1]
