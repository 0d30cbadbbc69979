"""What attackers and accidents do to archives besides: small files that grow, bytes around, kills, prying eyes."""

import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest

from mercer import CompactRegressor, ExactClassifier, ExactRegressor, NystromClassifier, NystromRegressor, compress
from mercer.exceptions import ArchiveError
from mercer.kernels import Gaussian, Wendland
from mercer.persistence import archive, container, replacement
from mercer.persistence.archive import load, save
from tests.archives import (
    array_in,
    assert_alike,
    draw,
    find,
    loaded,
    put_together,
    refused,
    saved,
    taken_apart,
    with_array,
)


@pytest.fixture(scope="module")
def model():
    return NystromRegressor(n_basis=5, random_state=0, noise=0.1, intercept=False).fit(*draw())


# --------------------------------------------------------------------------------------------- small files that grow


TIMES = 1000
REPEATED = {
    "columns": lambda: {"table": [0] * TIMES},
    "tables": lambda: [{"table": [0]} for _ in range(TIMES)],
    "parts": lambda: [{"ragged": [1, 0]} for _ in range(TIMES)],
    "tables and an array": lambda: [{"array": 0}, {"table": [0]}],
    "a table and arrays": lambda: [{"table": [0]}, {"array": 0}],
}


@pytest.mark.parametrize("how", REPEATED)
def test_one_array_cannot_become_many_objects(how):
    """A file of 97 kB made a gigabyte of them."""
    lengths, joined = np.zeros(2000, dtype=np.int64), np.zeros(0)
    header, members = taken_apart(saved(Gaussian([lengths, joined])))
    find(header["model"], "Gaussian")["length_scale"] = [REPEATED[how](), {"array": 1}]
    forged = put_together(header, members)
    assert len(forged) < 50_000
    tracemalloc.start()
    try:
        refused(forged, "belongs to (one|another) value alone")
        assert tracemalloc.get_traced_memory()[1] < 40 * len(forged) + 2e6
    finally:
        tracemalloc.stop()


def test_one_array_cannot_be_copied_without_end():
    """Objects may copy what they are made of: so what they refer to is bounded together."""
    many = np.zeros(2**17)
    assert len(loaded(saved(Gaussian((many,) * 30))).length_scale) == 30
    with pytest.raises(ArchiveError, match="refers to the same arrays so often"):
        saved(Gaussian((many,) * 300))
    header, members = taken_apart(saved(Gaussian((many,))))
    find(header["model"], "Gaussian")["length_scale"] = [{"array": 0}] * 300
    refused(put_together(header, members), "referred to too often")


def test_too_little_memory_is_an_error_of_the_archive(model, monkeypatch):
    def full(*_args):
        raise MemoryError("Unable to allocate 1.00 TiB")

    monkeypatch.setattr(archive, "decode", full)
    refused(saved(model), "not a mercer archive, or damaged: Unable to allocate")


# ------------------------------------------------------------------------------------------------------ bytes around


LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"


def moved(data, by, first=0):
    """The archive with the places in its directory moved from some member on, as if bytes had always been there."""
    data, at, number = bytearray(data), data.index(CENTRAL), 0
    while data[at : at + 4] == CENTRAL:
        n, m, k = (int.from_bytes(data[at + i : at + i + 2], "little") for i in (28, 30, 32))
        if number >= first:
            start = int.from_bytes(data[at + 42 : at + 46], "little")
            data[at + 42 : at + 46] = (start + by).to_bytes(4, "little")
        at, number = at + 46 + n + m + k, number + 1
    start = int.from_bytes(data[at + 16 : at + 20], "little")
    data[at + 16 : at + 20] = (start + by).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("before", [LOCAL, LOCAL + bytes(26), LOCAL + b"#!/bin/sh\n" * 10], ids=len)
def test_bytes_before_an_archive(model, before):
    data = saved(model)
    refused(before + data, "bytes in it that belong to no member|not a mercer archive")
    refused(before + moved(data, len(before)), "bytes in it that belong to no member|not a mercer archive")


def test_an_archive_before_an_archive(model):
    refused(saved(Gaussian()) + saved(model), "bytes in it that belong to no member")


def test_bytes_between_the_members(model):
    data = saved(model)
    second = data.index(LOCAL, 4)
    refused(data[:second] + b"12345" + moved(data, 5, first=1)[second:], "bytes in it that belong to no member")
    directory = data.index(CENTRAL)
    refused(data[:directory] + b"12345" + moved(data, 5, first=99)[directory:], "bytes in it that belong to no member")


@pytest.mark.parametrize("after", [b"\0", b"rm -rf /\n", bytes(100)], ids=len)
def test_bytes_after_an_archive(model, after):
    data = saved(model)
    refused(data + after, "something follows the archive")
    comment = data[:-2] + len(after).to_bytes(2, "little") + after
    refused(comment, "something follows the archive")


