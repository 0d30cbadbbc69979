"""From arguments to rows, targets, kernels and threads."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from mercer import NystromRegressor
from mercer.engine import ArrayRows, ArrayTable, as_rows
from mercer.estimators.regression import check_one_spread
from mercer.estimators.shell import (
    all_or_nothing,
    make_executor,
    read_rows,
)
from mercer.kernels import Gaussian, Linear
from mercer.methods.frame import resolve_kernel, used_rows
from tests.doubles import GuardedRows


class Shell(BaseEstimator):
    def __init__(self, n_jobs=None, verbose=0):
        self.n_jobs = n_jobs
        self.verbose = verbose


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(30, 2))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_all_or_nothing_restores_changed_added_and_deleted_attributes(error):
    shell = Shell()
    shell.kept_, shell.changed_ = "kept", "old"
    before = dict(vars(shell))
    with pytest.raises(error), all_or_nothing(shell):  # noqa: PT012  the block is what is tested
        shell.changed_, shell.added_ = "new", "added"
        del shell.kept_
        raise error
    assert vars(shell) == before


def test_all_or_nothing_keeps_what_succeeded():
    shell = Shell()
    with all_or_nothing(shell):
        shell.added_ = "added"
    assert shell.added_ == "added"


def test_arrays_are_not_copied(rows):
    source = read_rows(Shell(), rows, reset=True)
    assert isinstance(source, ArrayRows)
    assert np.shares_memory(source.read(0, 30), rows)


def test_sources_of_rows_pass_through_and_their_width_is_kept(rows):
    shell, source = Shell(), GuardedRows(rows, longest_read=0, longest_take=0)
    assert read_rows(shell, source, reset=True) is source
    assert shell.n_features_in_ == 2
    assert read_rows(shell, source, reset=False) is source


def test_sources_of_another_width_are_refused(rows):
    shell = Shell()
    read_rows(shell, as_rows(rows), reset=True)
    with pytest.raises(ValueError, match="X has 1 features, but Shell is expecting 2 features"):
        read_rows(shell, as_rows(rows[:, :1]), reset=False)


def test_a_source_forgets_the_column_names_of_an_earlier_fit(rows):
    pandas = pytest.importorskip("pandas")
    shell = Shell()
    read_rows(shell, pandas.DataFrame(rows, columns=["a", "b"]), reset=True)
    read_rows(shell, as_rows(rows), reset=True)
    assert not hasattr(shell, "feature_names_in_")


@pytest.mark.parametrize(("shape", "flat"), [((30,), True), ((30, 1), False), ((30, 3), False)])
def test_targets_are_columns_of_float64(rows, shape, flat):
    model = NystromRegressor(noise=0.1, intercept=False)
    table = model._read(rows, np.ones(shape, dtype=np.int8), None, first=True)
    assert table.coding is None
    assert table.targets.dtype == np.float64
    assert table.targets.ndim == 2
    assert model._flat is flat


def test_the_table_holds_what_was_given(rows):
    table = NystromRegressor(noise=0.1, intercept=False)._read(rows, rows[:, 0], np.ones(30), first=True)
    assert table.rows.n_rows == 30
    np.testing.assert_array_equal(table.targets[:, 0], rows[:, 0])
    np.testing.assert_array_equal(table.weights, 1.0)
    assert NystromRegressor(noise=0.1, intercept=False)._read(rows, rows[:, 0], None, first=True).weights is None


def data_of(rows, weights=None):
    return ArrayTable(as_rows(rows), np.zeros((len(rows), 1)), weights)


def test_median_length_scale_is_the_median_of_the_distances(rows):
    distances = [np.linalg.norm(rows[i] - rows[j]) for i in range(30) for j in range(i)]
    scale = resolve_kernel("gaussian", data_of(rows), None).length_scale
    assert np.min(distances) < scale < np.max(distances)
    # Between the two middle ones of 435 distances, or one of them.
    below = np.mean(np.asarray(distances) < scale)
    assert 0.495 <= below <= 0.505


def test_median_does_not_see_rows_of_weight_zero(rows):
    weights = np.ones(30)
    weights[20:] = 0.0
    far = rows.copy()
    far[20:] += 1e6
    expected = resolve_kernel("gaussian", data_of(rows[:20]), None).length_scale
    assert resolve_kernel("gaussian", data_of(far, weights), None).length_scale == expected


def test_median_of_many_rows_takes_a_sample_of_them():
    rows = np.random.default_rng(0).normal(size=(20_000, 2))
    source = GuardedRows(rows, longest_read=0, longest_take=1000)
    kernel = resolve_kernel("gaussian", ArrayTable(source, np.zeros((20_000, 1))), 0)
    assert source.rows_taken == 1000
    # The distance of two normal rows in the plane is √2 times a Rayleigh variable, of median √(2 ln 2).
    assert kernel.length_scale == pytest.approx(2 * np.sqrt(np.log(2)), rel=0.05)
    again = resolve_kernel("gaussian", ArrayTable(source, np.zeros((20_000, 1))), 0)
    assert again.length_scale == kernel.length_scale


def test_the_kernel_given_is_not_the_kernel_resolved(rows):
    kernel = Gaussian("median") + Linear()
    resolved = resolve_kernel(kernel, data_of(rows), None)
    assert kernel.left.length_scale == "median"
    assert isinstance(resolved.left.length_scale, float)
    assert resolved.right is not kernel.right


def test_threads_follow_n_jobs_and_verbose():
    threads = make_executor(Shell(n_jobs=3, verbose=1))
    assert (threads.n_jobs, threads.verbose) == (3, 1)
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        make_executor(Shell(n_jobs=0))


def test_rows_are_used_unless_their_noise_is_infinite(rows):
    np.testing.assert_array_equal(used_rows(data_of(rows), 0.1), np.arange(30))
    weights = np.ones(30)
    weights[[0, 7]], weights[9] = 0.0, 1e-300
    for noise in (0.0, 1.0):
        np.testing.assert_array_equal(used_rows(data_of(rows, weights), noise), np.delete(np.arange(30), [0, 7]))
    # 1e10 / 1e-300 is more than a float can hold
    np.testing.assert_array_equal(used_rows(data_of(rows, weights), 1e10), np.delete(np.arange(30), [0, 7, 9]))


def test_one_spread_at_a_time():
    for asked in ((False, False), (True, False), (False, True)):
        check_one_spread(*asked)
    with pytest.raises(ValueError, match="return_std and return_cov exclude each other"):
        check_one_spread(True, True)
