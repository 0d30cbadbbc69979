import contextvars
import errno
import os
import pickle
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn import config_context

from mercer import AutoRegressor, NystromRegressor, OnlineRegressor, checkpoint, learn_metric
from mercer.engine import ArrayTable, Pass, Rows, Sequence, Threads, as_rows, fingerprint, journal
from mercer.engine import checkpoint as module
from mercer.engine import checkpoint_files as files
from mercer.engine import rows as tables
from mercer.exceptions import CheckpointError
from mercer.kernels import Kernel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=len(X))


class BrokenError(Exception):
    pass


class Counted(Rows):
    """Rows that count what is read, and break at a given read."""

    n_read, breaks_at = 0, None  # of the class: they are no part of what is fitted

    def __init__(self, array=X):
        self.array = array
        self.n_rows, self.n_features, self.dtype = *array.shape, array.dtype

    def read(self, start, stop):
        Counted.n_read += 1
        if Counted.n_read == Counted.breaks_at:
            raise BrokenError
        return self.array[start:stop]

    def take(self, indices):
        return self.array[indices]


@pytest.fixture(autouse=True)
def _many_parts(monkeypatch):
    monkeypatch.setattr(tables, "_FEWEST_ROWS", 500)
    monkeypatch.setattr(module, "_DISK", 1e30)
    Counted.n_read, Counted.breaks_at = 0, None


def fit(rows=None, y=Y, **options):
    options = {"n_basis": 20, "random_state": 0, "noise": 0.1, "n_jobs": 1} | options
    return NystromRegressor(**options).fit(Counted() if rows is None else rows, y)


def broken(folder, call=fit, at=6, seconds=0.0):
    """A fit that has ended in an error, at a given read, and has left a checkpoint."""
    Counted.n_read, Counted.breaks_at = 0, at
    with pytest.raises(BrokenError), checkpoint(folder, seconds=seconds):
        call()
    Counted.n_read, Counted.breaks_at = 0, None


def data_files(folder):
    return sorted(path for path in folder.glob("*.checkpoint") if path.stem != "begin")


def reads_of(call):
    before = Counted.n_read
    call()
    return Counted.n_read - before


# --------------------------------------------------------------------------------------------------- what is kept


def test_a_fit_goes_on_where_it_was(tmp_path):
    expected, n_reads = fit().predict(X), reads_of(fit)
    broken(tmp_path)
    with checkpoint(tmp_path):
        assert reads_of(fit) < n_reads
    assert not list(tmp_path.iterdir())
    broken(tmp_path)
    with checkpoint(tmp_path):
        model = fit()
    np.testing.assert_array_equal(model.predict(X), expected)


def test_two_fits_in_a_block_and_a_prediction(tmp_path):
    def both():
        first = fit().predict(Counted())
        return first, fit(y=Y - first, n_basis=30).predict(X)

    expected, n_reads = both(), reads_of(both)
    broken(tmp_path, both, n_reads - 1)
    Counted.n_read = 0
    with checkpoint(tmp_path):
        found = both()
    assert Counted.n_read < n_reads / 2
    np.testing.assert_array_equal(found, expected)


def test_passes_that_were_not_stored_do_not_replace_the_one_that_was(tmp_path):
    def both():
        return fit().predict(X), fit(n_basis=30).predict(X)

    expected, n_reads = both(), reads_of(both)
    broken(tmp_path, both, n_reads - 2)
    for path in data_files(tmp_path):
        if path.stem != "current":
            path.unlink()
    Counted.n_read = 0
    with checkpoint(tmp_path, seconds=0):
        np.testing.assert_array_equal(both(), expected)
    assert Counted.n_read < n_reads


def test_nothing_is_written_before_it_is_time_but_when_the_block_ends(tmp_path):
    with checkpoint(tmp_path, seconds=1e9):
        fit()
        assert not data_files(tmp_path)
    broken(tmp_path, seconds=1e9)
    assert data_files(tmp_path)
    assert fit().n_features_in_ == 2


