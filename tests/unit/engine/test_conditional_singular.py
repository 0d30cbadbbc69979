"""Where Λ is singular to rounding: rows that the basis spans, duplicates, and kernels that are none."""

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular

from mercer.engine import ArrayRows, ArrayTable, Features, Threads, conditional_statistics
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Function, Gaussian, Linear, Matern, Polynomial

M, N = 6, 24
MOST = 1e-5  # jitter beyond this share of k(x, x) would be regularisation
KERNEL = Matern(nu=0.5, amplitude=2.0)
# Rows 0, 5, 10, 15 are basis points.
SPANNED = np.arange(0, 20, 5)
OTHERS = np.setdiff1d(np.arange(N), SPANNED)
BLOCKS = {
    "none": None,
    "one": [slice(0, N)],
    "slices": [slice(0, 4), slice(4, 12), slice(12, N)],
    "arrays": np.array_split(np.random.default_rng(5).permutation(N), 3),
    "single rows": [np.array([row]) for row in range(N)],
}
every_partition = pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
every_executor = pytest.mark.parametrize("n_jobs", [1, 2])


def factor(kernel, points):
    return np.asfortranarray(cholesky(kernel(points), lower=True))


def draw(kernel=KERNEL, seed=0):
    """Rows of which some are basis points, targets, and the basis."""
    rng = np.random.default_rng(seed)
    points = 2.0 * rng.normal(size=(M, 2))
    rows = rng.normal(size=(N, 2))
    rows[SPANNED] = points[: len(SPANNED)]
    return rows, rng.normal(size=(N, 1)), Features(kernel, points, factor(kernel, points))


def sums(rows, targets, features, *, noise, blocks=None, weights=None, n_jobs=1):
    return conditional_statistics(
        ArrayTable(ArrayRows(rows), targets, weights), features, noise=noise, blocks=blocks, executor=Threads(n_jobs)
    )


def rounding_of(features):
    """Of the entries of K - VVᵀ: kernel values are rounded, magnified by L⁻¹, and summed over the features."""
    magnified = max(1.0, np.linalg.norm(np.linalg.inv(features.lower), 2))
    return 16 * len(features.lower) * np.finfo(float).eps * magnified * features.kernel.amplitude


def assert_matches(statistics, problem, *, diagonal, blocks):
    """Sums and log|Λ| are those of Λ = blocks of (K - VVᵀ), zero for rows that the basis spans, plus the diagonal.

    An error δΛ changes ZᵀΛ⁻¹Z by (Λ⁻¹Z)ᵀδΛ(Λ⁻¹Z), and log|Λ| by tr Λ⁻¹δΛ.
    """
    rows, targets, features = problem
    kernel, spanned = features.kernel, np.isin(np.arange(len(rows)), SPANNED)
    V = solve_triangular(features.lower, kernel(features.points, rows), lower=True).T
    labels = np.empty(len(rows), dtype=int)
    for label, block in enumerate(np.arange(len(rows)) if blocks is None else blocks):
        labels[block] = label
    residual = np.where(labels[:, np.newaxis] == labels, kernel(rows) - V @ V.T, 0.0)
    residual[spanned], residual[:, spanned] = 0.0, 0.0
    covariance = residual + np.diag(diagonal)
    augmented = np.column_stack([V, targets, np.ones(len(rows))])
    solved = np.linalg.solve(covariance, augmented)
    reach, error = np.sum(np.abs(solved), axis=0), rounding_of(features)
    bound = error * (np.outer(reach, reach) + reach[:, np.newaxis] + reach)
    assert np.all(np.abs(statistics.normal.sums - augmented.T @ solved) <= bound)
    slack = error * np.sum(np.abs(np.linalg.inv(covariance)))
    assert statistics.log_determinant == pytest.approx(np.linalg.slogdet(covariance)[1], abs=slack)


# ----------------------------------------------------------------------------------------- rows that the basis spans


