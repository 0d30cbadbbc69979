"""Tables of the results: a set per line, a method per column; and ranks."""

from collections.abc import Sequence

import numpy as np

from benchmarks.tabular.run import METHODS, RAW, Results
from benchmarks.tabular.scores import mean_ranks
from benchmarks.tabular.sets import RANKED
from mercer._typing import FloatArray
from mercer.reports.table import format_table

REGRESSION = (*RANKED, "abalone", "boston")
CLASSES = ("breast cancer", "digits", "a9a", "forest")
_BESIDE = ("gp", "boosting-1000")  # whose spread is shown beside mercer's


def values(results: Results, name: str, method: str, score: str) -> FloatArray:
    """A score on each fold of a set that has been run."""
    folds = sorted(key for key in results if (key.set, key.method) == (name, method))
    return np.array([results[key][score] for key in folds if score in results[key]])


def table(results: Results, sets: Sequence[str], score: str, *, factor: float = 1.0) -> str:
    """A score of each method on each set: its mean over the folds ± the standard error of that mean."""
    methods = [method for method in METHODS if any(len(values(results, each, method, score)) for each in sets)]
    rows = []
    for each in sets:
        found = [factor * values(results, each, method, score) for method in methods]
        n_folds = max(map(len, found), default=0)
        if n_folds:
            rows.append([each, n_train(results, each), n_folds, *(_cell(one, n_folds) for one in found)])
    return format_table(["set", "rows", "folds", *methods], rows)


def ranked_errors(results: Results) -> dict[str, FloatArray]:
    """Mean errors on the ten sets of each method that has been run on all of them."""
    found = {method: [values(results, each, method, "error") for each in RANKED] for method in METHODS}
    return {name: np.array([np.mean(one) for one in all_]) for name, all_ in found.items() if all(map(len, all_))}


def ranks(results: Results) -> str:
    """Mean ranks over the ten sets, and the largest ratio of an error to the least on its set."""
    errors = ranked_errors(results)
    if not errors:
        return "No method has been run on all ten sets yet."
    means, least = mean_ranks(errors), np.min(list(errors.values()), axis=0)
    rows = []
    for method in sorted(means, key=means.__getitem__):
        ratios = errors[method] / least
        worst = int(np.argmax(ratios))
        rows.append([method, f"{means[method]:.2f}", f"{rounded(ratios[worst])} ({RANKED[worst]})"])
    return format_table(["method", "mean rank of the error", "largest error / least error of the set"], rows)


def spread(results: Results) -> str:
    """Coverage, z² and width of mercer's 95 % intervals; z² and width of others'."""
    header = ["set", "rows", "folds", "covered, %", "z²", "width, sd"]
    header += [f"{method}, {what}" for method in _BESIDE for what in ("z²", "width")]
    rows = []
    for each in REGRESSION:
        n_folds = len(values(results, each, RAW, "z2"))
        if n_folds:
            cells = [_cell(100 * values(results, each, RAW, "coverage"), n_folds)]
            cells += [
                _cell(values(results, each, method, score)[:n_folds], n_folds)
                for method in (RAW, *_BESIDE)
                for score in ("z2", "width")
            ]
            rows.append([each, n_train(results, each), n_folds, *cells])
    return format_table(header, rows) if rows else "mercer has not been run yet."


def n_train(results: Results, name: str) -> int:
    """Training rows of a fold."""
    return int(max(record["n_train"] for key, record in results.items() if key.set == name))


def _cell(found: FloatArray, n_folds: int) -> str:
    """Mean ± standard error, and the number of folds in brackets if others have more."""
    if len(found) == 0:
        return "-"
    error = f" ± {_digits(float(np.std(found, ddof=1)) / len(found) ** 0.5, 1)}" if len(found) > 1 else ""
    return f"{rounded(float(np.mean(found)))}{error}{'' if len(found) == n_folds else f' ({len(found)})'}"


def rounded(value: float) -> str:
    """Three digits, without an exponent, and six decimals at most."""
    return _digits(value, 3)


def _digits(value: float, n_digits: int) -> str:
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    decimals = n_digits - 1 - int(np.floor(np.log10(abs(value))))
    return f"{value:.{min(max(decimals, 0), 6)}f}"