def test_files_are_the_owners_alone_and_are_removed_with_what_a_kill_has_left(tmp_path):
    broken(tmp_path)
    if os.name == "posix":
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    (tmp_path / "00000007.checkpoint-part").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("the user's")
    with checkpoint(tmp_path):
        fit()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_is_sooner_computed_than_read_is_not_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_DISK", 0.0)
    monkeypatch.setattr(module, "_LITTLE", 0)
    broken(tmp_path)
    assert not data_files(tmp_path)
    with checkpoint(tmp_path):
        np.testing.assert_array_equal(fit().predict(X), fit().predict(X))


def test_sums_that_there_is_memory_for_only_once(tmp_path):
    with config_context(working_memory=0.05):
        expected, n_reads = fit(n_basis=100).predict(X), reads_of(lambda: fit(n_basis=100))
        broken(tmp_path, lambda: fit(n_basis=100), n_reads - 10)
        with checkpoint(tmp_path):
            assert reads_of(lambda: fit(n_basis=100)) < n_reads
        broken(tmp_path, lambda: fit(n_basis=100), n_reads - 10)
        with checkpoint(tmp_path):
            model = fit(n_basis=100)
        np.testing.assert_array_equal(model.predict(X), expected)


def test_a_sequence_goes_on_within_a_tile_of_other_size(tmp_path):
    def learn():
        return OnlineRegressor(max_basis=20, random_state=0, record=True).fit(Counted(), Y)

    expected = learn()
    with config_context(working_memory=0.1):
        broken(tmp_path, learn, 8)
    with checkpoint(tmp_path):
        model = learn()
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=0, atol=1e-9)
    assert model.history_["n_seen"][-1] == len(X)


def test_a_kernel_of_functions_that_cannot_be_pickled(tmp_path):
    class Own(Kernel):
        def __init__(self, profile=lambda squares: np.exp(-squares)):
            self.profile = profile

        def bind(self, points, dtype=np.float64):
            raise NotImplementedError

    kernel = Own()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(kernel)
    data = files.packed({"kernel": kernel, "sums": X}, [kernel], __name__)
    found = files.unpacked(data, [kernel], __name__)
    assert found["kernel"] is kernel
    np.testing.assert_array_equal(found["sums"], X)


def test_ctrl_c_in_a_merge_leaves_what_was_written_before(tmp_path):
    @dataclass(frozen=True)
    class Torn(Pass):
        fails: bool

        name, width = "torn", 2

        def start(self):
            return np.zeros(2)

        def add(self, state, tile):
            state += np.sum(tile.rows, axis=0)

        def merge(self, state, other):
            state[0] += other[0]
            if self.fails and Counted.n_read == 3:
                raise KeyboardInterrupt
            state[1] += other[1]
            return state

    def total(fails):
        work = Torn(fails)
        object.__setattr__(work, "fails", fails)
        return Threads(1).reduce(work, ArrayTable(Counted()))

    expected = total(False)
    Counted.n_read = 0
    with pytest.raises(KeyboardInterrupt), checkpoint(tmp_path, seconds=0):
        total(True)
    for path in data_files(tmp_path):  # the sums of two partitions, not of two and a half
        [(_, entry)] = files.read_entries(path)
        assert entry.n_done <= 2
        path.unlink()
    with checkpoint(tmp_path):
        np.testing.assert_array_equal(total(False), expected)


# --------------------------------------------------------------------------------------- what is refused, by name


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: fit(n_basis=21), "features of the pass: another"),
        (lambda: fit(random_state=1), "features of the pass: another"),
        (lambda: fit(kernel="matern"), "another"),
        (lambda: fit(Counted(X + 1.0)), "another"),
        (lambda: fit(y=Y[::-1]), "labels: another"),
        (lambda: fit(Counted(X[:-1]), Y[:-1]), "number of rows: '?4000'? before, '?3999'? now"),
        (lambda: fit(y=np.column_stack([Y, Y])), "labels: another"),
        (lambda: Sequence().map(module_pass(), ArrayTable(as_rows(X))), "pass: .* before, .* now"),
    ],
)
def test_another_fit_is_refused(call, what, tmp_path):
    def unscaled(*args, **options):
        return fit(*args, **{"kernel": "gaussian"} | options)

    broken(tmp_path, unscaled)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    message = f"another fit, or its input has changed.*{what}.*remove the folder"
    with pytest.raises(CheckpointError, match=message), checkpoint(tmp_path):
        call()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with checkpoint(tmp_path):
        fit()


