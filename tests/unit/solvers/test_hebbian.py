"""Sanger's rule, against itself in plain NumPy; factors that skip rows, against their definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.solvers.hebbian import ANNEALED, CONSTANT, EIGENVALUE, Gains, factor_in_order, learn_vectors

RULES = {"constant": Gains(CONSTANT, 0.05, 1.0), "annealed": Gains(ANNEALED, 0.5, 20.0)}
RULES["eigenvalue"] = Gains(EIGENVALUE, 0.1, 100.0)
each_rule = pytest.mark.parametrize("gains", RULES.values(), ids=RULES.keys())


class Plain:
    """The rule as it is written; the vectors that are centred by their running mean are all kept."""

    def __init__(self, r, m, *, centre=None, spread=0.0):
        self.W, self.variances, self.ages = np.eye(r, m), np.zeros(r), np.zeros(r)
        self.seen, self.centre, self.spread, self.t = [], centre, spread, 0

    def learn(self, v, size, gains):
        if self.centre is None:
            self.seen.append(np.pad(v[:size], (0, len(v) - size)))
            mean = np.mean(self.seen, axis=0)
            spread = np.mean(np.sum((np.array(self.seen) - mean) ** 2, axis=1))
        else:
            mean, spread = self.centre, self.spread
        u = self.u = np.where(np.arange(len(v)) < size, v - mean, 0.0)
        if not u @ u > 0:
            return
        active = min(len(self.W), size)
        W, y = self.W[:active], self.W[:active] @ u
        share = gains.decay / (gains.decay + self.t)
        self.t += 1
        self.ages[:active] += 1
        self.variances[:active] += 2 / (self.ages[:active] + 1) * (y**2 - self.variances[:active])
        if gains.rule == EIGENVALUE:
            eta = np.minimum(gains.rate * share / self.variances[:active], 1 / (u @ u))
        else:
            eta = np.full(active, gains.rate * (share if gains.rule == ANNEALED else 1.0) / spread)
        self.W[:active] = W + eta[:, np.newaxis] * (np.outer(y, u) - np.tril(np.outer(y, y)) @ W)


def stream(seed=0, n=60, m=7):
    """Vectors that come to know more entries."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, m)) * np.linspace(2.0, 0.5, m) + 1.0
    sizes = np.minimum(1 + np.arange(n) // 3, m)
    return np.where(np.arange(m) < sizes[:, np.newaxis], vectors, 0.0), sizes


def state(r, m):
    return np.eye(r, m), np.zeros(m), np.zeros(r), np.zeros(r), np.zeros(3)


@each_rule
def test_vectors_centred_by_their_running_mean_move_directions_as_written(gains):
    vectors, sizes = stream()
    plain, ours = Plain(3, 7), state(3, 7)
    assert learn_vectors(vectors, sizes, *ours, gains, running=True) == len(vectors)
    for v, size in zip(vectors, sizes, strict=True):
        plain.learn(v, size, gains)
    directions, centre, variances, ages, counts = ours
    np.testing.assert_allclose(directions, plain.W, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(variances, plain.variances, rtol=1e-9)
    np.testing.assert_array_equal(ages, plain.ages)
    np.testing.assert_allclose(centre, np.mean(vectors, axis=0), rtol=1e-12)
    np.testing.assert_allclose(counts[2], np.mean(np.sum((vectors - centre) ** 2, axis=1)), rtol=1e-12)
    np.testing.assert_array_equal(counts[:2], [60, 59])  # the first row is its own mean: there is nothing to learn


@each_rule
def test_vectors_centred_by_a_given_mean_move_directions_as_written(gains):
    vectors = stream()[0]
    centre = vectors.mean(axis=0)
    spread = float(np.mean(np.sum((vectors - centre) ** 2, axis=1)))
    plain, ours = Plain(3, 7, centre=centre, spread=spread), state(3, 7)
    ours[1][:], ours[4][2] = centre, spread
    for _ in range(2):
        learn_vectors(vectors, np.full(60, 7), *ours, gains, running=False)
        for v in vectors:
            plain.learn(v, 7, gains)
    np.testing.assert_allclose(ours[0], plain.W, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(ours[1], centre)


@each_rule
@pytest.mark.parametrize("running", [True, False])
def test_a_batch_is_its_vectors_one_after_the_other_to_the_last_bit(gains, running):
    vectors, sizes = stream()
    together, alone = state(3, 7), state(3, 7)
    for each in (together, alone):
        each[4][2] = 0.0 if running else 5.0
    learn_vectors(vectors, sizes, *together, gains, running=running)
    for t in range(len(vectors)):
        learn_vectors(vectors[t : t + 1], sizes[t : t + 1], *alone, gains, running=running)
    for mine, theirs in zip(together, alone, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("rule", [CONSTANT, ANNEALED])
def test_directions_that_diverge_stop_at_numbers(rule):
    vectors, ours = stream(n=500)[0], state(3, 7)
    ours[4][2] = 1.0
    done = learn_vectors(vectors, np.full(500, 7), *ours, Gains(rule, 50.0, 1e6), running=False)
    assert done < 500
    assert all(np.all(np.isfinite(each)) for each in ours)


@given(
    st.integers(0, 10_000), st.integers(1, 5), st.floats(1e-6, 1e6), st.floats(1e-3, 1e9), st.floats(-6, 6),
    st.booleans(),
)  # fmt: skip
@settings(deadline=None)
def test_steps_scaled_by_eigenvalues_never_diverge(seed, r, rate, decay, exponent, running):
    rng = np.random.default_rng(seed)
    vectors = 10.0**exponent * rng.standard_t(1.5, size=(300, 5)) * np.logspace(0, -rng.uniform(0, 4), 5)
    ours = state(r, 5)
    ours[4][2] = np.mean(vectors**2)
    done = learn_vectors(vectors, np.full(300, 5), *ours, Gains(EIGENVALUE, rate, decay), running=running)
    assert done == 300
    assert np.linalg.norm(ours[0], 2) < 10.0


@given(st.integers(0, 10_000), st.integers(1, 25), st.sampled_from([0.05, 0.3, 1.0]))
@settings(deadline=None)
def test_a_row_is_chosen_if_those_chosen_before_do_not_span_it(seed, room, tolerance):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20, 6)) @ np.diag([1, 1, 1, 0.3, 0.1, 0.1])
    least, candidates = np.full(20, tolerance), np.sort(rng.choice(20, 12, replace=False))
    coordinates, origin, place = np.zeros((20, room)), np.empty(room, dtype=int), np.empty(room, dtype=int)
    none, memory = (np.zeros((12, 0)), np.zeros(20)), np.empty(room)
    number = factor_in_order(rows @ rows[candidates].T, candidates, least, coordinates, origin, place, *none, memory)
    chosen = []
    for t, row in enumerate(rows):
        basis = np.linalg.qr(rows[chosen].T)[0] if chosen else np.zeros((6, 0))
        known = basis.T @ row
        np.testing.assert_allclose(np.sum(coordinates[t, : len(chosen)] ** 2), known @ known, atol=1e-9)
        rest = row @ row - known @ known
        if t in candidates and len(chosen) < room and rest > tolerance:
            chosen.append(t)
            np.testing.assert_allclose(coordinates[t, len(chosen) - 1] ** 2, rest, atol=1e-9)
        assert not np.any(coordinates[t, len(chosen) :])
    assert origin[:number].tolist() == chosen
    np.testing.assert_array_equal(candidates[place[:number]], chosen)
