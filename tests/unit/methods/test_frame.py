"""A basis, the factor of its kernel matrix, and the model that follows from sums on it."""

import numpy as np
import pytest
from scipy.linalg import cholesky

from mercer.basis import Basis
from mercer.engine import ArrayRows, ArrayTable, Threads, normal_statistics
from mercer.estimators.shell import check_same_frame, check_same_outputs
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Function, Gaussian, Linear, Matern
from mercer.methods.frame import Frame

M, N = 7, 50
DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)


@pytest.fixture
def points():
    return 1.5 * np.random.default_rng(0).normal(size=(M, 2))


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(size=(N, 2))


@pytest.fixture
def targets():
    return np.random.default_rng(2).normal(size=(N, 2)) + np.array([3.0, -100.0])


def build(points, *, kernel=None, index=None, dtype=DOUBLE):
    return Frame.build(Matern() if kernel is None else kernel, Basis(points=points, index=index), dtype)


# ------------------------------------------------------------------------------------------------------------- build


def test_points_that_are_given_keep_their_order(points):
    frame = build(points)
    np.testing.assert_array_equal(frame.basis.points, points)
    assert frame.basis.index is None
    np.testing.assert_allclose(frame.lower, cholesky(Matern()(points), lower=True), rtol=1e-12, atol=1e-13)
    assert frame.lower.flags.f_contiguous
    np.testing.assert_array_equal(np.triu(frame.lower, 1), 0.0)


def test_points_that_are_rows_are_sorted_with_their_numbers(points, rows):
    index = np.array([4, 40, 7, 19, 33])
    frame = build(rows[index], index=index)
    np.testing.assert_array_equal(np.sort(frame.basis.index), np.sort(index))
    np.testing.assert_array_equal(frame.basis.points, rows[frame.basis.index])
    kernel = Matern()(frame.basis.points)
    np.testing.assert_allclose(frame.lower @ frame.lower.T, kernel, rtol=0, atol=1e-14 * M)


def test_the_points_of_a_frame_make_the_same_frame_to_the_bit(rows):
    first = build(np.vstack([rows, rows[:10]]), kernel=Gaussian(3.0), index=np.arange(N + 10))
    second = build(first.basis.points, kernel=Gaussian(3.0))
    np.testing.assert_array_equal(first.basis.points, second.basis.points)
    np.testing.assert_array_equal(first.lower, second.lower)
    assert first.same_as(second)


@pytest.mark.parametrize("given", [False, True])
def test_duplicates_are_dropped(points, given):
    twice = np.vstack([points, points[::-1]])
    frame = build(twice, index=None if given else np.arange(2 * M))
    assert len(frame.basis.points) == M
    assert len(np.unique(frame.basis.points, axis=0)) == M
    np.testing.assert_allclose(frame.lower @ frame.lower.T, Matern()(frame.basis.points), rtol=0, atol=1e-14 * M)


def test_float32_tiles_keep_fewer_points(rows):
    double, single = (build(rows, kernel=Gaussian(3.0), dtype=dtype) for dtype in (DOUBLE, SINGLE))
    assert len(single.basis.points) < len(double.basis.points)
    # No pivot below the rounding of a tile, relative to the largest kernel value.
    for frame in (single, double):
        assert frame.smallest_pivot > np.finfo(frame.dtype).eps * frame.largest_kernel


def test_pivots_and_kernel_values(points):
    kernel = Linear() + Matern(amplitude=2.0)
    frame = build(points, kernel=kernel)
    assert frame.largest_kernel == pytest.approx(np.max(np.sum(points**2, axis=1)) + 2.0, rel=1e-13)
    # The pivot of the last point is what those before it leave of its variance.
    before = kernel(points[:-1])
    pivots = [kernel(points[:1])[0, 0]]
    for size in range(1, M):
        cross = kernel(points[size : size + 1], points[:size])[0]
        pivots.append(kernel(points)[size, size] - cross @ np.linalg.solve(before[:size, :size], cross))
    assert frame.smallest_pivot == pytest.approx(min(pivots), rel=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1e-200])
def test_one_point_is_kept_though_all_kernel_values_vanish(points, scale):
    frame = build(scale * points, kernel=Linear())
    assert len(frame.basis.points) == 1
    assert np.all(np.isfinite(frame.lower))


def test_what_is_not_positive_definite_is_refused(points):
    with pytest.raises(NotPositiveDefiniteError, match="kernel matrix of the basis"):
        build(points, kernel=Function(lambda a, b: -Gaussian()(a, b)))


