"""Each strategy against its definition, in dense algebra on few rows."""

import numpy as np
import pytest
from scipy.stats import chisquare
from scipy.stats import uniform as uniform_law
from threadpoolctl import threadpool_limits

from mercer import CommitteeRegressor, NystromRegressor
from mercer.basis import (
    Distribution,
    ForwardSelection,
    KMeans,
    Leverage,
    PivotedCholesky,
    Sequential,
    SparseGreedy,
    SupervisedCholesky,
    Uniform,
    nystrom_error,
    ridge_leverage_scores,
)
from mercer.engine import Threads, as_rows
from mercer.kernels import Gaussian, Matern
from tests.doubles import GuardedRows

N = 150
STRATEGIES = [
    Uniform(),
    KMeans(),
    KMeans("rows"),
    Distribution("gaussian"),
    Distribution("kde"),
    Leverage(),
    PivotedCholesky("random"),
    PivotedCholesky("greedy"),
    PivotedCholesky("random", store=True),
    SupervisedCholesky(look_ahead=10),
    ForwardSelection(20),
    ForwardSelection(None),
    SparseGreedy(0.1),
    SparseGreedy(0.1, candidates=None),
    Sequential(gain_tol=0.0, novelty_tol=1e-6),
    Sequential(selection="novelty", novelty_tol=1e-6),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, 2))
    targets = np.column_stack([np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=N), rows[:, 1] ** 2])
    return rows, targets, rng.uniform(0.1, 2.0, size=N)


def select(strategy, rows, targets, n_basis, *, kernel=None, weights=None, seed=0):
    return strategy.select(
        rows if isinstance(rows, GuardedRows) else as_rows(rows),
        targets,
        kernel or Gaussian(1.0),
        n_basis,
        weights=weights,
        random_state=np.random.RandomState(seed),
        executor=Threads(1),
    )


# ------------------------------------------------------------------------------------------------- all of them


@each_strategy
def test_points_are_the_rows_that_the_index_names(strategy, data):
    rows, targets, weights = data
    basis = select(strategy, rows, targets, 20, weights=weights)
    assert basis.points.shape == (20, 2)
    assert basis.points.dtype == np.float64
    assert basis.note == ""
    if basis.index is not None:
        np.testing.assert_array_equal(basis.points, rows[basis.index])
        assert len(np.unique(basis.index)) == 20


@each_strategy
def test_the_same_random_state_gives_the_same_points(strategy, data):
    rows, targets, _ = data
    first, second = (select(strategy, rows, targets, 15, seed=3).points for _ in range(2))
    np.testing.assert_array_equal(first, second)


@each_strategy
def test_rows_of_weight_zero_are_never_chosen(strategy, data):
    rows, targets, weights = data
    weights = np.where(np.arange(N) % 2, weights, 0.0)
    basis = select(strategy, rows, targets, 40, weights=weights)
    if basis.index is not None:
        assert np.all(weights[basis.index] > 0)


@each_strategy
def test_duplicates_give_fewer_points_and_say_so(strategy, data):
    rows, targets, _ = data
    twice = np.repeat(rows[:6], 10, axis=0)
    basis = select(strategy, twice, np.repeat(targets[:6], 10, axis=0), 20)
    if isinstance(strategy, (Uniform, Distribution, Leverage)):
        assert len(basis.points) == 20  # draws do not look; the estimator leaves out what is spanned
    else:
        assert len(basis.points) <= 6
        assert f"{len(basis.points)} of 20 points" in basis.note
    model = NystromRegressor(Gaussian(1.0), basis=strategy, n_basis=20, random_state=0, noise=0.1, intercept=False)
    assert np.all(np.isfinite(model.fit(twice, np.repeat(targets[:6], 10, axis=0)).predict(rows)))


@each_strategy
def test_fewer_rows_than_points(strategy, data):
    rows, targets, _ = data
    basis = select(strategy, rows[:5], targets[:5], 20)
    if isinstance(strategy, Distribution):
        assert len(basis.points) == 20
    else:
        assert len(basis.points) <= 5
        assert "of 20 points" in basis.note


