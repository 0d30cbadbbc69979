"""Unusual but good: what holds for models of one block holds for committees of many."""

import numpy as np
import pytest

import mercer
from mercer.kernels import Gaussian, Matern
from tests.given_noise import CommitteeRegressor
from tests.walks import COMMITTEES, N, assert_close, jitter_where_there_is_no_noise, targets_for

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

each_partition = pytest.mark.parametrize("options", COMMITTEES, ids=str)


@pytest.fixture
def y(rows):
    return targets_for(mercer.CommitteeRegressor, rows)


def make(options, kernel="matern", **others):
    return CommitteeRegressor(kernel, **{"n_basis": 10, "random_state": 0} | options | others)


@each_partition
@pytest.mark.parametrize("scale", [1e150, 1e-150, 1e30, 1e-30])
@pytest.mark.parametrize("intercept", [False, True])
def test_units_of_the_rows_do_not_matter_with_median_length_scales(options, rows, y, scale, intercept):
    expected, scaled = make(options, intercept=intercept).fit(rows, y), make(options, intercept=intercept)
    scaled.fit(scale * rows, y)
    np.testing.assert_array_equal(scaled.labels_, expected.labels_)
    assert_close(scaled.predict(scale * rows), expected.predict(rows))


@each_partition
@pytest.mark.parametrize("scale", [1e150, 1e-150])
@pytest.mark.parametrize("intercept", [False, True])
def test_units_of_the_targets_do_not_matter(options, rows, y, scale, intercept):
    expected = make(options, intercept=intercept).fit(rows, y).predict(rows)
    assert_close(make(options, intercept=intercept).fit(rows, scale * y).predict(rows) / scale, expected)


@each_partition
@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_units_of_the_weights_do_not_matter_beside_the_noise(options, rows, y, scale):
    # Λ has the noise λ/ω and what the basis leaves of the kernel: only their ratio counts.
    weights = np.linspace(0.5, 2.0, N)
    expected = make(options, noise=0.1).fit(rows, y, weights).predict(rows)
    assert_close(make(options, noise=0.1 * scale).fit(rows, y, scale * weights).predict(rows), expected)


@each_partition
@pytest.mark.parametrize("constant", [0.0, 1.0, -1e6, 1e150])
def test_constant_columns_do_not_matter_to_stationary_kernels(options, rows, y, constant):
    wider = np.column_stack([rows, np.full(N, constant)])
    expected, model = make(options).fit(rows, y), make(options).fit(wider, y)
    assert_close(model.predict(wider), expected.predict(rows))


@each_partition
@pytest.mark.parametrize("noise", [0.1, 1e-6, 0.0])
def test_all_rows_equal(options, rows, y, noise):
    same = np.repeat(rows[:1], N, axis=0)
    with jitter_where_there_is_no_noise(mercer.CommitteeRegressor, noise):
        model = make(options, noise=noise).fit(same, y)
    # One basis point spans all rows: Λ = (λ + jitter)I whatever the blocks.
    noise += model.jitter_
    np.testing.assert_allclose(model.predict(same[:1]), [np.mean(y) * N / (N + noise)], rtol=1e-10)


@each_partition
def test_float32_rows_give_the_model_of_their_values(options, rows, y):
    single = rows.astype(np.float32)
    double = single.astype(np.float64)
    model, expected = make(options, Gaussian()).fit(single, y), make(options, Gaussian()).fit(double, y)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    # Statistics are of double precision whatever the rows.
    assert_close(model.predict(double), expected.predict(double), 1e-12)


@each_partition
def test_rows_of_weight_zero_do_not_matter(options, rows, y):
    wild = rows + 100.0
    weights = np.repeat([1.0, 0.0], N)
    basis = rows[:10]
    model = make(options, Matern(), basis=basis).fit(np.vstack([rows, wild]), np.append(y, 1e6 * y), weights)
    np.testing.assert_array_equal(model.labels_[N:], -1)
    # The same blocks, with a weight for each row and without the rows that have none.
    labels = model.labels_[:N]
    expected = make({"partition": labels}, Matern(), basis=basis).fit(rows, y)
    assert_close(model.predict(rows), expected.predict(rows), 1e-12)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.log_marginal_likelihood_, rel=1e-12)
