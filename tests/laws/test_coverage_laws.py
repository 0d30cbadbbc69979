"""Intervals cover what was asked for, on exchangeable rows from any law, whatever the model makes of it.

With K rows that are left out, the coverage of new rows varies like a beta distribution around the one asked for, with
the variance c(1-c)/K; the share of N new rows inside varies by c(1-c)/N more. Five standard deviations of both: chance
breaks a bound once in two million times, and seeds are fixed.

Where one row in fifty is far off, each of these moves the constant by more than most residuals differ from each other.
A model without a row is then visibly farther from it than the model that is used, and intervals are too wide, not too
narrow.
"""

import numpy as np
import pytest

import mercer

N_ROWS, N_NEW = 600, 4000
SEEDS = range(3)

LAWS = {
    "normal": lambda rng, x: rng.normal(size=len(x)),
    "heavy tails": lambda rng, x: rng.standard_t(1.5, size=len(x)),
    "skewed": lambda rng, x: rng.exponential(size=len(x)) ** 2,
    "heteroscedastic": lambda rng, x: np.exp(2 * x[:, 0]) * rng.normal(size=len(x)),
    "two values": lambda rng, x: np.where(rng.uniform(size=len(x)) < 0.5, -1.0, 1.0),
    "mostly zero": lambda rng, x: np.where(rng.uniform(size=len(x)) < 0.9, 0.0, 5 * rng.normal(size=len(x))),
    "outliers": lambda rng, x: rng.normal(size=len(x)) + np.where(rng.uniform(size=len(x)) < 0.02, 1e4, 0.0),
}
MODELS = {
    "exact": mercer.ExactRegressor("matern"),
    "nystrom": mercer.NystromRegressor("matern", n_basis=60, random_state=0),
    "nystrom, a noise that is far too small": mercer.NystromRegressor("matern", n_basis=60, noise=1e-6, random_state=0),
    "committee": mercer.CommitteeRegressor("matern", n_basis=60, random_state=0),
    "compact": mercer.CompactRegressor(random_state=0),
}


@pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_intervals_cover_on_exchangeable_data_from_any_law(model, law):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        rows = rng.uniform(-2, 2, size=(N_ROWS + N_NEW, 2))
        y = 2 * np.sin(2 * rows[:, 0]) * (rows[:, 1] > 0) + law(rng, rows)
        model.fit(rows[:N_ROWS], y[:N_ROWS])
        for coverage in (0.5, 0.9, 0.98):
            lower, upper = model.predict_interval(rows[N_ROWS:], coverage)
            assert np.all(np.isfinite(lower) & (lower <= upper))
            covered = np.mean((lower <= y[N_ROWS:]) & (y[N_ROWS:] <= upper))
            bound = 5 * np.sqrt(coverage * (1 - coverage) * (1 / N_NEW + 1 / N_ROWS))
            assert covered > coverage - bound, (seed, coverage)
            assert covered < coverage + bound or law is LAWS["outliers"], (seed, coverage)
