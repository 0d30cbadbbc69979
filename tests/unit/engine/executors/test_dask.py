import logging
import os
import signal
import threading
import warnings

import numpy as np
import pytest

import mercer
from mercer import CommitteeRegressor, NystromClassifier, NystromRegressor, OnlineRegressor, checkpoint
from mercer.engine import Threads, as_source, given_executor, using
from mercer.kernels import Gaussian
from tests.clusters import chunked, cluster, unknown

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
Dask = pytest.importorskip("mercer.engine.executors.dask").Dask
pd = pytest.importorskip("pandas")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of sockets that Dask closes late
]

N = 900
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=N)
W = RNG.integers(1, 3, N).astype(float)
EVEN = (300, 300, 300)


@pytest.fixture(scope="module")
def client():
    with cluster() as client:
        yield client


def make(**options):
    return NystromRegressor(Gaussian(1.5), **{"n_basis": 20, "noise": 0.1, "random_state": 0} | options)


def on_threads(rows, *columns, **options):
    with using(Threads(2)):
        return make(**options).fit(rows, *columns)


# ------------------------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("lengths", [(1, 898, 1), (0, 400, 0, 500, 0), (900,), (100,) * 9], ids=str)
def test_uneven_and_empty_partitions(client, lengths):
    model = make().fit(chunked(X, lengths), chunked(Y, lengths), chunked(W, lengths))
    expected = make().fit(X, Y, W)
    np.testing.assert_allclose(model.coefficients_, expected.coefficients_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.basis_index_, expected.basis_index_)


def test_unknown_lengths_are_counted(client):
    model = make().fit(unknown(chunked(X, EVEN)), unknown(chunked(Y, (0, 500, 400))))
    np.testing.assert_array_equal(model.coefficients_, make().fit(chunked(X, EVEN), chunked(Y, EVEN)).coefficients_)


def test_columns_partitioned_differently_are_cut_as_the_rows(client):
    by_columns = da.from_array(X, chunks=(300, 1))
    expected = make().fit(chunked(X, EVEN), chunked(Y, EVEN), chunked(W, EVEN))
    for rows, y, w in (
        (by_columns, chunked(Y, (450, 450)), W),
        (chunked(X, EVEN), Y.tolist(), dd.from_pandas(pd.Series(W), npartitions=5)),
    ):
        np.testing.assert_array_equal(make().fit(rows, y, w).coefficients_, expected.coefficients_)


def test_lists_of_delayed_partitions(client):
    parts, targets = (list(chunked(each, EVEN).to_delayed().ravel()) for each in (X, Y))
    model = make().fit(parts, targets)
    np.testing.assert_array_equal(model.coefficients_, make().fit(chunked(X, EVEN), chunked(Y, EVEN)).coefficients_)
    np.testing.assert_array_equal(model.predict(parts)[1].compute(), model.predict(X[300:600]))


def test_rows_are_taken_in_the_order_of_their_numbers(client):
    source = as_source(chunked(X, EVEN), chunked(np.column_stack([Y, W]), (450, 450)), W)
    for index in (np.array([899, 3, 300, 3, 299]), np.empty(0, dtype=int)):
        for given, expected in zip(
            source.take(index, ("rows", "labels", "weights")), (X, np.column_stack([Y, W]), W), strict=True
        ):
            np.testing.assert_array_equal(given, expected[index])


def test_frames_and_labels_of_any_type(client):
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).astype({"c": "Float64"})
    labels = pd.Series(np.where(Y > 0, "yes", "no"))
    lazy, classes = dd.from_pandas(frame, npartitions=3), dd.from_pandas(labels, npartitions=4)
    options = {"n_basis": 20, "noise": 0.1, "random_state": 0, "class_weight": "balanced"}
    model = NystromClassifier(Gaussian(1.5), **options).fit(lazy, classes, W)
    expected = NystromClassifier(Gaussian(1.5), **options).fit(frame.astype(float), labels, W)
    np.testing.assert_allclose(model.coefficients_, expected.coefficients_, rtol=1e-9, atol=1e-9)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    predicted = model.predict(lazy)
    assert predicted.npartitions == lazy.npartitions
    pd.testing.assert_series_equal(
        predicted.compute(), pd.Series(expected.predict(frame.astype(float))), check_dtype=False, check_names=False
    )
    probabilities = model.predict_proba(lazy).compute()
    np.testing.assert_allclose(probabilities, model.predict_proba(frame.astype(float)), rtol=0, atol=1e-12)


def test_error_bars_of_frames_are_lazy(client):
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    for targets in (Y, np.column_stack([Y, -2 * Y])):
        model = make().fit(X, targets)
        pairs = zip(model.predict(frame, return_std=True), model.predict(X, return_std=True), strict=True)
        for lazy, expected in pairs:
            np.testing.assert_allclose(lazy.compute(), expected, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="all pairs of rows"):
        model.predict(frame, return_cov=True)