# -------------------------------------------------------------------------------------------- problem and expansion


def sums_of(frame, rows, targets, *, whitened=True, weights=None):
    features = frame.features(whitened=whitened)
    return normal_statistics(ArrayTable(ArrayRows(rows), targets, weights), features, executor=Threads(1))


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_model_is_ridge_regression_on_the_basis(points, rows, targets, whitened, intercept, weighted):
    weights = np.random.default_rng(3).uniform(0.1, 3.0, size=N) if weighted else None
    frame, shift, noise = build(points), np.array([3.0, -100.0]), 0.3
    sums = sums_of(frame, rows, targets - shift, whitened=whitened, weights=weights)
    solution = frame.problem(sums, shift, intercept=intercept).solve(noise)
    model = frame.expansion(solution, shift, prior=True)
    np.testing.assert_array_equal(model.points, points)
    # (KᵀWK + λK_mm) w = KᵀWy, with a column of ones that is not penalised for the intercept.
    W = np.diag(np.ones(N) if weights is None else weights)
    features = np.column_stack([Matern()(rows, points), np.ones((N, int(intercept)))])
    penalty = np.zeros((features.shape[1],) * 2)
    penalty[:M, :M] = noise * Matern()(points)
    system = features.T @ W @ features + penalty
    expected = np.linalg.solve(system, features.T @ W @ targets)
    # Weights are known to the condition of the system, 1e4, the function to that of its whitened form.
    np.testing.assert_allclose(model.coefficients, expected[:M], rtol=0, atol=1e-10 * np.max(np.abs(expected)))
    np.testing.assert_allclose(model.evaluate(rows), features @ expected, rtol=0, atol=1e-10 * 100)
    # var f = k(x, x) - kᵀK_mm⁻¹k + λ φᵀ(system)⁻¹φ
    explained = np.sum(features[:, :M] * np.linalg.solve(Matern()(points), features[:, :M].T).T, axis=1)
    left = noise * np.sum(features * np.linalg.solve(system, features.T).T, axis=1)
    np.testing.assert_allclose(model.variances(rows), 1.0 - explained + left, rtol=0, atol=1e-11)
    narrow = frame.expansion(solution, shift, prior=False)
    np.testing.assert_allclose(narrow.variances(rows), left, rtol=0, atol=1e-11)


def test_without_an_intercept_the_shift_is_undone(points, rows, targets):
    frame = build(points)
    plain = frame.problem(sums_of(frame, rows, targets), np.zeros(2), intercept=False).solve(0.3)
    shift = np.array([10.0, 20.0])
    shifted = frame.problem(sums_of(frame, rows, targets - shift), shift, intercept=False).solve(0.3)
    np.testing.assert_allclose(shifted.weights, plain.weights, rtol=0, atol=1e-11 * np.max(np.abs(plain.weights)))
    np.testing.assert_array_equal(frame.expansion(shifted, shift, prior=True).intercept, 0.0)


def test_unwhitened_weights(points):
    frame, u = build(points), np.random.default_rng(4).normal(size=(M, 3))
    np.testing.assert_allclose(frame.lower.T @ frame.unwhiten(u), u, rtol=1e-12, atol=1e-13)


# ---------------------------------------------------------------------------------------------------------- the same


def test_equal_frames_are_the_same(points):
    assert build(points).same_as(build(points.copy(), kernel=Matern()))


@pytest.mark.parametrize(
    "change",
    [
        {"points": "moved"},
        {"points": "fewer"},
        {"points": "reversed"},
        {"kernel": Matern(1.0 + 1e-15)},
        {"kernel": Gaussian()},
        {"dtype": SINGLE},
    ],
    ids=str,
)
def test_frames_that_differ_in_anything_are_not_the_same(points, change):
    changed = {"moved": points + 1e-12, "fewer": points[:-1], "reversed": points[::-1].copy()}
    options = {"points": points} | change
    options["points"] = changed.get(change.get("points"), points)
    frame, other = build(points), build(**options)
    assert not frame.same_as(other)
    assert not other.same_as(frame)
    with pytest.raises(ValueError, match="different kernels" if "kernel" in change else "different bases"):
        check_same_frame(frame, other)


def test_what_may_be_merged_passes(points):
    check_same_frame(build(points), build(points.copy()))
    check_same_outputs(2, 2)


def test_different_numbers_of_outputs_are_refused():
    with pytest.raises(ValueError, match="different numbers of outputs, 1 and 2"):
        check_same_outputs(1, 2)