class Pipe(io.RawIOBase):
    """What can be written to and not sought in."""

    def __init__(self):
        self.content = b""

    def writable(self):
        return True

    def write(self, part):
        self.content += bytes(part)
        return len(part)


def test_archives_that_were_written_to_a_pipe_have_sizes_after_the_members(model):
    pipe = Pipe()
    save(model, pipe)
    assert pipe.content != saved(model)
    assert_alike(model, loaded(pipe.content))


# ------------------------------------------------------------------------------------------ what failed only in use


def with_value(model, name, attribute, value):
    header, members = taken_apart(saved(model))
    find(header["model"], name)[attribute] = value
    return put_together(header, members)


@pytest.mark.parametrize("value", ["many", [], {"tuple": []}, 1.5, {"object": ["Gaussian", {}]}])
@pytest.mark.parametrize("parameter", ["n_jobs", "verbose"])
def test_parameters_that_a_fitted_model_cannot_use(model, parameter, value):
    refused(with_value(model, "NystromRegressor", parameter, value), f"{parameter}|Gaussian lacks")


def test_parameters_that_a_fitted_model_cannot_use_are_not_saved():
    model = NystromRegressor(n_basis=5, noise=0.1, intercept=False).fit(*draw()).set_params(n_jobs="all")
    with pytest.raises(ArchiveError, match="The 'n_jobs' parameter of NystromRegressor must be"):
        saved(model)
    saved(NystromRegressor(n_jobs="all", noise=0.1, intercept=False))  # which was not fitted: it is for fit to refuse


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("part", "attribute"),
    [
        ("KernelExpansion", "points"),
        ("KernelExpansion", "coefficients"),
        ("KernelExpansion", "intercept"),
        ("Variance", "root"),
        ("Variance", "lower"),
        ("NormalStatistics", "sums"),
        ("Summary", "target_shift"),
    ],
)
def test_numbers_that_are_none(model, part, attribute, number, place):
    header, members = taken_apart(saved(model))
    which = find(header["model"], part)[attribute]["array"]
    content = array_in(members, which)
    content.reshape(-1, order="A")[place] = number
    refused(with_array(header, members, which, content), "NaN or infinity")


def test_factors_that_are_singular(model):
    header, members = taken_apart(saved(model))
    which = find(header["model"], "Frame")["lower"]["array"]
    content = array_in(members, which)
    content[1, 1] = 0.0
    refused(with_array(header, members, which, content), "a diagonal that is not positive")


def test_kernels_that_differ_within_a_model(model):
    other = {"object": ["Gaussian", {"amplitude": 1.0, "length_scale": 7.0}]}
    refused(with_value(model, "KernelExpansion", "kernel", other), "another kernel or other points than its basis")
    exact = ExactRegressor(Gaussian(), noise=0.1, intercept=False).fit(*draw())
    refused(with_value(exact, "ExactRegressor", "kernel_", other), "another kernel than its expansion")
    none = {"object": ["Precomputed", {}]}
    refused(with_value(model, "Frame", "kernel", none), "the kernel of a basis needs rows")


def test_points_that_differ_within_a_model():
    model = CompactRegressor(Wendland(3.0)).fit(*draw())
    header, members = taken_apart(saved(model))
    which = find(header["model"], "Cells")["points"]["array"]
    content = array_in(members, which)
    content[3] += 0.5
    refused(with_array(header, members, which, content), "the grid of a model has other points")


def test_numbers_that_are_too_large_to_compute_with(model):
    forged = with_value(model, "Summary", "settings", {"object": ["Settings", {"noise": 10**400}]})
    refused(forged, "Settings")
    compact = CompactRegressor(Wendland(3.0)).fit(*draw())
    refused(with_value(compact, "Wendland", "dimension", {"int": hex(10**400)}), "a number is too large")
    refused(with_value(compact, "Options", "tol", {"int": hex(10**400)}), r"Options\.tol is of type int")


def test_one_class():
    X, y = draw()
    for model in (
        ExactClassifier(noise=0.1, intercept=False).fit(X, y > 0),
        NystromClassifier(n_basis=5, noise=0.1, intercept=False).fit(X, y > 0),
    ):
        header, members = taken_apart(saved(model))
        which = find(header["model"], type(model).__name__)["classes_"]["array"]
        refused(with_array(header, members, which, np.array([True])), "a model has 1 classes")


def test_rows_of_a_kernel_matrix_that_are_not_there():
    X, y = draw()
    model = ExactRegressor("precomputed", noise=0.1, intercept=False).fit(Gaussian()(X), y)
    header, members = taken_apart(saved(model))
    which = find(header["model"], "KernelExpansion")["points"]["array"]
    for number in (30.0, -1.0, 0.5):
        points = np.arange(30.0)[:, np.newaxis]
        points[4] = number
        refused(with_array(header, members, which, points), "rows of the kernel matrix")


