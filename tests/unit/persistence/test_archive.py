"""Saving and loading: files, file objects, what is refused, and that a file is replaced as a whole or not at all."""

import errno
import io
import json
import os
import stat
import subprocess
import sys
import threading
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import mercer
from mercer import CompactRegressor, ExactRegressor, NystromRegressor, OnlineRegressor
from mercer._stored import declaration_of
from mercer.exceptions import ArchiveError
from mercer.kernels import Function, Gaussian, Linear, Wendland
from mercer.persistence import container
from mercer.persistence.archive import load, save
from tests.archives import HEADER, assert_alike, find, loaded, names_in, saved, taken_apart

# ---------------------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize("kind", [str, Path])
def test_paths(model, rows, tmp_path, kind):
    path = kind(tmp_path / "model.mercer")
    assert save(model, path) is None
    np.testing.assert_array_equal(load(path).predict(rows[0]), model.predict(rows[0]))
    assert names_in(tmp_path) == ["model.mercer"]


def test_open_files(model, tmp_path):
    with (tmp_path / "model").open("w+b") as file:
        save(model, file)
        assert_alike(model, load(file))
    with (tmp_path / "model").open("rb") as file:
        assert_alike(model, load(file))


def test_pipes(model):
    """File objects that cannot seek."""
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as file:
            save(model, file)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reading, "rb") as file:
        assert_alike(model, load(file))
    thread.join()


def test_the_content_is_what_the_documentation_says(model):
    data = saved(model)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        infos = archive.infolist()
        assert {info.compress_type for info in infos} == {zipfile.ZIP_STORED}
        assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
        header = json.loads(archive.read(HEADER))
        assert (header["format"], header["version"]) == ("mercer archive", container.VERSION)
        assert header["mercer"] == version("mercer")
        assert header["type"] == "NystromRegressor"
        for entry in header["arrays"]:
            array = np.lib.format.read_array(io.BytesIO(archive.read(entry["name"])), allow_pickle=False)
            assert (array.dtype.str, list(array.shape)) == (entry["dtype"], entry["shape"])
            assert archive.getinfo(entry["name"]).file_size == entry["size"]
    basis = header["arrays"][find(header["model"], "Basis")["points"]["array"]]
    assert basis["shape"] == [7, 2]


