"""mercer: kernel machines on data of any size.

Public names are loaded when they are first used, so that importing the package is quick.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mercer import basis, compression, datasets, kernels, persistence
    from mercer._warmup import warmup
    from mercer.compression import as_expansion, compress
    from mercer.engine.checkpoint import checkpoint
    from mercer.engine.clusters import local_cluster, on
    from mercer.estimators.auto import AutoClassifier, AutoRegressor
    from mercer.estimators.committee_regressor import CommitteeRegressor
    from mercer.estimators.compact import CompactClassifier, CompactRegressor
    from mercer.estimators.cross_validate_path import cross_validate_path
    from mercer.estimators.exact import ExactClassifier, ExactRegressor
    from mercer.estimators.hebbian_pca import HebbianPCA
    from mercer.estimators.learn_metric import learn_metric
    from mercer.estimators.norma_classifier import NormaClassifier
    from mercer.estimators.norma_novelty_detector import NormaNoveltyDetector
    from mercer.estimators.norma_regressor import NormaRegressor
    from mercer.estimators.nystrom import NystromClassifier, NystromRegressor
    from mercer.estimators.nystrom_features import NystromFeatures
    from mercer.estimators.nystrom_pca import NystromPCA
    from mercer.estimators.nystrom_svm import NystromSVC, NystromSVR
    from mercer.estimators.online_classifier import OnlineClassifier
    from mercer.estimators.online_regressor import OnlineRegressor
    from mercer.estimators.pseudo_input_regressor import PseudoInputRegressor
    from mercer.estimators.reduced_rank_regressor import ReducedRankRegressor
    from mercer.estimators.tune_cutoff import tune_cutoff
    from mercer.files.scan import scan
    from mercer.files.writing import write_predictions
    from mercer.model import KernelExpansion
    from mercer.persistence.archive import load, save

_HOMES = {
    "AutoClassifier": "mercer.estimators.auto",
    "AutoRegressor": "mercer.estimators.auto",
    "CommitteeRegressor": "mercer.estimators.committee_regressor",
    "CompactClassifier": "mercer.estimators.compact",
    "CompactRegressor": "mercer.estimators.compact",
    "ExactClassifier": "mercer.estimators.exact",
    "ExactRegressor": "mercer.estimators.exact",
    "HebbianPCA": "mercer.estimators.hebbian_pca",
    "KernelExpansion": "mercer.model",
    "NormaClassifier": "mercer.estimators.norma_classifier",
    "NormaNoveltyDetector": "mercer.estimators.norma_novelty_detector",
    "NormaRegressor": "mercer.estimators.norma_regressor",
    "NystromClassifier": "mercer.estimators.nystrom",
    "NystromFeatures": "mercer.estimators.nystrom_features",
    "NystromPCA": "mercer.estimators.nystrom_pca",
    "NystromRegressor": "mercer.estimators.nystrom",
    "NystromSVC": "mercer.estimators.nystrom_svm",
    "NystromSVR": "mercer.estimators.nystrom_svm",
    "OnlineClassifier": "mercer.estimators.online_classifier",
    "OnlineRegressor": "mercer.estimators.online_regressor",
    "PseudoInputRegressor": "mercer.estimators.pseudo_input_regressor",
    "ReducedRankRegressor": "mercer.estimators.reduced_rank_regressor",
    "as_expansion": "mercer.compression",
    "checkpoint": "mercer.engine.checkpoint",
    "compress": "mercer.compression",
    "cross_validate_path": "mercer.estimators.cross_validate_path",
    "learn_metric": "mercer.estimators.learn_metric",
    "load": "mercer.persistence.archive",
    "local_cluster": "mercer.engine.clusters",
    "on": "mercer.engine.clusters",
    "save": "mercer.persistence.archive",
    "scan": "mercer.files",
    "tune_cutoff": "mercer.estimators.tune_cutoff",
    "warmup": "mercer._warmup",
    "write_predictions": "mercer.files",
}
_MODULES = ("basis", "compression", "datasets", "kernels", "persistence")

__all__ = [
    "AutoClassifier",
    "AutoRegressor",
    "CommitteeRegressor",
    "CompactClassifier",
    "CompactRegressor",
    "ExactClassifier",
    "ExactRegressor",
    "HebbianPCA",
    "KernelExpansion",
    "NormaClassifier",
    "NormaNoveltyDetector",
    "NormaRegressor",
    "NystromClassifier",
    "NystromFeatures",
    "NystromPCA",
    "NystromRegressor",
    "NystromSVC",
    "NystromSVR",
    "OnlineClassifier",
    "OnlineRegressor",
    "PseudoInputRegressor",
    "ReducedRankRegressor",
    "as_expansion",
    "basis",
    "checkpoint",
    "compress",
    "compression",
    "cross_validate_path",
    "datasets",
    "kernels",
    "learn_metric",
    "load",
    "local_cluster",
    "on",
    "persistence",
    "save",
    "scan",
    "tune_cutoff",
    "warmup",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("mercer")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"mercer.{name}")
    raise AttributeError(f"module 'mercer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _import_all(*, river: bool = False) -> None:
    """Import every public class, each of which declares how it is stored; and on request, if they can be, river's."""
    for name in __all__:
        __getattr__(name)
    if river:
        with suppress(ImportError):
            import_module("mercer.river")