def test_compressed_models_of_no_estimator():
    small = compress(
        NystromRegressor(n_basis=8, random_state=0, noise=0.1, intercept=False).fit(*draw()),
        n_vectors=3,
        random_state=0,
    )
    refused(with_value(small, "CompressedRegressor", "estimator", 3), "estimator is none")


# ------------------------------------------------------------------------------------------------------- the digest


def test_the_digest_of_a_file(model, tmp_path):
    save(model, tmp_path / "model")
    digest = hashlib.sha256((tmp_path / "model").read_bytes()).hexdigest()
    assert_alike(model, load(tmp_path / "model", sha256=digest))
    assert_alike(model, load(io.BytesIO(saved(model)), sha256=digest.upper()))
    save(Gaussian(), tmp_path / "model")
    with pytest.raises(ArchiveError, match=rf"model cannot be loaded: its SHA-256 digest is .*, not {digest}"):
        load(tmp_path / "model", sha256=digest)
    for wrong in ("", digest[:-1], digest + "0", "x" * 64, b"0" * 64, 5):
        with pytest.raises(ValueError, match="sha256 must be None or 64 hexadecimal digits"):
            load(tmp_path / "model", sha256=wrong)


def test_what_was_digested_is_what_is_loaded(model, monkeypatch):
    """Also if the file is changed in between."""
    data = saved(model)
    file, read = io.BytesIO(data), archive._read

    def changed(checked):
        file.seek(0)
        file.write(saved(Gaussian()))
        return read(checked)

    monkeypatch.setattr(archive, "_read", changed)
    assert_alike(model, load(file, sha256=hashlib.sha256(data).hexdigest()))


# ------------------------------------------------------------------------------------------------------ replacing


def refused_link(*_args, **_options):
    raise PermissionError("links are not for everybody")


@pytest.fixture(params=["without a name", "named", "copied"])
def temporary(request, monkeypatch):
    """All ways to write a file that takes another one's place."""
    if request.param == "named":
        monkeypatch.setattr(replacement, "_unnamed", lambda *_args: None)
    if request.param == "copied":
        monkeypatch.setattr(os, "link", refused_link)
    return request.param


@pytest.mark.skipif(not hasattr(os, "fchmod"), reason="there are no such permissions")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_permissions_are_right_from_the_start(model, tmp_path, monkeypatch, temporary, mode):
    path, write, seen = tmp_path / "model", container.write, []

    def watched(file, *args):
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        write(file, *args)

    path.write_bytes(b"old")
    path.chmod(mode)
    monkeypatch.setattr(container, "write", watched)
    save(model, path)
    assert [*seen, stat.S_IMODE(path.stat().st_mode)] == [mode, mode]


KILLED = """
import os, signal, sys
from mercer.kernels import Gaussian
from mercer.persistence import archive, container, replacement
if sys.argv[1] == "named":
    replacement._unnamed = lambda *_args: None
def write(file, *args):
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
container.write = write
archive.save(Gaussian(), "model")
"""


def killed(folder, temporary):
    done = subprocess.run([sys.executable, "-c", KILLED, temporary], cwd=folder, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return [path for path in folder.iterdir() if path.name != "model"]


def has_unnamed_files(folder):
    descriptor = replacement._unnamed(folder, None)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such kill")
def test_a_killed_process_leaves_nothing(tmp_path):
    if not has_unnamed_files(tmp_path):
        pytest.skip("this file system has no files without a name")
    (tmp_path / "model").write_bytes(b"old")
    assert killed(tmp_path, "without a name") == []
    assert (tmp_path / "model").read_bytes() == b"old"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such kill")
def test_what_a_killed_process_has_left_is_removed_by_the_next(model, tmp_path, monkeypatch):
    import fcntl

    monkeypatch.setattr(replacement, "_unnamed", lambda *_args: None)
    (left,) = killed(tmp_path, "named")
    save(model, tmp_path / "model")
    assert left.exists()  # as it is young, it may be another machine's
    long_ago = time.time() - 2 * replacement._ABANDONED
    for path in (left, tmp_path / ".mercer-notes.tmp"):
        path.touch()
        os.utime(path, (long_ago, long_ago))
    with left.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a process that writes to it lives
        save(model, tmp_path / "model")
        assert left.exists()
    save(model, tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} == {"model", ".mercer-notes.tmp"}
    assert_alike(model, load(tmp_path / "model"))


def test_replacing_leaves_nothing_beside(model, tmp_path, temporary):
    for _ in range(2):
        save(model, tmp_path / "model")
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
        assert_alike(model, load(tmp_path / "model"))