def module_pass():
    from mercer.engine.products import Evaluation
    from mercer.kernels import Gaussian

    return Evaluation(Gaussian(), X[:3], np.ones((3, 1)))


def test_a_file_that_has_changed_is_refused_by_its_name(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, X)

    def mapped():
        rows = np.load(path, mmap_mode="r")
        options = {"n_basis": 20, "random_state": 0, "noise": 0.1, "kernel": "gaussian"}
        with checkpoint(tmp_path / "kept", seconds=0):
            NystromRegressor(**options).fit(rows, Y)
            if Counted.breaks_at:
                raise BrokenError

    Counted.breaks_at = 1
    with pytest.raises(BrokenError):
        mapped()
    os.utime(path, ns=(1, 1))
    with pytest.raises(CheckpointError, match=r"rows\.npy: .* bytes of .* ns before, .* bytes of 1 ns now"):
        mapped()


def test_a_source_names_what_must_be_the_same(tmp_path):
    class Named(Counted):
        version = 1

        def fingerprint(self):
            return {"part-7.parquet": f"version {self.version}"}

    broken(tmp_path, lambda: fit(Named()))
    with checkpoint(tmp_path / "other"):
        fit(Named())
    Named.version = 2
    message = r"Pass 1: part-7\.parquet: version 1 before, version 2 now\. Call"
    with pytest.raises(CheckpointError, match=message), checkpoint(tmp_path):
        fit(Named())


@pytest.mark.parametrize("damage", ["cut", "changed", "about", "text"])
def test_a_damaged_file_is_refused_by_its_name_and_nothing_else_is_lost(damage, tmp_path):
    broken(tmp_path)
    path = data_files(tmp_path)[-1]
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-1]
    elif damage == "changed":
        content[-5] ^= 1
    elif damage == "about":
        content = content.replace(b'"n_done": ', b'"n_done": 1', 1)
    else:
        content = b"not a checkpoint"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{path.name} is damaged. Delete this file"), checkpoint(tmp_path):
        fit()
    path.unlink()
    with checkpoint(tmp_path):
        np.testing.assert_array_equal(fit().predict(X), fit().predict(X))