@each_strategy
@pytest.mark.parametrize("estimator", [NystromRegressor, CommitteeRegressor])
def test_every_estimator_on_a_basis_takes_it(estimator, strategy, data):
    rows, targets, _ = data
    model = estimator(Matern(1.0), basis=strategy, n_basis=40, noise=1e-2, random_state=0).fit(rows, targets)
    assert model.score(rows, targets) > 0.5


@each_strategy
def test_rows_are_read_through_the_engine(strategy, data):
    rows, targets, _ = data
    guarded = select(strategy, GuardedRows(rows), targets, 15)
    np.testing.assert_array_equal(guarded.points, select(strategy, rows, targets, 15).points)


# --------------------------------------------------------------------------------------------- pivoted Cholesky


def dense_greedy(K, number):
    residual, factor, pivots = np.diagonal(K).copy(), np.zeros((len(K), number)), []
    for j in range(number):
        pivot = int(np.argmax(residual))
        pivots.append(pivot)
        factor[:, j] = (K[:, pivot] - factor[:, :j] @ factor[pivot, :j]) / np.sqrt(residual[pivot])
        residual -= factor[:, j] ** 2
        residual[pivot] = 0.0
    return pivots, np.sum(residual) / np.trace(K)


@pytest.mark.parametrize("store", [False, True])
def test_greedy_pivots_are_those_of_the_dense_decomposition(store):
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(size=(800, 3)), 5 + 0.1 * rng.normal(size=(200, 3))])
    pivots, left = dense_greedy(Gaussian(1.0)(rows), 60)
    basis = select(PivotedCholesky("greedy", store=store), rows, np.zeros((1000, 1)), 60)
    assert basis.index.tolist() == pivots
    assert basis.residual_trace == pytest.approx(left, rel=1e-9)


def test_greedy_pivots_stop_at_the_first_point_that_reaches_the_tolerance():
    rows = np.random.default_rng(2).normal(size=(400, 2))
    K = Gaussian(1.0)(rows)
    basis = select(PivotedCholesky("greedy", tol=0.05), rows, np.zeros((400, 1)), 100)
    size = len(basis.index)
    assert dense_greedy(K, size)[1] <= 0.05 < dense_greedy(K, size - 1)[1]
    assert "the tolerance is reached" in basis.note


@pytest.mark.parametrize("block_size", [4, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 30))])
def test_random_pivots_have_the_law_of_one_at_a_time(block_size):
    # The set of the first two of five pivots' candidates: P(i, j) = d_i/Σd · d_j|i/Σd_|i, whatever the block size.
    rows = np.array([[0.0], [0.3], [1.0], [2.5], [2.6]])
    K, draws = Gaussian(1.0)(rows), 4000
    expected = np.zeros((5, 5))
    for i in range(5):
        residual = np.diagonal(K) - K[:, i] ** 2 / K[i, i]
        expected[i] = np.maximum(residual, 0) / np.sum(np.maximum(residual, 0)) / 5
        expected[i, i] = 0.0
    counts = np.zeros((5, 5))
    random_state = np.random.RandomState(0)
    strategy, executor = PivotedCholesky("random", block_size=block_size), Threads(1)
    options = {"weights": None, "random_state": random_state, "executor": executor}
    with threadpool_limits(1, user_api="blas"):  # to wake threads for five rows takes ten times as long
        for _ in range(draws):
            index = strategy.select(as_rows(rows), np.zeros((5, 1)), Gaussian(1.0), 2, **options).index
            counts[index[0], index[1]] += 1
    off = ~np.eye(5, dtype=bool)
    assert chisquare(counts[off], draws * expected[off] / np.sum(expected[off])).pvalue > 1e-3


# ---------------------------------------------------------------------------------------- supervised strategies


