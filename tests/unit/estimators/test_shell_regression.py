"""What all regressors share: outputs that may be one column, and scikit-learn's tags."""

import numpy as np
import pytest
from sklearn.base import is_regressor
from sklearn.utils import get_tags

from tests.walks import ONLINE, REGRESSORS, each_regressor, each_with_spread, over

N = 20


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(N, 2))


@each_regressor
@pytest.mark.parametrize("intercept", [False, True])
def test_one_dimensional_targets_have_one_dimensional_results(estimator, rows, intercept):
    model = estimator(intercept=intercept).fit(rows, rows[:, 0] + 3.0)
    assert model.coefficients_.shape == (len(model.expansion_.points),)
    assert isinstance(model.intercept_, float)
    assert (model.intercept_ != 0) == intercept
    assert model.predict(rows).shape == (N,)


@each_regressor
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("intercept", [False, True])
def test_columns_of_targets_have_columns_of_results(estimator, rows, p, intercept):
    targets = rows[:, :1] + np.arange(1.0, p + 1)
    model = estimator(noise=0.1, intercept=intercept).fit(rows, targets)
    assert model.coefficients_.shape == (len(model.expansion_.points), p)
    assert model.intercept_.shape == (p,)
    assert model.predict(rows).shape == (N, p)
    # Outputs do not see each other: K and the noise are common, each has its own right side.
    for column in range(p):
        alone = estimator(noise=0.1, intercept=intercept).fit(rows, targets[:, column])
        np.testing.assert_allclose(model.predict(rows)[:, column], alone.predict(rows), rtol=1e-9, atol=1e-9)


@each_with_spread
def test_error_bars_of_outputs_differ_by_their_scales(estimator, rows):
    model = estimator(noise=0.1).fit(rows, np.column_stack([rows[:, 0], 100.0 * rows[:, 1]]))
    alone = estimator(noise=0.1).fit(rows, rows[:, 0])
    std, cov = (model.predict(rows, **{what: True})[1] for what in ("return_std", "return_cov"))
    np.testing.assert_allclose(std[:, 0], alone.predict(rows, return_std=True)[1], rtol=1e-9)
    np.testing.assert_allclose(std[:, 1] / std[:, 0], model.scale_[1] / model.scale_[0], rtol=1e-9)
    np.testing.assert_allclose(np.einsum("iip->ip", cov), std**2, rtol=0, atol=1e-12 * np.max(std) ** 2)


@each_with_spread
def test_standard_deviation_and_covariance_exclude_each_other(estimator, rows):
    model = estimator().fit(rows, rows[:, 0])
    with pytest.raises(ValueError, match="return_std and return_cov exclude each other"):
        model.predict(rows, return_std=True, return_cov=True)
    std, cov = model.predict(rows, return_std=True)[1], model.predict(rows, return_cov=True)[1]
    np.testing.assert_allclose(np.diagonal(cov), std**2, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(cov, cov.T)


@over("estimator", [cls for cls in REGRESSORS if cls in ONLINE])
def test_a_first_call_decides_the_shape_of_the_targets(estimator, rows):
    for first, later in ((rows[:, 0], rows), (rows, rows[:, 0]), (rows[:, :1], rows[:, 0]), (rows[:, 0], rows[:, :1])):
        model = estimator().partial_fit(rows, first)
        with pytest.raises(ValueError, match="y must have the shape"):
            model.partial_fit(rows, later)


@each_regressor
def test_tags(estimator):
    assert is_regressor(estimator())
    assert get_tags(estimator()).target_tags.multi_output
