"""The comparison of gains, on a small scale."""

import numpy as np
import pytest

from mercer.kernels import Gaussian
from mercer.methods.hebbian import HebbianLearner, Rules
from mercer.solvers.hebbian import CONSTANT, EIGENVALUE, Gains
from papers import hebbian_gains
from papers.experiment import Kept
from papers.hebbian_gains import GRIDS, Curve, Sizes, Task, converge, main
from papers.meta_descent import MetaDescent

TINY = Sizes(n_rows=40, n_components=2, passes=(1, 5, 200), data=("blob",))


@pytest.fixture
def blob(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 0.5]
    monkeypatch.setattr(hebbian_gains, "DATA", {"blob": lambda: rows})
    return rows


def test_all_gains_come_close_to_kernel_pca_and_scaled_ones_very_close(blob):
    found = converge("blob", TINY, Kept(None, ""))
    assert found.keys() == GRIDS.keys()
    for best, *others in found.values():
        assert best.excess[-1] < min(0.05, best.excess[0])
        assert all(best.excess[-1] <= other.excess[-1] for other in others)
    best = found["eigenvalue"][0]
    assert best.excess[-1] < 1e-4
    assert best.angles[-1] < best.angles[0]


def test_components_that_diverge_count_as_never(blob):
    gains = Gains(CONSTANT, 100.0, 1.0)
    assert Task.draw(blob, TINY).run(gains, (1, 2)) == dict.fromkeys(
        ("excess 1", "excess 2", "angle 1", "angle 2"), np.inf
    )


def test_convergence_is_when_the_error_stays_small():
    passes = (1, 2, 5, 10)
    for excess, expected in (
        ([1, 0.005, 1, 0.001], 10),
        ([0.001] * 4, 1),
        ([1, 1, 1, 1], np.inf),
        ([1, 1, np.nan, 0], 10),
    ):
        assert Curve((1.0, 1.0, 0.0), np.array(excess), np.zeros(4)).passes_to(passes) == expected


class PlainMetaDescent:
    """The rule as it is written, and the derivative of a step as a difference."""

    def __init__(self, r, m):
        self.W, self.B, self.rho, self.variances, self.t = np.eye(r, m), np.zeros((r, m)), np.zeros(r), np.zeros(r), 0

    def learn(self, u, gains, meta_rate):
        def direction(W):
            return np.outer(W @ u, u) - np.tril(np.outer(W @ u, W @ u)) @ W

        y, step, fading = self.W @ u, direction(self.W), 0.99 * self.B
        # A quadratic plus a cubic part: the central difference is exact but for the cube of D alone.
        h = 1e-4
        turned = (direction(self.W + h * fading) - direction(self.W - h * fading)) / (2 * h)
        self.t += 1
        self.variances += 2 / (self.t + 1) * (y**2 - self.variances)
        self.rho += meta_rate * np.sum(self.B * step, axis=1) / self.variances
        share = gains.decay / (gains.decay + self.t - 1)
        eta = np.minimum(np.exp(self.rho) * gains.rate * share / self.variances, 1 / (u @ u))[:, np.newaxis]
        self.B, self.W = fading + eta * (step + turned), self.W + eta * step


def test_meta_descent_is_the_rule_as_it_is_written():
    features = np.random.default_rng(0).normal(size=(80, 6)) * np.linspace(2.0, 0.5, 6)
    gains, plain = Gains(EIGENVALUE, 0.1, 50.0), PlainMetaDescent(3, 6)
    learner = HebbianLearner.start(Gaussian(), 1, 3)
    learner.directions, learner.centre = np.eye(3, 6), np.zeros(6)
    adapting = MetaDescent(learner, 0.1)
    adapting.pass_over(features, Rules(6, 0.0, gains))
    for u in features:
        plain.learn(u, gains, 0.1)
    assert np.max(np.abs(plain.rho)) > 0.1
    np.testing.assert_allclose(adapting.log_gains, plain.rho, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.directions, plain.W, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_command_writes_a_report_and_goes_on_where_it_was(blob, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(hebbian_gains, "QUICK", TINY)
    main(["--quick", "--output", str(tmp_path)])
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "eigenvalue" in text
    assert (tmp_path / "figure.svg").exists()
    monkeypatch.setattr(Task, "run", None)
    main(["--quick", "--output", str(tmp_path)])
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == text