def cost(K, targets, weights, chosen, noise):
    columns = K[:, chosen]
    system = columns.T @ (weights[:, np.newaxis] * columns) + noise * K[np.ix_(chosen, chosen)]
    right = columns.T @ (weights[:, np.newaxis] * targets)
    return np.sum(weights[:, np.newaxis] * targets**2) - np.sum(right * np.linalg.lstsq(system, right, rcond=None)[0])


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("candidates", [None, N])
def test_forward_selection_is_refitting_every_candidate(data, noise, candidates):
    rows, targets, weights = data
    K, chosen = Gaussian(1.0)(rows), []
    for _ in range(10):
        costs = [np.inf if i in chosen else cost(K, targets, weights, [*chosen, i], noise) for i in range(N)]
        chosen.append(int(np.argmin(costs)))
    strategy = SparseGreedy(noise, candidates=candidates) if noise else ForwardSelection(candidates)
    assert select(strategy, rows, targets, 10, weights=weights).index.tolist() == chosen


def test_gcv_stops_forward_selection_at_its_least(data):
    rows, targets, _ = data
    basis = select(ForwardSelection(None, stop="gcv"), rows, targets[:, :1], 100)
    K, size = Gaussian(1.0)(rows), len(basis.index)
    ones = np.ones(N)

    def gcv(m):
        return cost(K, targets[:, :1], ones, basis.index[:m].tolist(), 0.0) / (1 - m / N) ** 2

    assert size < 100
    assert "generalised cross-validation" in basis.note
    assert gcv(size) <= min(gcv(m) for m in range(1, size))


@pytest.mark.parametrize("trade_off", [0.0, 0.5, 0.99, 1.0])
def test_csi_with_all_columns_ahead_is_its_definition(data, trade_off):
    rows, targets, weights = (part[:80] for part in data)
    kernel, chosen = Matern(1.0, nu=1.5), []
    K = kernel(rows)

    def objective(index):
        columns = K[:, index]
        left = weights @ (1 - np.einsum("ij,ji->i", columns, np.linalg.solve(K[np.ix_(index, index)], columns.T)))
        roots = np.sqrt(weights)[:, np.newaxis]
        fitted = np.linalg.lstsq(roots * columns, roots * targets, rcond=None)[0]
        residual = roots * (targets - columns @ fitted)
        total = np.sum(weights[:, np.newaxis] * targets**2)
        return (1 - trade_off) * left / np.sum(weights) + trade_off * np.sum(residual**2) / total

    for _ in range(8):
        values = [np.inf if i in chosen else objective([*chosen, i]) for i in range(80)]
        chosen.append(int(np.argmin(values)))
    strategy = SupervisedCholesky(trade_off, look_ahead=80)
    basis = select(strategy, rows, targets, 8, kernel=kernel, weights=weights)
    assert basis.index.tolist() == chosen


# ------------------------------------------------------------------------------------------------------ others


@pytest.mark.parametrize("noise", [1.0, *(pytest.param(noise, marks=pytest.mark.slow) for noise in (0.1, 10.0))])
def test_leverage_scores_are_within_a_factor_of_the_exact_ones(noise):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(1500, 3)), 5 + 0.1 * rng.normal(size=(300, 3))])
    K = Gaussian(1.0)(rows)
    exact = np.diagonal(K @ np.linalg.inv(K + noise * np.eye(len(rows))))
    scores = ridge_leverage_scores(
        as_rows(rows), Gaussian(1.0), 300, noise=noise, random_state=np.random.RandomState(0), executor=Threads(1)
    )
    # Half the rows, with weights of at most 1/p, give at most (with 1 - ε) 1/(1 - ε) and more than the score itself.
    assert np.all(scores <= 6 * exact)
    assert np.all(scores >= exact / 2)


def test_laws_that_are_given_are_used(data):
    rows, targets, _ = data
    points = select(Distribution(uniform_law(5, 1)), rows, targets, 30).points
    assert points.shape == (30, 2)
    assert np.all((points >= 5) & (points <= 6))
    calls = select(Distribution(lambda n, random: random.normal(size=(n, 2)) + 100), rows, targets, 30).points
    assert np.all(calls > 90)
    with pytest.raises(ValueError, match="law must draw finite points of shape"):
        select(Distribution(lambda n, _: np.zeros((n, 5))), rows, targets, 3)