def test_sequential_learners_see_rows_in_their_order(client):
    model = OnlineRegressor(Gaussian(1.5), max_basis=20).fit(chunked(X, (450, 450)), chunked(Y, EVEN))
    expected = OnlineRegressor(Gaussian(1.5), max_basis=20).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=0, atol=1e-10)


def test_blocks_of_a_committee_are_gathered_from_where_they_are(client):
    options = {"n_basis": 20, "noise": 0.1, "random_state": 0, "block_size": 70, "partition": "order"}
    model = CommitteeRegressor(Gaussian(1.5), **options).fit(chunked(X, EVEN), chunked(Y, EVEN))
    expected = CommitteeRegressor(Gaussian(1.5), **options).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=0, atol=1e-9)


# ----------------------------------------------------------------------------------------------------------- errors


def test_a_nan_names_its_row_and_nothing_else_is_written(client, monkeypatch):
    written = []
    monkeypatch.setattr(logging.getLogger("distributed.worker"), "callHandlers", written.append)
    bad = X.copy()
    bad[723, 1] = np.nan
    for rows in (chunked(bad, EVEN), da.from_array(bad, chunks=(100, 3))):
        with pytest.raises(ValueError, match=r"Input X contains NaN or infinity \(row 723, column 1\)"):
            make().fit(rows, Y)
    with pytest.raises(ValueError, match=r"Input y contains NaN or infinity \(row 723\)"):
        make().fit(chunked(X, EVEN), chunked(bad[:, 1], EVEN))
    assert not [record.getMessage() for record in written if "Compute Failed" in record.getMessage()]


def test_what_does_not_fit_together_is_refused(client):
    rows = chunked(X, EVEN)
    with pytest.raises(ValueError, match="must have the same rows: 900 and 899"):
        make().fit(rows, Y[1:])
    with pytest.raises(ValueError, match="0 sample"):
        make().fit(chunked(X[:0], (0,)), chunked(Y[:0], (0,)))
    with pytest.raises(TypeError, match="column 'b' of X must hold numbers"):
        make().fit(dd.from_pandas(pd.DataFrame({"a": Y, "b": "text"}), npartitions=2), Y)
    with pytest.raises(TypeError, match=r"y is a Dask Array.* call y.compute\(\)"):
        make().fit(X, chunked(Y, EVEN))


def test_partitions_of_another_length_than_they_had_are_noticed(client):
    shorter = da.from_delayed(dask.delayed(X)[:200], (300, 3), float)
    with pytest.raises(ValueError, match="had 300 rows has 200 now"):
        make(basis=X[:20]).fit(shorter, Y[:300])


# ---------------------------------------------------------------------------------------------------------- clients


def test_arrays_are_fitted_where_the_user_says(client):
    with mercer.on(client):
        assert given_executor().client is client
        model = make().fit(X, Y)
    assert given_executor() is None
    np.testing.assert_allclose(model.coefficients_, make().fit(X, Y).coefficients_, rtol=1e-9, atol=1e-9)
    with mercer.on(client, verbose=1):
        again = make().fit(X, Y)
    np.testing.assert_array_equal(again.coefficients_, model.coefficients_)


def test_rows_of_another_cluster_are_refused(client):
    with cluster(1) as other:
        held = chunked(X, EVEN).persist()
        with mercer.on(client), pytest.raises(ValueError, match="rows are held by the cluster at"):
            make().fit(held, Y)
        expected = make().fit(held, Y)
        with mercer.on(other):
            np.testing.assert_array_equal(make().fit(held, Y).coefficients_, expected.coefficients_)


@pytest.fixture
def _nobody(monkeypatch):
    """No client but that of the other tests, which is not found."""

    def find():
        raise ValueError("no clients found")

    monkeypatch.setattr("mercer.engine.executors.dask.get_client", find)


@pytest.mark.usefixtures("_nobody")
def test_without_a_cluster_partitions_are_read_one_after_the_other():
    expected = make().fit(X, Y)
    model = make().fit(chunked(X, EVEN), chunked(Y, EVEN))
    np.testing.assert_allclose(model.coefficients_, expected.coefficients_, rtol=1e-9, atol=1e-9)


