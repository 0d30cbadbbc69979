"""Error bars mean what they say: on data drawn from the prior, residuals over their standard deviation have variance 1.

For fixed inputs a model's mean is Hy, so that its errors under the prior have the covariance

    S = K_** - HK_n* - K_*nHᵀ + H(K_nn + λ)Hᵀ,

and with claimed variances d the residuals z have the covariance C = S_ij/√(d_i d_j). The mean of z² over q queries and
N draws has the expectation tr C/q and the variance 2 tr C²/(N q²). Both are computed here, by dense algebra: the draws
must agree with them to five standard deviations (chance breaks that once in two million times, and the seeds are
fixed), and five standard deviations must fit between the expectation and the bounds 0.8 and 1.2: they are safe.

No theorem makes an approximation calibrated: FITC and committees are so where their assumption, that blocks are
independent given the basis, costs little. The scenarios are such.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from mercer import CommitteeRegressor, ExactRegressor, NystromRegressor
from mercer.kernels import Gaussian, Matern
from tests import oracles
from tests.oracles import predict_in_units

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

N_ROWS, N_BASIS, N_QUERIES, N_DRAWS = 300, 40, 100, 600
LOW, HIGH = 0.8, 1.2


@dataclass(frozen=True)
class Scenario:
    """Inputs that are fixed, and draws of the function and its noisy values at them."""

    kernel: object
    noise: float
    noisy: bool  # whether new targets have noise

    def __post_init__(self):
        rng = np.random.default_rng(0)
        rows, queries = rng.uniform(-3, 3, size=(N_ROWS, 2)), rng.uniform(-3, 3, size=(N_QUERIES, 2))
        both = np.vstack([rows, queries])
        root = np.linalg.cholesky(self.kernel(both) + 1e-12 * np.eye(len(both)))
        drawn = root @ rng.normal(size=(len(both), N_DRAWS))
        noise = np.sqrt(self.noise) * rng.normal(size=drawn.shape)
        values = drawn[N_ROWS:] + (noise[N_ROWS:] if self.noisy else 0.0)
        cells = np.floor(rows).astype(int) @ [1, 6]  # 36 squares: rows that share one are neighbours
        names = ("rows", "targets", "queries", "values", "cells")
        for name, value in zip(names, (rows, drawn[:N_ROWS] + noise[:N_ROWS], queries, values, cells), strict=True):
            object.__setattr__(self, name, value)

    @property
    def options(self):
        return {"kernel": self.kernel, "noise": self.noise}

    @property
    def basis(self):
        return self.rows[:N_BASIS]

    def scores(self, mean, std):
        """Standardised residuals (q, N)."""
        claimed = std**2 + (self.noise if self.noisy else 0.0)
        return (self.values - mean) / np.sqrt(claimed)[:, np.newaxis]

    def theory(self, smoother, std):
        """Expectation and standard deviation of the mean of z²."""
        H, cross = smoother, self.kernel(self.queries, self.rows)
        extra = self.noise if self.noisy else 0.0
        S = self.kernel(self.queries) - H @ cross.T - cross @ H.T
        S += H @ (self.kernel(self.rows) + self.noise * np.eye(N_ROWS)) @ H.T + extra * np.eye(N_QUERIES)
        scale = np.sqrt(std**2 + extra)
        C = S / np.outer(scale, scale)
        return np.trace(C) / N_QUERIES, np.sqrt(2 * np.sum(C**2) / N_DRAWS) / N_QUERIES


SCENARIOS = {
    "smooth, noisy targets": (Gaussian(0.6), 0.1, True),
    "rough, the function itself": (Matern(1.0, nu=0.5), 1e-3, False),
    "between, the function itself": (Matern(0.8, nu=1.5), 1e-3, False),
}


@pytest.fixture(scope="module", params=SCENARIOS.values(), ids=SCENARIOS)
def scenario(request):
    return Scenario(*request.param)


def check(scenario, mean, std, expected):
    """The draws agree with theory, and theory with the bounds."""
    expectation, deviation = scenario.theory(expected.smoother, expected.std)
    score = np.mean(scenario.scores(mean, std) ** 2)
    assert abs(score - expectation) <= 5 * deviation
    assert LOW + 5 * deviation <= expectation <= HIGH - 5 * deviation
    assert LOW <= score <= HIGH


def dense(scenario, oracle, **options):
    zeros = np.zeros(N_ROWS)  # the smoother and the variance do not depend on the targets
    return oracle(rows=scenario.rows, targets=zeros, new=scenario.queries, **scenario.options, **options)


def test_the_exact_process_is_calibrated(scenario):
    model = ExactRegressor(**scenario.options).fit(scenario.rows, scenario.targets)
    check(scenario, *predict_in_units(model, scenario.queries, return_std=True), dense(scenario, oracles.exact))


def test_fitc_is_calibrated(scenario):
    model = CommitteeRegressor(**scenario.options, basis=scenario.basis, block_size=1)
    moments = predict_in_units(model.fit(scenario.rows, scenario.targets), scenario.queries, return_std=True)
    check(scenario, *moments, dense(scenario, oracles.fitc, basis=scenario.basis))


@pytest.mark.parametrize("partition", ["random", "neighbours"])
def test_committees_are_calibrated(scenario, partition):
    labels = scenario.cells if partition == "neighbours" else np.arange(N_ROWS) % 10
    model = CommitteeRegressor(**scenario.options, basis=scenario.basis, partition=labels)
    moments = predict_in_units(model.fit(scenario.rows, scenario.targets), scenario.queries, return_std=True)
    check(scenario, *moments, dense(scenario, oracles.committee, basis=scenario.basis, labels=labels))


def test_transduction_with_blocks_of_neighbours_is_calibrated(scenario):
    model = CommitteeRegressor(**scenario.options, n_basis=10, partition=scenario.cells)
    model.fit(scenario.rows, scenario.targets)
    moments = predict_in_units(model, scenario.queries, return_std=True, transduce=True, batch_size=N_QUERIES)
    check(scenario, *moments, dense(scenario, oracles.committee, basis=scenario.queries, labels=scenario.cells))


def test_the_variance_of_the_subset_of_regressors_is_far_too_small(scenario):
    # What the tests above can find: SoR claims to know the function wherever the basis cannot represent it.
    model = NystromRegressor(**scenario.options, basis=scenario.basis, variance="sor")
    mean, std = predict_in_units(model.fit(scenario.rows, scenario.targets), scenario.queries, return_std=True)
    assert np.mean(scenario.scores(mean, std) ** 2) > 2


@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_error_bars_that_are_wrong_by_a_fifth_are_found(scenario, factor):
    model = ExactRegressor(**scenario.options).fit(scenario.rows, scenario.targets)
    mean, std = predict_in_units(model, scenario.queries, return_std=True)
    with pytest.raises(AssertionError):
        check(scenario, mean, np.sqrt(factor) * std, dense(scenario, oracles.exact))