@every_partition
@every_executor
@pytest.mark.parametrize("noise", [0.0])
def test_jitter_stands_in_for_the_noise_of_spanned_rows_alone(blocks, n_jobs, noise):
    problem = draw()
    statistics = sums(*problem, noise=noise, blocks=blocks, n_jobs=n_jobs)
    assert 0 < statistics.jitter <= MOST * KERNEL.amplitude
    diagonal = np.full(N, noise)
    diagonal[SPANNED] += statistics.jitter
    assert_matches(statistics, problem, diagonal=diagonal, blocks=blocks)
    assert statistics.n_used == N


@every_partition
def test_singular_blocks_are_counted(blocks):
    statistics = sums(*draw(), noise=0.0, blocks=blocks)
    parts = np.arange(N)[:, np.newaxis] if blocks is None else [np.arange(N)[block] for block in blocks]
    assert statistics.n_singular == sum(bool(np.any(np.isin(part, SPANNED))) for part in parts)
    assert statistics.n_blocks == len(parts)


@every_partition
def test_rows_that_are_not_spanned_keep_their_variance(blocks):
    rows, targets, features = draw()
    kept = None
    if blocks is not None:
        parts = [np.intersect1d(np.arange(N)[block], OTHERS) for block in blocks]
        kept = [np.searchsorted(OTHERS, part) for part in parts if len(part)]
    others = sums(rows[OTHERS], targets[OTHERS], features, noise=0.0, blocks=kept)
    assert (others.n_singular, others.jitter) == (0, 0.0)
    both = sums(rows, targets, features, noise=0.0, blocks=blocks)
    # Features of the first four basis points, rows of L, end with zeros: the last features are the other rows' own.
    last = slice(len(SPANNED), M)
    np.testing.assert_allclose(both.normal.gram[last, last], others.normal.gram[last, last], rtol=1e-9)
    # The spanned rows have a variance of their own, the jitter.
    left = both.log_determinant - others.log_determinant
    slack = len(SPANNED) * N * rounding_of(features) / both.jitter
    assert left == pytest.approx(len(SPANNED) * np.log(both.jitter), abs=slack)


@every_partition
@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-8])
def test_spanned_rows_keep_a_noise_that_rounding_does_not_drown(blocks, noise):
    problem = draw()
    statistics = sums(*problem, noise=noise, blocks=blocks)
    assert (statistics.n_singular, statistics.jitter) == (0, 0.0)
    assert_matches(statistics, problem, diagonal=np.full(N, noise), blocks=blocks)


@every_partition
def test_spanned_rows_alone(blocks):
    # Λ = λI: nothing but VᵀV/λ.
    rows, targets, features = draw()
    copies, noise = rows[np.resize(SPANNED, N)], 1e-6
    V = features.tile(copies)
    statistics = sums(copies, targets, features, noise=noise, blocks=blocks)
    rounding = N * rounding_of(features) / noise
    np.testing.assert_allclose(statistics.normal.gram, V.T @ V / noise, rtol=0, atol=rounding * N / noise)
    assert statistics.log_determinant == pytest.approx(N * np.log(noise), abs=N * rounding)
    assert statistics.normal.total_weight == pytest.approx(N / noise, rel=rounding)


@every_partition
def test_weights_divide_the_noise_of_spanned_rows(blocks):
    problem, weights = draw(), np.random.default_rng(1).uniform(0.5, 4.0, size=N)
    statistics = sums(*problem, noise=1e-6, blocks=blocks, weights=weights)
    assert (statistics.n_singular, statistics.jitter) == (0, 0.0)
    assert_matches(statistics, problem, diagonal=1e-6 / weights, blocks=blocks)


@every_partition
def test_units_of_the_kernel_do_not_matter_to_what_is_singular(blocks):
    rows, targets, features = draw()
    expected = sums(rows, targets, features, noise=0.0, blocks=blocks)
    rounding = N * rounding_of(features) / expected.jitter
    for amplitude in (1e-100, 1e100):
        kernel = Matern(nu=0.5, amplitude=amplitude * KERNEL.amplitude)
        scaled = Features(kernel, features.points, factor(kernel, features.points))
        statistics = sums(rows, targets, scaled, noise=0.0, blocks=blocks)
        assert statistics.n_singular == expected.n_singular
        assert statistics.jitter == pytest.approx(amplitude * expected.jitter, rel=1e-12)
        # V carries the root of the amplitude on both sides, Λ all of it.
        scale = np.max(np.abs(expected.normal.gram))
        np.testing.assert_allclose(statistics.normal.gram, expected.normal.gram, rtol=0, atol=rounding * scale)


