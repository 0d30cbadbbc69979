"""Models that follow rows coming and going equal those that are fitted to what remains.

The tolerance is that of the package for means; the update promises variances to 1e-9 of themselves, beside rounding.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercer import NystromClassifier, NystromRegressor
from mercer.kernels import Gaussian, Matern
from mercer.methods import online_update

pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

KERNELS = st.sampled_from([Gaussian(0.8), Matern(1.5, nu=1.5), Gaussian(2.0, amplitude=3.0)])
M = 40


@pytest.fixture(autouse=True, scope="module")
def _followed_by_small_bases():
    """A few rows are followed on these bases, too, where a new factor would be made in less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online_update, "_CROSSING", 1 / 8)
        yield


@st.composite
def streams(draw):
    """Rows with targets and weights, of which the first 120 come at once; small batches, signed by whether they go."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.uniform(-2, 2, size=(200, 2)).astype(draw(st.sampled_from([np.float64, np.float32])))
    targets = np.column_stack([np.sin(2 * rows[:, 0]) + 7.0, rows[:, 1] ** 2])[:, : draw(st.integers(1, 2))]
    weights = rng.uniform(0.1, 3.0, size=200) if draw(st.booleans()) else np.ones(200)
    steps = draw(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), min_size=1, max_size=20))
    return rows, targets, weights, steps


def replay(model, rows, targets, weights, steps):
    """Numbers of the rows that remain."""
    kept, coming = list(range(120)), 120
    for number, goes, is_used in steps:
        if goes:
            part, kept = kept[:number], kept[number:]
            model.forget(rows[part], targets[part], weights[part])
        else:
            part = list(range(coming, coming + number))
            kept, coming = kept + part, coming + number
            model.partial_fit(rows[part], targets[part], sample_weight=weights[part])
        if is_used:
            model.predict(rows[:1])
    return kept


@given(streams(), KERNELS, st.sampled_from([1e-3, 0.1, 10.0]), st.booleans())
def test_many_small_updates_equal_the_fit(stream, kernel, noise, intercept):
    rows, targets, weights, steps = stream
    options = {"kernel": kernel, "basis": rows[:M], "noise": noise, "intercept": intercept}
    model = NystromRegressor(**options).fit(rows[:120], targets[:120], weights[:120])
    kept = replay(model, rows, targets, weights, steps)
    expected = NystromRegressor(**options).fit(rows[kept], targets[kept], weights[kept])
    tolerance = 1e-8 if rows.dtype == np.float64 else 1e-4  # kernel values of float32 rows are rounded differently
    new = rows[100:150]
    for one, other in zip(model.predict(new, return_std=True), expected.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.max(np.abs(other)))
    assert model.n_seen_ == len(kept)
    np.testing.assert_allclose(model.scale_, expected.scale_, rtol=1e3 * tolerance)
    likelihood = expected.log_marginal_likelihood_
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=1e2 * tolerance, abs=1e2 * tolerance)


@given(streams(), st.booleans())
def test_classifiers_follow_too(stream, intercept):
    rows, targets, weights, steps = stream
    labels = np.digitize(targets[:, 0], [6.5, 7.5])
    options = {"kernel": Gaussian(0.8), "basis": rows[:M], "noise": 0.1, "intercept": intercept}
    model = NystromClassifier(**options).fit(rows[:120], labels[:120], weights[:120])
    kept = replay(model, rows, labels, weights, steps)
    expected = NystromClassifier(**options)
    expected.partial_fit(rows[kept], labels[kept], classes=model.classes_, sample_weight=weights[kept])
    tolerance = 1e-8 if rows.dtype == np.float64 else 1e-4
    np.testing.assert_allclose(
        model.decision_function(rows[100:]), expected.decision_function(rows[100:]), rtol=0, atol=10 * tolerance
    )