def test_the_digest_is_one_that_tools_can_check(model, tmp_path):
    with zipfile.ZipFile(io.BytesIO(saved(model))) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(["sha256sum", "-c", "header.sha256"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_arrays_that_are_one_are_stored_once(model):
    header, _ = taken_apart(saved(model))
    points = {find(header["model"], name)["points"]["array"] for name in ("Basis", "KernelExpansion")}
    lower = {find(header["model"], name)["lower"]["array"] for name in ("Frame", "Variance")}
    assert len(points) == len(lower) == 1
    again = loaded(saved(model))
    assert again._summary.frame.lower is again.expansion_.variance.lower
    assert again.expansion_.variance.lower.flags.f_contiguous


def test_the_same_model_is_the_same_bytes(rows, tmp_path):
    models = [NystromRegressor(n_basis=7, random_state=0, noise=0.1, intercept=False).fit(*rows) for _ in range(2)]
    models[1].predict(rows[0], return_std=True)
    models[1].predict(rows[0].astype(np.float32))
    assert saved(models[0]) == saved(models[1])
    save(models[0], tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == saved(models[0])


def test_the_same_stream_is_the_same_bytes(rows):
    models = [OnlineRegressor(Gaussian()).fit(*rows) for _ in range(2)]
    models[1].predict(rows[0], return_std=True)
    assert saved(models[0]) == saved(models[1])


def test_a_model_loaded_by_another_process_says_the_same(model, rows, tmp_path):
    save(model, tmp_path / "model")
    np.save(tmp_path / "rows.npy", rows[0])
    code = (
        "import sys, numpy as np; from mercer.persistence import load; m = load('model');"
        "print(m.predict(np.load('rows.npy'), return_std=True)[1].tobytes().hex(), 'pickle' in repr(m))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [model.predict(rows[0], return_std=True)[1].tobytes().hex(), "False"], done.stderr


def test_loading_imports_only_what_the_model_is_of(tmp_path):
    save(Gaussian(2.0), tmp_path / "kernel")
    code = (
        "import sys; from mercer.persistence import load; load('kernel');"
        "print(*[m for m in sys.modules if m.startswith(('mercer.estimators', 'mercer.compression'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# ------------------------------------------------------------------------------------------------ replacing files


def test_an_old_file_is_replaced_and_keeps_its_permissions(model, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(0o640)
    save(model, path)
    assert path.read_bytes() == saved(model)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_usual_permissions(model, tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    save(model, tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_stays_a_link(model, tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "model", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    save(model, link)
    assert link.is_symlink()
    assert target.read_bytes() == saved(model)


def full_disk(*_args, **_options):
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted(*_args, **_options):
    raise KeyboardInterrupt


@pytest.mark.parametrize("failure", [full_disk, interrupted])
@pytest.mark.parametrize("place", ["write", "end", "fsync", "replace"])
def test_the_old_file_survives_a_write_that_fails(model, tmp_path, monkeypatch, failure, place):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    target = {
        "write": (zipfile._ZipWriteFile, "write"),
        "end": (zipfile.ZipFile, "_write_end_record"),
        "fsync": (os, "fsync"),
        "replace": (Path, "replace"),
    }[place]
    with monkeypatch.context() as patch:
        patch.setattr(*target, failure)
        with pytest.raises((OSError, KeyboardInterrupt)):
            save(model, path)
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["model"]
    save(model, path)
    assert_alike(model, load(path))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of file sizes")
def test_the_old_file_survives_a_disk_that_is_full_indeed(model, tmp_path):
    import resource

    path = tmp_path / "model"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(saved(model)) // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(model, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["model"]


def test_what_is_refused_is_refused_before_anything_is_written(rows, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    before = path.stat()
    with pytest.raises(ArchiveError, match=r"ExactRegressor\..*kernel.* never runs code"):
        save(ExactRegressor(Function(lambda a, b: a @ b.T), noise=0.1, intercept=False).fit(*rows), path)
    assert path.stat() == before
    assert names_in(tmp_path) == ["model"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no directory where nobody may write")
def test_a_directory_where_nobody_may_write(model):
    before = set(names_in(Path("/proc/sys")))
    with pytest.raises(OSError, match="/proc/sys/"):
        save(model, "/proc/sys/model")
    assert set(names_in(Path("/proc/sys"))) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory(model, tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            save(model, tmp_path / "model")
    finally:
        tmp_path.chmod(0o700)


def test_devices_are_not_replaced(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(ArchiveError, match="is a device or a pipe, which is not to be replaced"):
            save(model, path)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with Path(os.devnull).open("wb") as file:
        save(model, file)


def test_memory_maps_are_stored_as_arrays(tmp_path):
    array = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=(5, 2))
    array[:] = np.arange(10.0).reshape(5, 2)
    again = loaded(saved(NystromRegressor(basis=array, noise=0.1, intercept=False)))
    assert type(again.basis) is np.ndarray
    np.testing.assert_array_equal(again.basis, array)


def test_paths_that_are_none(model, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory"):
        save(model, tmp_path)
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    with pytest.raises(FileNotFoundError):
        save(model, tmp_path / "nowhere" / "model")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    for wrong in (None, 3, io.StringIO()):
        with pytest.raises(TypeError, match="path must be a str, a path or a binary file object"):
            save(model, wrong)
        with pytest.raises(TypeError, match="path must be a str, a path or a binary file object"):
            load(wrong)
    file = io.BytesIO(b"before")
    file.seek(0, io.SEEK_END)
    with pytest.raises(ArchiveError, match="at its start"):
        save(model, file)


def test_every_public_class_can_be_saved():
    """Kernels of a user's own functions apart, which cannot: the walks of the laws save all of them."""
    public = [getattr(mercer, name) for name in mercer.__all__]
    kernels = [getattr(mercer.kernels, name) for name in mercer.kernels.__all__]
    strategies = [getattr(mercer.basis, name) for name in mercer.basis.__all__]
    for cls in (each for each in [*public, *kernels, *strategies] if hasattr(each, "get_params")):
        abstract = getattr(cls, "__abstractmethods__", None)
        assert abstract or cls is Function or declaration_of(cls).alone, cls


def test_deep_kernels():
    kernel = Linear()
    for i in range(60):
        kernel = kernel + Gaussian(1.0 + i)
    assert_alike(kernel, loaded(saved(kernel)))


@pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")
def test_models_of_many_distances(rows):
    """Where cells tell too few points apart, a sparse kernel has all pairs at hand."""
    X = np.random.default_rng(1).normal(size=(2500, 8))
    model = CompactRegressor(Wendland(2.5), solver="cg").fit(X, X[:, 0])
    again = loaded(saved(model))
    assert_alike(model, again)
    assert_alike(model.predict(X[:50], return_std=True), again.predict(X[:50], return_std=True))


def test_large_histories_are_arrays(rows):
    X, y = rows
    model = OnlineRegressor(Gaussian(), max_basis=3, record=True)
    for row, target in zip(X.tolist(), y.tolist(), strict=True):
        model.learn_one(dict(enumerate(row)), target)
    header, _ = taken_apart(saved(model))
    assert "table" in find(header["model"], "OnlineState")["history"]
    again = loaded(saved(model))
    assert again._state.history == model._state.history
    assert [type(each) for each in again._state.history[0]] == [int, int, float]
    assert again.predict_one({0: 0.5, 1: 0.1}) == model.predict_one({0: 0.5, 1: 0.1})