def test_two_threads_fit_at_once(client):
    found = {}

    def fit(seed):
        with mercer.on(client):
            found[seed] = make(random_state=seed).fit(chunked(X, EVEN), Y).coefficients_

    threads = [threading.Thread(target=fit, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(3):
        expected = on_threads(chunked(X, EVEN), Y, random_state=seed).coefficients_
        np.testing.assert_allclose(found[seed], expected, rtol=1e-9, atol=1e-9)


def test_a_fit_inside_of_a_task():
    def fit():
        with mercer.on():
            return make().fit(chunked(X, EVEN), Y).coefficients_

    with cluster(1) as client:  # whose only thread waits
        inside = client.submit(fit).result()
        np.testing.assert_array_equal(inside, make().fit(chunked(X, EVEN), Y).coefficients_)


@pytest.mark.usefixtures("_nobody")
def test_there_is_a_remedy_without_a_client():
    with pytest.raises(ValueError, match=r"no Dask client.*mercer.local_cluster"), mercer.on():
        pass
    with pytest.raises(TypeError, match=r"must be a distributed\.Client"), mercer.on(3):
        pass


def test_progress_counts_the_rows_of_each_pass(client, monkeypatch):
    told = []

    class Counter:
        def __init__(self, task, total, **_):
            self.pass_ = {"task": task, "total": total, "done": 0}
            told.append(self.pass_)

        def __enter__(self):
            return self.advance

        def __exit__(self, *_):
            pass

        def advance(self, rows):
            self.pass_["done"] += rows

    monkeypatch.setattr("mercer.engine.executors.dask.Progress", Counter)
    make(verbose=1).fit(chunked(X, EVEN), Y)
    assert "statistics" in {each["task"] for each in told}
    assert all(each["done"] == each["total"] for each in told)


def test_batches_are_added_and_forgotten(client):
    rows, targets = chunked(X, EVEN), chunked(Y, EVEN)
    model = make().partial_fit(rows, targets).partial_fit(rows[:400], targets[:400]).forget(rows[:400], targets[:400])
    expected = make().partial_fit(X, Y)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=0, atol=1e-8)


# ------------------------------------------------------------------------------------------------------ lost workers


def rows_of(seed, n_rows):
    return np.random.default_rng(seed).normal(size=(n_rows, 5))


def made(n_parts, n_rows):
    """Rows that can be made again."""
    parts = [dask.delayed(rows_of)(seed, n_rows) for seed in range(n_parts)]
    return da.concatenate([da.from_delayed(part, (n_rows, 5), float) for part in parts])


def kill_one(client, pids, killed, stopped):
    """Kill the first worker that sums a partition."""
    while not killed and not stopped.wait(0.002):
        for address, keys in client.processing().items():
            if not killed and any("mercer-sum" in str(key) for key in keys):
                os.kill(pids[address], signal.SIGKILL)
                killed.append(address)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_killed_worker_changes_no_bit():
    with warnings.catch_warnings(), cluster(2, processes=True) as client:
        warnings.simplefilter("ignore")  # of Dask, that a worker is gone
        rows = made(24, 4000).persist()
        distributed.wait(rows)
        targets = da.sin(rows[:, 0])
        options = {"n_basis": 300, "random_state": 0, "noise": 0.1}
        expected = NystromRegressor(Gaussian(2.0), **options).fit(rows, targets)
        killed, stopped = [], threading.Event()
        killer = threading.Thread(target=kill_one, args=(client, client.run(os.getpid), killed, stopped))
        killer.start()
        try:
            for _ in range(20):  # a fit may be over before the killer comes
                model = NystromRegressor(Gaussian(2.0), **options).fit(rows, targets)
                if killed:
                    break
        finally:
            stopped.set()
            killer.join()
    assert killed
    np.testing.assert_array_equal(model.coefficients_, expected.coefficients_)
    np.testing.assert_array_equal(model.statistics_.sums, expected.statistics_.sums)


def test_a_checkpoint_keeps_the_sums_of_a_cluster(client, tmp_path, monkeypatch):
    asked, last, whole = [], 0, Dask._sum

    def counted(self, work, table):
        asked.append(work.name)
        if len(asked) == last:
            raise KeyboardInterrupt
        return whole(self, work, table)

    monkeypatch.setattr("mercer.engine.checkpoint._DISK", 1e30)  # all is worth keeping
    monkeypatch.setattr(Dask, "_sum", counted)
    expected, n_sums = make().fit(chunked(X, EVEN), chunked(Y, EVEN)), len(asked)
    assert n_sums > 1
    last = 2 * n_sums  # of the next fit, too
    with pytest.raises(KeyboardInterrupt), checkpoint(tmp_path):
        make().fit(chunked(X, EVEN), chunked(Y, EVEN))
    last = 0
    asked.clear()
    with checkpoint(tmp_path):
        again = make().fit(chunked(X, EVEN), chunked(Y, EVEN))
    assert len(asked) == 1
    np.testing.assert_array_equal(again.coefficients_, expected.coefficients_)
