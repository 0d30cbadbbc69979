"""Scalable estimators read rows through the engine, a tile at a time, and store nothing of size n × m."""

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn import config_context

from mercer import CommitteeRegressor, ReducedRankRegressor
from mercer.engine.executors.threads import MOST_ROWS
from mercer.exceptions import NegativeVarianceWarning
from mercer.kernels import Gaussian
from tests.doubles import GuardedRows
from tests.walks import LEARN, ONLINE, REGRESSORS, accepts, answers, output, over, targets_for, with_options

# Rows in three or four dimensions are far apart for compact kernels.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")

SAMPLE = 2048  # rows by which a model is calibrated; a median distance is found on fewer
N_ROWS, N_BASIS = 5000, 40

# Whoever learns from batches promises bounded memory; those whose fit makes several passes have tests of their own.
SCALABLE = [cls for cls in ONLINE if "n_epochs" not in cls().get_params()]
each_estimator = over("estimator", SCALABLE)
each_regressor = over("estimator", [cls for cls in SCALABLE if cls in REGRESSORS])
each_option = with_options(
    SCALABLE,
    [
        {},
        {"intercept": True},
        {"noise": "gcv"},
        {"kernel": Gaussian(2.0)},
        {"n_jobs": 2},
        {"block_size": 1},
        {"block_size": 100},
        {"block_size": 100, "partition": "order"},
    ],
)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(N_ROWS, 4))


def guarded(rows):
    return GuardedRows(rows, longest_read=MOST_ROWS, longest_take=max(SAMPLE, N_BASIS))


def make(estimator, **options):
    return estimator(**{"n_basis": N_BASIS, "random_state": 0} | options)


def test_the_walk_over_public_names_finds_the_scalable_estimators():
    assert {cls.__name__ for cls in SCALABLE} >= {"NystromRegressor", "NystromClassifier", "CommitteeRegressor"}


# ------------------------------------------------------------------------------------------------ guarded


# Rows that are taken besides: for a median distance, a basis, the choice of the noise, and calibration.
SAMPLED = 1000 + N_BASIS + 1500 + SAMPLE


def is_one_pass(source, *, n_used=N_ROWS, again=0):
    """Whether each row was read once, by tiles or (the blocks of a committee, wherever they are) taken by number.

    ``again`` are rows that may be read once more: a committee calibrates itself by whole blocks.
    """
    return n_used <= source.rows_read + source.rows_taken <= n_used + SAMPLED + 1 + again


@each_option
def test_fit_and_predict_on_guarded_rows_equal_those_on_the_array(estimator, options, rows):
    y = targets_for(estimator, rows)
    source = guarded(rows)
    weights = np.linspace(0.0, 2.0, N_ROWS)
    model = make(estimator, **options).fit(source, y, weights)
    expected = make(estimator, **options).fit(rows, y, weights)
    again = N_ROWS if estimator is CommitteeRegressor and options.get("block_size") != 1 else 0
    assert is_one_pass(source, n_used=N_ROWS - 1, again=again), "one pass over the data"
    assert again or source.rows_read == N_ROWS
    said = answers(expected, rows)
    for method, answer in answers(model, guarded(rows)).items():
        np.testing.assert_array_equal(answer, said[method])


@pytest.mark.parametrize(
    ("options", "read"),
    [({"partition": "order"}, True), ({"block_size": 1}, True), ({"block_size": 100}, False)],
    ids=str,
)
def test_a_committee_reads_blocks_that_are_in_order_and_takes_others(options, read, rows):
    source = guarded(rows)
    make(CommitteeRegressor, **options).fit(source, rows[:, 0])
    assert is_one_pass(source, again=N_ROWS)
    assert (source.rows_read >= N_ROWS) == read


