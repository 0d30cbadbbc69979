"""The regret of stochastic gradient descent stays under its bound, whatever the rows and the comparator."""

import numpy as np
import pytest

from mercer import ExactRegressor, KernelExpansion, NormaClassifier, NormaRegressor
from mercer.kernels import Gaussian
from mercer.reports.plots import plot_regret
from mercer.reports.regret import Regret, regret

N = 300
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(N, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N)
KERNEL, WEIGHT = Gaussian(1.0), 0.05
LOSSES = ("squared_error", "huber", "epsilon_insensitive", "quantile")


def fitted(loss="squared_error", **options):
    given = {
        "regularization": WEIGHT,
        "schedule": "inverse_sqrt",
        "intercept": False,
        "record": True,
        "truncation": 0.0,
    }
    given |= options
    if loss in ("hinge", "log_loss"):
        return NormaClassifier(KERNEL, loss=loss, **given).fit(X, Y > 0)
    return NormaRegressor(KERNEL, loss=loss, **given).fit(X, Y)


@pytest.mark.parametrize("loss", [*LOSSES, "hinge", "log_loss"])
@pytest.mark.parametrize("schedule", ["inverse_sqrt", "inverse", "constant"])
@pytest.mark.filterwarnings("ignore:max_basis")
@pytest.mark.parametrize("max_basis", [1000, 60])
def test_it_is_under_the_bound_for_the_best_function_and_for_others(loss, schedule, max_basis):
    model = fitted(loss, schedule=schedule, max_basis=max_basis)
    y = Y > 0 if hasattr(model, "classes_") else Y
    rng = np.random.default_rng(1)
    others = [KernelExpansion(KERNEL, X[:20], scale * rng.normal(size=(20, 1)), np.zeros(1)) for scale in (0.0, 0.1, 3)]
    for comparator in (None, *others):
        found = regret(model, X, y, comparator)
        assert np.all(found.regret <= found.bound)
        if schedule == "inverse_sqrt":
            assert np.all(found.bound <= found.a * np.sqrt(np.arange(1, N + 1)) + found.b + 1e-9)
            assert (found.b > 0) == (max_basis == 60)


def test_the_best_function_in_hindsight_is_ridge_regression():
    model = fitted(scale_targets=False)
    exact = ExactRegressor(KERNEL, noise=N * WEIGHT, intercept=False).fit(X, Y)
    best, ridge = regret(model, X, Y), regret(model, X, Y, exact.expansion_)
    assert best.comparator[-1] == pytest.approx(ridge.comparator[-1], rel=1e-5)
    risk = 0.5 * np.sum((exact.predict(X) - Y) ** 2)
    c = exact.coefficients_
    assert ridge.comparator[-1] == pytest.approx(risk + N * WEIGHT / 2 * c @ KERNEL(X) @ c)


def test_the_regret_per_row_falls():
    found = regret(fitted(), X, Y)
    mean = found.regret / np.arange(1, N + 1)
    assert mean[-1] < mean[N // 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intercept": True}, "fit with intercept=False"),
        ({"record": False}, "fitted with record=True to these 300 rows"),
        ({"learning_rate": 1.5}, "too large for the bound of the squared loss"),
    ],
)
@pytest.mark.filterwarnings("ignore:learning_rate")
def test_where_there_is_no_bound_it_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        regret(fitted(**options), X, Y)


def test_it_is_plotted(tmp_path):
    n = np.arange(1.0, 50.0)
    plot_regret(tmp_path / "regret.svg", {"a": Regret(2 * n, n, 3 * n, 1.0, 0.0)})
    text = (tmp_path / "regret.svg").read_text(encoding="utf-8")
    assert "bound" in text or text.count("<path") > 10
