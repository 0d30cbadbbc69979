"""Kernel principal components: one pass beside the Nyström fit, and scikit-learn's KernelPCA as far as it goes."""

from functools import partial

import numpy as np
from sklearn.decomposition import KernelPCA

from benchmarks.clock import race
from benchmarks.forest import N_TRAIN, Split, ours, split
from benchmarks.memory import peak_megabytes
from mercer import NystromPCA
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

_POINTS, _COMPONENTS = 500, 20
_EXACT = (1000, 3000, 10_000, 20_000)  # rows; 50 000 need 20 GB for the kernel matrix alone


def pca(m: int = _POINTS) -> NystromPCA:
    """The kernel of the other benchmarks on forest, exp(-r²/54)."""
    return NystromPCA(Gaussian(np.sqrt(27.0)), n_components=_COMPONENTS, n_basis=m, random_state=0)


def exact() -> KernelPCA:
    """By ARPACK, which is the fastest solver for few components."""
    return KernelPCA(_COMPONENTS, kernel="rbf", gamma=1 / 54, eigen_solver="arpack", random_state=0)


def _prepare() -> Split:
    data = split()
    pca(50).fit(data.X[:1000])  # loads libraries and compiles
    return data


def _fit(data: Split) -> None:
    pca().fit(data.X)


def report(rounds: int) -> str:
    """Run all and describe the results."""
    data = _prepare()
    return f"{_large(data, rounds)}\n\n{_against_all_rows(data)}"


def _large(data: Split, rounds: int) -> str:
    ridge, components = ours(N_TRAIN, _POINTS), pca()
    ridge.fit(data.X[:1000], data.y[:1000])
    contestants = {"ridge": lambda: ridge.fit(data.X, data.y), "components": lambda: components.fit(data.X)}
    times = race(contestants, rounds)
    table = format_table(
        ["n = 500 000, d = 54, m = 500", "fit s (best)"],
        [["NystromPCA, 20 components", times.best("components")], ["NystromRegressor", times.best("ridge")]],
    )
    memory = peak_megabytes(_prepare, _fit)
    return (
        f"{table}\n\n"
        f"NystromPCA / NystromRegressor: {times.ratio('components', 'ridge'):.2f} (median of {rounds} rounds); "
        f"peak memory beyond the data {memory:.0f} MB."
    )


def _against_all_rows(data: Split) -> str:
    """Fits to n rows, and how much of the variance of the exact leading components the others have."""
    rows, new = [], data.X_test[:5000]
    for n in _EXACT:
        models = {"mercer": pca(), "scikit-learn": exact()}
        few = data.X[:n]
        times = race({name: partial(model.fit, few) for name, model in models.items()}, 1)
        share = np.sum(models["mercer"].eigenvalues_) / np.sum(models["scikit-learn"].eigenvalues_)
        spans = [np.linalg.qr(model.transform(new) - model.transform(new).mean(axis=0))[0] for model in models.values()]
        cosine = float(np.min(np.linalg.svd(spans[0][:, :5].T @ spans[1][:, :5], compute_uv=False)))
        rows.append([f"{n:,}", times.best("mercer"), times.best("scikit-learn"), float(share), cosine])
    head = ["rows of forest, 20 components", "NystromPCA, m = 500, s", "KernelPCA s", "share of its eigenvalues"]
    table = format_table([*head, "cosine of the first five"], rows)
    return (
        f"{table}\n\nThe cosine is that of the largest angle between the spans of the first five components on 5000 "
        "other rows. KernelPCA keeps several n × n matrices: 50 000 rows need 20 GB for each."
    )
