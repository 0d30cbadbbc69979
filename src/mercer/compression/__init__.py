"""Smaller models after training: of ours, and of other libraries'."""

from mercer.compression.foreign import as_expansion
from mercer.compression.model_compression import CompressedPipeline, compress
from mercer.compression.models import (
    CompressedClassifier,
    CompressedOutlierDetector,
    CompressedRegressor,
    CompressedTransformer,
)

__all__ = [
    "CompressedClassifier",
    "CompressedOutlierDetector",
    "CompressedPipeline",
    "CompressedRegressor",
    "CompressedTransformer",
    "as_expansion",
    "compress",
]
