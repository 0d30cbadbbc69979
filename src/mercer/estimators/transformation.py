"""What all transformers share: components of rows, names of their columns, output as a data frame."""

from typing import Any

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from mercer._stored import Sometimes
from mercer._typing import FloatArray
from mercer._validation import check_is_fitted
from mercer.estimators.shell import make_executor, on_its_threads, read_rows
from mercer.model import Components


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """A transformer that ends in an ``expansion_``, of which each column is one."""

    _sklearn_output_config: Sometimes[dict[str, str]]  # of set_output

    @on_its_threads
    def transform(self, X: Any) -> FloatArray:
        """Components of the rows of X (n, d), shape (n, columns); in float32 for float32 rows."""
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        values: FloatArray = self.expansion_.evaluate(rows, executor=make_executor(self))
        return outputs.decision(values)

    @property
    def outputs_(self) -> Components:
        """What the columns of the expansion mean."""
        check_is_fitted(self)
        return Components()

    @property
    def _n_features_out(self) -> int:
        return len(self.expansion_.intercept)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
