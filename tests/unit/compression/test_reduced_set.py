"""Reduced sets as a whole: guarantees, sizes, metrics, arguments."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import laplacian_kernel

from mercer import ExactRegressor
from mercer.compression import reduced_set
from mercer.compression.reduced_set import reduce_expansion, relative_difference
from mercer.kernels import CompactGaussian, Function, Gaussian, Linear, Matern, Polynomial, Precomputed
from mercer.model import KernelExpansion

X = np.random.default_rng(0).uniform(-2, 2, size=(150, 2))
Y = np.column_stack([np.sin(2 * X[:, 0]) + X[:, 1], 100 * np.cos(X[:, 1]) * X[:, 0]])


@pytest.fixture(scope="module")
def expansion():
    return ExactRegressor(Gaussian(1.0), noise=1e-2, intercept=True).fit(X, Y).expansion_


@pytest.fixture(scope="module")
def single():
    return ExactRegressor(Gaussian(1.0), noise=1e-2, intercept=False).fit(X, Y[:, 0]).expansion_


# ------------------------------------------------------------------------------------------------ guarantees


@pytest.mark.parametrize("metric", ["feature", "data"])
def test_few_vectors_predict_all_outputs_alike(expansion, metric):
    small = reduce_expansion(expansion, 25, metric=metric, random_state=0, max_iter=300)
    new = np.random.default_rng(1).uniform(-2, 2, size=(100, 2))
    assert small.expansion.points.shape == (25, 2)
    assert small.expansion.variance is None
    errors = np.sqrt(np.mean((small.expansion.evaluate(new) - expansion.evaluate(new)) ** 2, axis=0))
    assert np.all(errors < 0.03 * np.std(Y, axis=0))  # the small output as well as the large one


def test_the_relative_distance_is_the_mean_over_the_outputs_that_are_not_zero(expansion):
    p = expansion.coefficients.shape[1]
    nothing = np.zeros((len(expansion.points), 1))
    coefficients, intercept = np.hstack([expansion.coefficients, nothing]), np.append(expansion.intercept, 0.0)
    small = reduce_expansion(replace(expansion, coefficients=coefficients, intercept=intercept), 8, random_state=0)
    K = expansion.kernel(np.vstack([expansion.points, small.expansion.points]))
    left = np.vstack([coefficients, -small.expansion.coefficients])[:, :p]
    distances = np.diagonal(left.T @ K @ left)
    norms = np.diagonal(expansion.coefficients.T @ expansion.kernel(expansion.points) @ expansion.coefficients)
    assert small.relative_distance == pytest.approx(np.mean(distances / norms), rel=1e-5)


def test_distances_fall_and_their_last_is_that_of_the_result(single):
    small = reduce_expansion(single, 8, random_state=0)
    assert np.all(np.diff(small.distances) <= 0)
    assert len(small.distances) > 8
    K = single.kernel(np.vstack([single.points, small.expansion.points]))
    left = np.vstack([single.coefficients, -small.expansion.coefficients])
    norm = (single.coefficients.T @ single.kernel(single.points) @ single.coefficients)[0, 0]
    assert small.distances[-1] == pytest.approx((left.T @ K @ left)[0, 0], rel=1e-5)
    assert small.relative_distance == pytest.approx((left.T @ K @ left)[0, 0] / norm, rel=1e-5)
    assert len(small.differences) == 0
    built = reduce_expansion(single, 8, refine=False, random_state=0)
    np.testing.assert_array_equal(built.distances, small.distances[:8])
    assert built.n_iter == 0 < small.n_iter


def test_on_data_the_differences_fall(single):
    small = reduce_expansion(single, 8, metric="data", inputs=X, random_state=0)
    assert np.all(np.diff(small.differences) < 0)
    difference = np.mean((small.expansion.evaluate(X) - single.evaluate(X)) ** 2)
    assert small.differences[-1] == pytest.approx(difference, rel=1e-6)
    assert len(small.distances) == 8
    other = reduce_expansion(single, 8, random_state=0)
    assert difference < np.mean((other.expansion.evaluate(X) - single.evaluate(X)) ** 2)


@pytest.mark.parametrize("n_vectors", [150, 151, 10_000])
def test_as_many_vectors_as_points_predict_the_same(expansion, n_vectors):
    small = reduce_expansion(expansion, n_vectors, random_state=0)
    np.testing.assert_allclose(small.expansion.evaluate(X), expansion.evaluate(X), rtol=0, atol=1e-6)
    assert small.relative_distance == 0


def test_duplicates_and_points_without_coefficients_do_not_count(expansion):
    twice = KernelExpansion(
        expansion.kernel,
        np.concatenate([expansion.points[:10], expansion.points[:10], X[:50] + 9]),
        np.concatenate([expansion.coefficients[:10], 2 * expansion.coefficients[:10], np.zeros((50, 2))]),
        expansion.intercept,
    )
    small = reduce_expansion(twice, 10)
    np.testing.assert_array_equal(small.expansion.points, expansion.points[:10])
    np.testing.assert_allclose(small.expansion.evaluate(X), twice.evaluate(X), rtol=1e-10)


def test_an_expansion_that_is_zero_keeps_its_intercept():
    zero = KernelExpansion(Gaussian(), X, np.zeros((150, 2)), np.array([1.0, -2.0]))
    for n_vectors, tol in ((3, None), (None, 0.1)):
        small = reduce_expansion(zero, n_vectors, tol=tol)
        np.testing.assert_array_equal(small.expansion.evaluate(X), np.tile([1.0, -2.0], (150, 1)))
    one_output = replace(zero, coefficients=np.column_stack([np.zeros(150), np.ones(150)]))
    small = reduce_expansion(one_output, 5, random_state=0).expansion
    np.testing.assert_allclose(small.evaluate(X)[:, 0], 1.0, atol=1e-12)


def test_coefficients_that_cancel_leave_the_intercept():
    opposite = KernelExpansion(Linear(), np.array([[1.0], [-2.0], [4.0]]), np.array([[2.0], [3.0], [1.0]]), np.ones(1))
    for options in ({"n_vectors": 1}, {"tol": 0.1}, {"n_vectors": 2, "metric": "data"}):
        small = reduce_expansion(opposite, **options)
        np.testing.assert_allclose(small.expansion.evaluate(X[:, :1]), 1.0, atol=1e-12)
        assert len(small.expansion.points) == 1


def test_coefficients_that_cancel_to_rounding_leave_the_intercept():
    points = np.random.default_rng(0).normal(size=(30, 2))
    coefficients = np.random.default_rng(1).normal(size=(30, 1))
    coefficients -= points @ np.linalg.lstsq(points, coefficients, rcond=None)[0]  # Σ α x = 0
    small = reduce_expansion(KernelExpansion(Linear(), points, coefficients, np.ones(1)), 5, random_state=0)
    np.testing.assert_allclose(small.expansion.evaluate(points), 1.0, atol=1e-9)


def test_outputs_that_are_constant_have_no_units():
    values = np.column_stack([np.ones(50) + 1e-16, np.zeros(50), np.linspace(0, 1, 50)])
    assert relative_difference(values, np.add(values, [0.1, 0.1, 0.0])) == pytest.approx(0.1)
    assert relative_difference(values, np.add(values, [0, 0, np.std(values[:, 2])])) == pytest.approx(1.0)


def test_a_smooth_function_is_not_given_vectors_that_say_nothing():
    smooth = ExactRegressor(Gaussian(30.0), noise=1e-6, intercept=False).fit(X, Y).expansion_
    small = reduce_expansion(smooth, 100, random_state=0, max_iter=20)
    assert len(small.expansion.points) < 60
    assert relative_difference(smooth.evaluate(X), small.expansion.evaluate(X)) < 1e-3


def test_one_point_float32_and_arrays_that_cannot_be_written(single):
    one = replace(single, points=single.points[:1], coefficients=single.coefficients[:1], variance=None)
    assert len(reduce_expansion(one, 1).expansion.points) == 1
    points = np.asfortranarray(single.points.astype(np.float32))
    points.flags.writeable = False
    as32 = replace(single, points=points, variance=None)
    as64 = replace(single, points=points.astype(np.float64), variance=None)
    a, b = (reduce_expansion(e, 6, random_state=0).expansion for e in (as32, as64))
    np.testing.assert_array_equal(a.points, b.points)


@pytest.mark.parametrize(
    "kernel",
    [Matern(nu=0.5), Matern(2.0, nu=1.5), Gaussian() + Linear(), Gaussian(2.0) * Polynomial(2),
     CompactGaussian(exponent=3)],
    ids=str,
)  # fmt: skip
def test_any_kernel_with_gradients(kernel):
    big = ExactRegressor(kernel, noise=0.1, intercept=False).fit(X, Y[:, 0]).expansion_
    small = reduce_expansion(big, 20, random_state=0, max_iter=100)
    built = reduce_expansion(big, 20, refine=False, random_state=0)
    assert relative_difference(big.evaluate(X), small.expansion.evaluate(X)) < 0.1
    assert small.relative_distance < 0.98 * built.relative_distance


@pytest.mark.parametrize(("kernel", "rank"), [(Linear(), 2), (Polynomial(3, scale=0.5), 10)], ids=str)
@pytest.mark.parametrize("metric", ["feature", "data"])
def test_a_kernel_of_low_rank_needs_no_more_vectors_than_its_rank(kernel, rank, metric):
    big = ExactRegressor(kernel, noise=0.1, intercept=False).fit(X, Y).expansion_
    small = reduce_expansion(big, 20, metric=metric, random_state=0)
    assert len(small.expansion.points) <= rank
    assert relative_difference(big.evaluate(X), small.expansion.evaluate(X)) < 1e-5


def test_the_offset_is_the_mean_difference(single):
    inputs = X[:40] + 0.1
    plain = reduce_expansion(single, 4, refine=False, offset=False, random_state=0).expansion
    assert plain.intercept == single.intercept
    for where, rows in ((None, single.points), (inputs, inputs)):
        moved = reduce_expansion(single, 4, refine=False, inputs=where, random_state=0).expansion
        expected = np.mean(single.evaluate(rows) - plain.evaluate(rows), axis=0)
        np.testing.assert_allclose(moved.intercept - plain.intercept, expected, rtol=1e-9)


def test_the_same_seed_gives_the_same_result_whatever_the_threads(single):
    a, b = (reduce_expansion(single, 5, random_state=3, n_jobs=n) for n in (1, 2))
    np.testing.assert_allclose(a.expansion.points, b.expansion.points, rtol=1e-6)


# ------------------------------------------------------------------------------------------------ sizes by tolerance


@pytest.mark.parametrize("metric", ["feature", "data"])
def test_a_tolerance_gives_a_size_that_keeps_it_and_one_less_does_not(expansion, metric, monkeypatch):
    differences, sizes, shrink = [], [], reduced_set._Shrinker.shrink

    def difference(values, others):
        differences.append(relative_difference(values, others))
        return differences[-1]

    def counted(shrinker, n_vectors):
        sizes.append(n_vectors)
        return shrink(shrinker, n_vectors)

    monkeypatch.setattr(reduced_set, "relative_difference", difference)
    monkeypatch.setattr(reduced_set._Shrinker, "shrink", counted)
    new = np.random.default_rng(4).uniform(-2, 2, size=(200, 2))
    options = {"inputs": new, "metric": metric, "random_state": 0, "max_iter": 60}
    found = reduce_expansion(expansion, tol=0.2, **options)
    tried = dict(zip(sizes, differences, strict=True))
    size = len(found.expansion.points)
    assert tried[size] < 0.2 <= tried[size - 1]
    if metric == "feature":
        assert relative_difference(expansion.evaluate(new), found.expansion.evaluate(new)) == tried[size]
    tighter = reduce_expansion(expansion, tol=0.05, **options)
    assert len(tighter.expansion.points) > size


def test_a_tolerance_that_few_vectors_cannot_keep(single):
    with pytest.warns(ConvergenceWarning, match=r"6 vectors differ by .* tol is 1e-06"):
        found = reduce_expansion(single, 6, tol=1e-6, random_state=0)
    assert len(found.expansion.points) == 6
    few = replace(single, points=single.points[:7], coefficients=single.coefficients[:7], variance=None)
    whole = reduce_expansion(few, tol=1e-14, random_state=0, max_iter=5)
    np.testing.assert_array_equal(whole.expansion.points, few.points)
    loose = reduce_expansion(single, tol=100.0, random_state=0)
    assert len(loose.expansion.points) == 1


# ------------------------------------------------------------------------------------------------ arguments


def test_inputs_that_are_not_finite_are_refused(single):
    with pytest.raises(ValueError, match="inputs contain NaN"):
        reduce_expansion(single, 3, inputs=np.full((4, 2), np.nan))


def test_expansions_that_cannot_be_reduced(single):
    for points, match in ((np.empty((0, 2)), "no points"), (np.full((150, 2), np.nan), "must be finite")):
        broken = replace(single, points=points, coefficients=np.ones((len(points), 1)), variance=None)
        with pytest.raises(ValueError, match=match):
            reduce_expansion(broken, 3)
    with pytest.raises(ValueError, match="precomputed"):
        reduce_expansion(replace(single, kernel=Precomputed()), 3)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_coefficients_whose_squares_are_no_numbers_are_refused(single, factor):
    with pytest.raises(ValueError, match="Scale the targets"):
        reduce_expansion(replace(single, coefficients=single.coefficients * factor, variance=None), 3)


def test_without_gradient_vectors_are_points(single):
    rough = replace(single, kernel=Function(laplacian_kernel), variance=None)
    with pytest.raises(ValueError, match=r"Function has no gradient.*refine=False"):
        reduce_expansion(rough, 5)
    small = reduce_expansion(rough, 30, refine=False, random_state=0)
    assert all(np.any(np.all(rough.points == point, axis=1)) for point in small.expansion.points)
    assert small.relative_distance < 0.5


def test_inputs_may_be_a_frame_of_integers(single):
    frame = pd.DataFrame({"a": [0, 1, -1], "b": [1, 0, 1]})
    a = reduce_expansion(single, 4, inputs=frame, random_state=0)
    b = reduce_expansion(single, 4, inputs=frame.to_numpy(np.float32), random_state=0)
    np.testing.assert_array_equal(a.expansion.intercept, b.expansion.intercept)