@every_partition
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_rows_whose_kernel_values_vanish(blocks, noise):
    # k(0, 0) = 0: nothing is known of such rows' scale, and nothing is asked of them.
    rows, targets, _ = draw()
    rows[[1, 3]] = 0.0
    features = Features(Linear(), np.eye(2), np.eye(2, order="F"))
    statistics = sums(rows, targets, features, noise=noise, blocks=blocks)
    assert np.all(np.isfinite(statistics.normal.sums))
    assert (statistics.jitter > 0) == (noise == 0)
    if noise:  # the basis spans all rows: Λ = λI
        augmented = np.column_stack([rows, targets, np.ones(N)])
        np.testing.assert_allclose(statistics.normal.sums, augmented.T @ augmented / noise, rtol=1e-11, atol=1e-11)


# -------------------------------------------------------------------------------------------------------- duplicates


@pytest.mark.parametrize("copies", [2, 5])
def test_duplicates_in_a_block_without_noise_get_jitter(copies):
    _, _, features = draw()
    rng = np.random.default_rng(3)
    once, targets = rng.normal(size=(4, 2)), rng.normal(size=(4, 1))
    rows, repeated = np.tile(once, (copies, 1)), np.tile(targets, (copies, 1))
    statistics = sums(rows, repeated, features, noise=0.0, blocks=[slice(0, len(rows))])
    assert (statistics.n_singular, statistics.n_blocks) == (1, 1)
    assert 0 < statistics.jitter <= MOST * KERNEL.amplitude
    # Copies of a row, each with the jitter ε as its noise, are the row with noise ε/copies; residual variances are 0.01
    # and more, so that Λ⁻¹ changes by ε/0.01 of itself, and by rounding of Λ, 1e-15, over the ε that is left to it.
    expected = sums(once, targets, features, noise=0.0, blocks=[slice(0, 4)])
    assert (expected.n_singular, expected.jitter) == (0, 0.0)
    scale = np.max(np.abs(expected.normal.sums))
    slack = 100 * statistics.jitter / copies + 1e-14 / statistics.jitter
    np.testing.assert_allclose(statistics.normal.sums, expected.normal.sums, rtol=0, atol=slack * scale)


def test_duplicates_in_different_blocks_need_no_jitter():
    rows, targets, features = draw()
    rows, targets = rows[OTHERS], targets[OTHERS]
    n = len(rows)
    twice = sums(
        np.tile(rows, (2, 1)), np.tile(targets, (2, 1)), features, noise=0.0, blocks=[slice(0, n), slice(n, 2 * n)]
    )
    once = sums(rows, targets, features, noise=0.0, blocks=[slice(0, n)])
    assert (twice.n_singular, twice.jitter) == (0, 0.0)
    np.testing.assert_allclose(twice.normal.sums, 2 * once.normal.sums, rtol=1e-11)


def test_duplicates_without_blocks_need_no_jitter():
    rows, targets, features = draw()
    rows, targets = rows[OTHERS], targets[OTHERS]
    twice = sums(np.tile(rows, (2, 1)), np.tile(targets, (2, 1)), features, noise=0.0)
    once = sums(rows, targets, features, noise=0.0)
    assert (twice.n_singular, twice.jitter) == (0, 0.0)
    np.testing.assert_allclose(twice.normal.sums, 2 * once.normal.sums, rtol=1e-12)


@every_executor
def test_only_the_singular_block_gets_jitter(n_jobs):
    rows, targets, features = draw()
    rows, targets = rows[OTHERS].copy(), targets[OTHERS]
    n = len(rows)
    rows[1] = rows[0]
    blocks = [slice(0, 4), slice(4, n)]
    statistics = sums(rows, targets, features, noise=0.0, blocks=blocks, n_jobs=n_jobs)
    assert statistics.n_singular == 1
    alone = [
        sums(rows[block], targets[block], features, noise=0.0, blocks=[slice(0, block.stop - block.start)])
        for block in blocks
    ]
    assert [part.n_singular for part in alone] == [1, 0]
    total = alone[0] + alone[1]
    scale = np.max(np.abs(total.normal.sums))
    np.testing.assert_allclose(statistics.normal.sums, total.normal.sums, rtol=0, atol=1e-12 * scale)
    assert statistics.jitter == alone[0].jitter