def test_files_without_a_beginning_and_files_of_another_version(tmp_path, monkeypatch):
    broken(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("mercer.engine.journal.version", lambda _: "99.0")
        with pytest.raises(CheckpointError, match=r"written by mercer .* and this is 99\.0"), checkpoint(tmp_path):
            pass
    (tmp_path / "begin.checkpoint").unlink()
    with pytest.raises(CheckpointError, match=r"begin\.checkpoint is missing"), checkpoint(tmp_path):
        pass


def test_what_is_read_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    with pytest.raises(CheckpointError, match="cannot hold"):
        files.packed(Evil(), [], "")
    with pytest.raises(CheckpointError, match="was not written by mercer"):
        files.unpacked(pickle.dumps(Evil()), [], "")
    nested = b"\x80\x04\x8c\x1fmercer.engine.checkpoint_files\x8c\x08os.mkdir\x93."
    with pytest.raises(CheckpointError, match="was not written by mercer"):
        files.unpacked(nested.replace(b"\x1f", b"\x1e"), [], "")
    assert not (tmp_path / "evil").exists()


def test_what_decides_by_the_clock_is_refused(tmp_path):
    with checkpoint(tmp_path):
        with pytest.raises(CheckpointError, match="AutoRegressor decides by the clock"):
            AutoRegressor().fit(X[:100], Y[:100])
        with pytest.raises(CheckpointError, match="learn_metric with a time_limit decides by the clock"):
            learn_metric(X[:100], Y[:100], time_limit=1.0)


@pytest.mark.parametrize("seconds", [-1.0, np.nan])
def test_seconds_are_checked(seconds, tmp_path):
    with pytest.raises(ValueError, match="seconds must not be negative"), checkpoint(tmp_path, seconds=seconds):
        pass


# ------------------------------------------------------------------------------------- folders, disks, other fits


def test_blocks_may_nest_in_folders_of_their_own(tmp_path):
    def both():
        with checkpoint(tmp_path / "inner", seconds=0):
            first = fit().predict(X)
        return first, fit(n_basis=30).predict(X)

    with checkpoint(tmp_path / "outer", seconds=0):
        expected = both()
    broken(tmp_path / "outer", both, reads_of(fit) + 5)
    with checkpoint(tmp_path / "outer"):
        np.testing.assert_array_equal(both(), expected)


def test_a_folder_that_is_in_use_is_refused(tmp_path):
    pytest.importorskip("fcntl")
    with checkpoint(tmp_path):
        with pytest.raises(CheckpointError, match="another fit uses the checkpoint"), checkpoint(tmp_path):
            pass
        fit()
    with checkpoint(tmp_path):
        pass


def test_fits_of_other_threads_are_not_kept(tmp_path):
    thread = threading.Thread(target=fit)
    with checkpoint(tmp_path, seconds=0):
        thread.start()
        thread.join()
        assert not data_files(tmp_path)
        fit()


def test_two_fits_at_once_are_refused(tmp_path):
    inside, release = threading.Event(), threading.Event()

    class Waiting(Counted):
        def read(self, start, stop):
            inside.set()
            release.wait(10.0)
            return super().read(start, stop)

    with checkpoint(tmp_path):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(fit, Waiting()))
        thread.start()
        inside.wait(10.0)
        try:
            with pytest.raises(CheckpointError, match="two fits at once"):
                fit()
        finally:
            release.set()
            thread.join()


def test_a_forked_process_has_no_part_in_it(tmp_path, monkeypatch):
    with checkpoint(tmp_path, seconds=0):
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            fit()
        assert not data_files(tmp_path)


def fit_often(folder):
    with checkpoint(folder, seconds=0):
        for _ in range(20):
            fit()


@pytest.mark.parametrize("when", ["begin", "later"])
def test_a_full_disk_is_an_error_and_what_was_written_stays_good(when, tmp_path, monkeypatch):
    broken(tmp_path, at=4)
    before = sorted(path.read_bytes() for path in tmp_path.iterdir())

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path if when == "later" else tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match=r"the checkpoint cannot be written \(No space left") as failed:
            fit_often(folder)
    assert failed.value.errno == errno.ENOSPC
    assert str(folder) in str(failed.value.filename)
    assert sorted(path.read_bytes() for path in tmp_path.iterdir() if path.is_file()) == before
    with checkpoint(tmp_path):
        np.testing.assert_array_equal(fit().predict(X), fit().predict(X))


def test_an_interruption_is_not_hidden_by_a_full_disk(tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def interrupted():
        with checkpoint(tmp_path, seconds=1e9):
            fit()
            monkeypatch.setattr(files.os, "fsync", full)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        interrupted()
    assert "the checkpoint cannot be written" in stopped.value.__notes__[0]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="folder of a checkpoint cannot be made"), checkpoint(tmp_path / "file" / "kept"):
        pass
    with pytest.raises(OSError, match="folder of a checkpoint cannot be made"), checkpoint(tmp_path / "file"):
        pass


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="for root, no folder is read-only")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="the checkpoint cannot be written"), checkpoint(tmp_path):
            pass
    finally:
        tmp_path.chmod(0o700)


# ------------------------------------------------------------------------------------------------- without one


def test_without_a_checkpoint_a_pass_asks_once_and_a_tile_never():
    calls = []

    def note(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename in (module.__file__, journal.__file__, fingerprint.__file__):
            calls.append(frame.f_code.co_name)

    work, table = module_pass(), ArrayTable(as_rows(np.tile(X, (10, 1))))
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        for executor in (Threads(1), Threads(2), Sequence()):
            executor.map(work, table)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert calls == ["record_of"] * 3
