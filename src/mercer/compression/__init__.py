"""Smaller models after training: of ours, and of other libraries'."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mercer.compression.foreign import as_expansion
    from mercer.compression.model_compression import CompressedPipeline, compress
    from mercer.compression.models import CompressedClassifier, CompressedOutlierDetector, CompressedRegressor

# Loaded when they are first used: the readers of foreign models import much of scikit-learn.
_HOMES = {
    "CompressedClassifier": "mercer.compression.models",
    "CompressedOutlierDetector": "mercer.compression.models",
    "CompressedPipeline": "mercer.compression.model_compression",
    "CompressedRegressor": "mercer.compression.models",
    "as_expansion": "mercer.compression.foreign",
    "compress": "mercer.compression.model_compression",
}

__all__ = [
    "CompressedClassifier",
    "CompressedOutlierDetector",
    "CompressedPipeline",
    "CompressedRegressor",
    "as_expansion",
    "compress",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mercer.compression' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