@each_option
def test_partial_fit_and_forget_on_guarded_rows_equal_those_on_the_array(estimator, options, rows):
    y = targets_for(estimator, rows)
    model, expected = make(estimator, **options), make(estimator, **options)
    for part in (slice(0, 2000), slice(2000, N_ROWS)):
        model.partial_fit(guarded(rows[part]), y[part])
        expected.partial_fit(rows[part], y[part])
    np.testing.assert_array_equal(output(model, guarded(rows)), output(expected, rows))
    if hasattr(estimator, "forget"):
        model.forget(guarded(rows[:100]), y[:100])
        np.testing.assert_array_equal(output(model, rows), output(expected.forget(rows[:100], y[:100]), rows))


@each_estimator
def test_small_working_memory_makes_small_tiles(estimator, rows):
    # 0.1 MB, if one thread has all of it, is 327 rows of float64 values at 40 points.
    source = GuardedRows(rows, longest_read=(1 << 20) // 10 // (8 * N_BASIS), longest_take=SAMPLE)
    options = {"noise": 0.1} if accepts(estimator, {"noise": 0.1}) else {}
    with config_context(working_memory=0.1):
        model = make(estimator, **options).fit(source, targets_for(estimator, rows))
        output(model, source)
    expected = output(make(estimator, **options).fit(rows, targets_for(estimator, rows)), rows)
    # λ governs the conditioning: rounding grows by n/λ = 5e4 to 1e-11.
    np.testing.assert_allclose(output(model, rows), expected, rtol=0, atol=1e-9 * np.max(np.abs(expected)))


@each_regressor
def test_error_bars_on_guarded_rows(estimator, rows):
    model = make(estimator).fit(guarded(rows), rows[:, 0])
    np.testing.assert_array_equal(
        model.predict(guarded(rows), return_std=True)[1], model.predict(rows, return_std=True)[1]
    )


@each_regressor
def test_covariance_on_guarded_rows(estimator, rows):
    model = make(estimator).fit(rows, rows[:, 0])
    few = rows[:50]
    np.testing.assert_array_equal(
        model.predict(guarded(few), return_cov=True)[1], model.predict(few, return_cov=True)[1]
    )


@pytest.mark.parametrize("options", [{}, {"intercept": True}, {"n_jobs": 2}], ids=str)
def test_a_model_of_all_rows_takes_them_from_guarded_rows(options, rows):
    # The reduced rank approximation keeps the rows: one pass for the sums, and all of them taken for the model.
    source, y = GuardedRows(rows, longest_read=MOST_ROWS), rows[:, 0]
    weights = np.linspace(0.0, 2.0, N_ROWS)
    model = make(ReducedRankRegressor, **options).fit(source, y, weights)
    assert source.rows_read == N_ROWS
    assert source.rows_taken == 1000 + SAMPLE + N_BASIS + N_ROWS - 1
    expected, few = make(ReducedRankRegressor, **options).fit(rows, y, weights), rows[:50]
    np.testing.assert_array_equal(model.predict(guarded(rows)), expected.predict(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeVarianceWarning)  # away from the basis points
        for spread in ({"return_std": True}, {"return_cov": True}):
            np.testing.assert_array_equal(model.predict(guarded(few), **spread)[1], expected.predict(few, **spread)[1])


@each_estimator
def test_rows_of_another_width_are_refused(estimator, rows):
    model = make(estimator).fit(guarded(rows), targets_for(estimator, rows))
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4"):
        output(model, guarded(rows[:, :3]))


# ------------------------------------------------------------------------------------------------- memory

LARGE, WIDTH, POINTS = 200_000, 4, 50
# n·m·8 bytes are 80 MB. What may be stored: a few tiles of 2 MB per thread, and a few vectors of n (1.6 MB each).
BOUND = LARGE * POINTS * 8 // 4


def peak_of(function):
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def large():
    return np.random.default_rng(0).normal(size=(LARGE, WIDTH))


def make_large(estimator, **options):
    few = {"n_components": 2} if "n_components" in estimator().get_params() else {}  # of what is asked for
    return make(estimator, n_basis=POINTS, kernel=Gaussian(2.0), **few, **options)


@pytest.mark.slow
@with_options(
    SCALABLE,
    [{}, {"noise": "gcv"}, {"n_jobs": 2}, {"block_size": 1}, {"partition": "order"}],
)
@pytest.mark.parametrize("source", [np.asarray, guarded, np.asfortranarray], ids=["array", "guarded", "fortran"])
def test_nothing_of_size_n_by_m_is_stored(estimator, options, source, large):
    y, X = targets_for(estimator, large), source(large)
    make_large(estimator, **options).fit(large[:500], y[:500])  # compile first
    model, peak = peak_of(lambda: make_large(estimator, **options).fit(X, y))
    # A committee chooses its noise by an exact model of 1500 rows: six matrices of 18 MB, however many rows there are.
    assert peak < BOUND + (6 * 8 * 1500**2 if estimator is CommitteeRegressor else 0)
    _, peak = peak_of(lambda: output(model, X))
    assert peak < BOUND


def test_a_model_of_all_rows_stores_them_and_nothing_of_size_n_by_m(large):
    make_large(ReducedRankRegressor, noise=0.1).fit(large[:500], large[:500, 0])
    _, peak = peak_of(lambda: make_large(ReducedRankRegressor, noise=0.1).fit(large, large[:, 0]))
    assert peak < large.nbytes + BOUND


@pytest.mark.slow
@each_estimator
def test_the_median_distance_needs_no_more_however_many_rows(estimator, large):
    y = targets_for(estimator, large)
    _, small = peak_of(lambda: make(estimator, n_basis=POINTS).fit(large[:SAMPLE], y[:SAMPLE]))
    _, peak = peak_of(lambda: make(estimator, n_basis=POINTS).fit(large, y))
    assert peak < small + BOUND


@over("estimator", ONLINE)
def test_partial_fit_has_bounded_memory(estimator, large):
    y = targets_for(estimator, large)
    model = make_large(estimator).partial_fit(large[:1000], y[:1000])
    _, peak = peak_of(lambda: model.partial_fit(large, y))
    assert peak < BOUND


@each_regressor
def test_error_bars_have_bounded_memory(estimator, large):
    model = make_large(estimator).fit(large[:1000], large[:1000, 0])
    _, peak = peak_of(lambda: model.predict(large, return_std=True))
    assert peak < BOUND


# -------------------------------------------------------------------------------------------- memory maps


def mapped(array, folder, *, order="C"):
    path = folder / "rows.dat"
    written = np.memmap(path, dtype=array.dtype, mode="w+", shape=array.shape, order=order)
    written[...] = array
    written.flush()
    return np.memmap(path, dtype=array.dtype, mode="r", shape=array.shape, order=order)


@each_estimator
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "dtype",
    [np.float64, *(pytest.param(other, marks=pytest.mark.slow) for other in (np.float32, np.int16, np.uint8, ">f8"))],
)
def test_memory_maps_give_the_model_of_the_array(estimator, rows, tmp_path, dtype, order):
    array = (10 * np.abs(rows)).astype(dtype)
    y = targets_for(estimator, rows)
    on_disk = mapped(array, tmp_path, order=order)
    model, expected = make(estimator).fit(on_disk, y), make(estimator).fit(array, y)
    np.testing.assert_array_equal(output(model, on_disk), output(expected, array))
    assert output(model, on_disk).dtype == (np.float32 if dtype == np.float32 else np.float64)
    model, expected = make(estimator).partial_fit(on_disk, y), make(estimator).partial_fit(array, y)
    np.testing.assert_array_equal(output(model, on_disk), output(expected, array))


@each_estimator
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", [0, N_ROWS - 1])
def test_memory_maps_with_nan_or_infinity_are_refused(estimator, rows, tmp_path, bad, where):
    y = targets_for(estimator, rows)
    array = rows.copy()
    array[where, 2] = bad
    on_disk = mapped(array, tmp_path)
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        make(estimator).fit(on_disk, y)
    model = make(estimator).fit(rows, y)
    before = output(model, rows)
    for method in (getattr(model, name) for name in LEARN if hasattr(model, name)):
        with pytest.raises(ValueError, match="X contains NaN or infinity"):
            method(on_disk, y)
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        output(model, on_disk)
    np.testing.assert_array_equal(output(model, rows), before)
