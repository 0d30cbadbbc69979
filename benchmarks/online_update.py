"""Few rows come to a model on a basis: following the last solution against a new factor."""

from typing import Any

import numpy as np

from benchmarks.clock import race
from mercer import NystromRegressor
from mercer.kernels import Gaussian
from mercer.methods.online_update import Changes
from mercer.reports.table import format_table
from mercer.solvers.ridge import RidgeProblem

NOISE = 0.01
SIZES = (200, 500, 1000, 2000)
SHARES = (0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of m that come; at least one row


def report(rounds: int) -> str:
    """Run and describe the results."""
    return f"{_crossing(rounds)}\n\n{_life(min(rounds, 3))}"


def _crossing(rounds: int) -> str:
    rows = [[m, *(_ratio(m, max(1, round(share * m)), rounds) for share in SHARES)] for m in SIZES]
    header = ["m", "1 row", *(f"m/{round(1 / share)}" for share in SHARES[1:])]
    return format_table(header, rows) + (
        "\n\nTimes as long that a new factor takes, with the weights and the root of the variance, as the update for\n"
        "so many rows; the update is used up to m/16."
    )


def _ratio(m: int, n_rows: int, rounds: int) -> float:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3 * m, m)) / np.arange(1, m + 1)
    rows = rng.normal(size=(n_rows, m)) / np.arange(1, m + 1)
    before, after = _problem(features), _problem(np.vstack([features, rows]))
    changes = Changes.since(before.solve(NOISE).root, NOISE, 3 * m).plus(rows)
    if changes.solve(after) is None:
        raise RuntimeError("the update is not taken")
    runs = {"factor": lambda: after.solve(NOISE), "update": lambda: changes.solve(after)}
    times = race(runs, rounds)
    return times.best("factor") / times.best("update")


def _problem(features: Any) -> RidgeProblem:
    n, gram = len(features), features.T @ features
    cross = np.column_stack([features[:, 0] @ features, features.sum(axis=0)])
    return RidgeProblem.from_sums(gram=gram, cross=cross, moments=n * np.eye(2), n_targets=n, intercept=False)


def _life(rounds: int) -> str:
    rows = []
    for m in SIZES[1:3]:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(10 * m, 8))
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X))
        fixed, chosen = (
            NystromRegressor(Gaussian(3.0), n_basis=m, noise=noise, random_state=0).fit(X, y)
            for noise in (NOISE, "auto")
        )

        def use(model: Any, rows: Any = X[:10], targets: Any = y[:10]) -> None:
            model.partial_fit(rows, targets).predict(rows)

        runs = {
            "followed": lambda model=fixed: use(model),
            "anew": lambda model=fixed: _forgetful(model, use),
            "chosen": lambda model=chosen: use(model),
        }
        times = race(runs, rounds)
        rows.append([m, *(1e3 * times.best(name) for name in runs)])
    header = ["m", "noise a number", "the same, solved anew and judged", "noise chosen"]
    return format_table(header, rows) + "\n\nMilliseconds to add ten rows and predict ten."


def _forgetful(model: Any, use: Any) -> None:
    """As if no solution were known before the rows come."""
    for name in ("solved", "changes"):
        vars(model._summary).pop(name, None)
    use(model)