def test_fitted_laws_have_the_moments_of_the_rows():
    rows = np.random.default_rng(0).normal(size=(5000, 2)) @ [[2.0, 1.0], [0.0, 0.5]] + [1e6, 3.0]
    points = select(Distribution("gaussian"), rows, np.zeros((5000, 1)), 20_000).points
    np.testing.assert_allclose(np.mean(points, axis=0), np.mean(rows, axis=0), atol=0.05)
    np.testing.assert_allclose(np.cov(points.T), np.cov(rows.T), atol=0.15)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (PivotedCholesky("best"), "pivots"),
        (PivotedCholesky(tol=1.0), "tol"),
        (PivotedCholesky(block_size=0), "block_size"),
        (KMeans("middle"), "points"),
        (Leverage(noise=0.0), "noise"),
        (Distribution("cauchy"), "law"),
        (Distribution(3), "law"),
        (ForwardSelection(0), "candidates"),
        (ForwardSelection(stop="never"), "stop"),
        (SparseGreedy(-1.0), "noise"),
        (SupervisedCholesky(2.0), "trade_off"),
        (SupervisedCholesky(look_ahead=0), "look_ahead"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused_by_name(strategy, name, data):
    with pytest.raises(ValueError, match=f"'{name}' parameter of {type(strategy).__name__} must be"):
        select(strategy, data[0], data[1], 5)


def test_nystrom_error_against_the_dense_matrices(data):
    rows, kernel = data[0], Gaussian(0.7)
    error = nystrom_error(rows, rows[:20], kernel)
    K = kernel(rows)
    rest = K - kernel(rows, rows[:20]) @ np.linalg.solve(kernel(rows[:20]), kernel(rows[:20], rows))
    assert error.trace_error == pytest.approx(np.trace(rest), rel=1e-9)
    assert error.frobenius == pytest.approx(np.linalg.norm(K), rel=1e-12)
    assert error.frobenius_error == pytest.approx(np.linalg.norm(rest), rel=1e-9)
    assert error.frobenius_error <= error.trace_error
    assert "20 basis points (rank 20)" in str(error)


@pytest.mark.parametrize("n_outliers", [0, 20])
@pytest.mark.parametrize("kernel", [Gaussian(2.0), Gaussian(0.3), Gaussian(0.02), Matern(1.0)], ids=str)
def test_nystrom_error_knows_its_own_error(kernel, n_outliers):
    rows = np.random.default_rng(0).normal(size=(1500, 2))
    rows[:n_outliers] += 30.0
    exact = nystrom_error(rows, rows[20:80], kernel, n_pairs_rows=1500)
    assert exact.frobenius_deviation == 0
    deviations = []
    for seed in range(20):
        error = nystrom_error(rows, rows[20:80], kernel, n_pairs_rows=200, random_state=seed)
        assert error.frobenius_error <= error.trace_error == pytest.approx(exact.trace_error)
        deviations.append((error.frobenius_error - exact.frobenius_error) / error.frobenius_deviation)
    assert np.sqrt(np.mean(np.square(deviations))) < 2.0
    assert np.mean(np.abs(deviations) < 2.0) > 0.7


def test_nystrom_error_finds_the_few_rows_that_a_basis_leaves():
    rows = np.random.default_rng(0).normal(size=(20_000, 2))
    rows[:20] += 50.0  # among themselves they are as far from each other as the others are
    error = nystrom_error(rows, rows[20:220], Gaussian(1.0), n_pairs_rows=200, random_state=0)
    far = Gaussian(1.0)(rows[:20])  # nothing of which the basis explains, and next to nothing else is left
    assert error.frobenius_error == pytest.approx(np.linalg.norm(far), rel=0.1)
    assert 0.001 < error.frobenius_deviation / error.frobenius_error < 0.2