@pytest.mark.parametrize("length_scale", [3.0, 10.0, 100.0])
@pytest.mark.parametrize("noise", [0.0, 1e-14])
def test_smooth_kernels_without_noise_give_finite_sums(length_scale, noise):
    # A block of a smooth kernel is singular to rounding long before its rows are spanned one by one.
    rng = np.random.default_rng(0)
    kernel = Gaussian(length_scale)
    rows, points = rng.normal(size=(60, 2)), 3 * rng.normal(size=(4, 2))
    features = Features(kernel, points, factor(kernel, points))
    for blocks in (None, [slice(0, 60)], [slice(0, 30), slice(30, 60)]):
        statistics = sums(rows, rng.normal(size=(60, 1)), features, noise=noise, blocks=blocks)
        assert np.all(np.isfinite(statistics.normal.sums))
        assert statistics.jitter <= MOST
        values = np.linalg.eigvalsh(statistics.normal.sums)
        assert np.min(values) >= -1e-12 * np.max(values), "sums of squares are positive semi-definite"


# ----------------------------------------------------------------------------------------------------------- refused


def test_a_negative_conditional_variance_is_refused():
    # |v|² > k(x, x): the basis explains more than there is.
    rows, targets, features = draw()
    half = Features(features.kernel, features.points, np.asfortranarray(features.lower / 2))
    for blocks in (None, [slice(0, N)]):
        with pytest.raises(NotPositiveDefiniteError, match=r"given the basis is negative.*not positive definite"):
            sums(rows, targets, half, noise=0.1, blocks=blocks)


def test_an_indefinite_block_is_refused():
    # k = 1 for a row and itself, 2 for different rows, 0 between rows and basis points: variances are in order, but
    # 1 + 0.1 - 2 is an eigenvalue.
    def values(a, b):
        near = np.all(np.abs(a[:, np.newaxis] - b) < 100, axis=2)
        return np.where(np.all(a[:, np.newaxis] == b, axis=2), 1.0, np.where(near, 2.0, 0.0))

    rows, targets, _ = draw()
    features = Features(Function(values), np.array([[1e6, 0.0]]), np.ones((1, 1), order="F"))
    with pytest.raises(NotPositiveDefiniteError, match=r"block of 24 rows.*noise is 0.1 or more.*larger noise"):
        sums(rows, targets, features, noise=0.1, blocks=[slice(0, N)])
    sums(rows, targets, features, noise=0.1)  # without blocks only variances are looked at
    sums(rows, targets, features, noise=1.1, blocks=[slice(0, N)])


def test_nan_between_rows_is_refused():
    def values(a, b):
        result = np.array(Gaussian()(a, b))
        result[(result < 1) & np.any(np.abs(b) < 5, axis=1)] = np.nan
        return result

    rows, targets, _ = draw()
    features = Features(Function(values), np.array([[1e6, 0.0]]), np.ones((1, 1), order="F"))
    with pytest.raises((NotPositiveDefiniteError, ValueError)):
        sums(rows, targets, features, noise=0.1, blocks=[slice(0, N)])


@pytest.mark.parametrize("blocks", [None, [slice(0, N)]], ids=["none", "one"])
def test_kernel_values_that_overflow_are_refused(blocks):
    rows, targets, _ = draw()
    points = np.array([[1.0, 0.0], [0.0, 1.0]])
    features = Features(Polynomial(3), points, factor(Polynomial(3), points))
    with pytest.raises((ValueError, NotPositiveDefiniteError), match="overflow"):
        sums(1e150 * rows, targets, features, noise=0.1, blocks=blocks)


@pytest.mark.parametrize("blocks", [None, [slice(0, N)]], ids=["none", "one"])
def test_targets_whose_squares_overflow_are_refused(blocks):
    rows, targets, features = draw()
    with pytest.raises(ValueError, match="sums over the rows overflow"):
        sums(rows, 1e200 * targets, features, noise=0.1, blocks=blocks)
