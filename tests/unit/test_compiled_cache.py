"""Folders and files of compiled code: whatever is wrong with them, the result is right."""

import os
import pickle
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import pytest

from mercer import _compiled_cache
from mercer._compiled_cache import find_places
from mercer._jit import callback, jit

unix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes of files are a matter of Unix")


def double(x):
    return x * 2.0


def halve(x):  # the same bytes of code, with another constant
    return x * 0.5


def report(result):
    result[0] = 7.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def use(function):
    """Result and number of cache hits, as in a new process."""
    compiled = jit(function)
    return compiled(42.0), sum(compiled.stats.cache_hits.values())


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_code_is_found_again(folder):
    assert use(double) == (84.0, 0)
    assert use(double) == (84.0, 1)
    assert use(halve) == (21.0, 0)
    assert all(path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) == 0 for path in files(folder))


def test_signatures_and_options_do_not_share_code(folder):
    assert use(double) == (84.0, 0)
    integers = jit(double)
    assert integers(21) == 42.0
    assert not integers.stats.cache_hits
    from mercer._jit import jit_sum

    other = jit_sum(double)
    assert other(1.0) == 2.0
    assert not other.stats.cache_hits


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace(make):
    def damage(path):
        path.unlink()
        make(path)

    return damage


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(path.read_bytes()[:1]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "all but one byte": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": lambda path: path.write_bytes(os.urandom(5000)),
    "text": lambda path: path.write_text("<html>Not found</html>"),
    "a flipped bit": flip,
    "more bytes": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "another pickle": lambda path: path.write_bytes(pickle.dumps(numba.__version__) + pickle.dumps(("stamp", 3))),
    "a folder": replace(Path.mkdir),
    "a link to nowhere": replace(lambda path: path.symlink_to(path.with_name("nowhere"))),
    "a link to zeros without end": replace(lambda path: path.symlink_to("/dev/zero")),
    "a pipe": replace(os.mkfifo),
    "unreadable": lambda path: path.chmod(0),
}


@unix
@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files_mean_compiling_again(folder, kind):
    assert use(double) == (84.0, 0)
    for path in files(folder):
        DAMAGE[kind](path)
    may_read = kind == "unreadable" and os.getuid() == 0  # the administrator may read everything
    assert use(double) == (84.0, 1 if may_read else 0)
    assert use(double) == (84.0, 0 if kind == "a folder" else 1)


def test_files_swapped_between_functions_are_not_used(folder):
    assert use(double) == (84.0, 0)
    first = files(folder)
    assert use(halve) == (21.0, 0)
    second = [path for path in files(folder) if path not in first]
    content = first[0].read_bytes()
    first[0].write_bytes(second[0].read_bytes())
    second[0].write_bytes(content)
    assert use(double) == (84.0, 0)
    assert use(halve) == (21.0, 0)


def test_damaged_callbacks_are_compiled_again(folder):
    def address():
        callback.cache_clear()
        return callback(report, "f")

    assert address()
    for path in files(folder):
        path.write_bytes(b"damaged")
    assert address()
    assert len(files(folder)) == 1


# ---------------------------------------------------------------------------------------------------------- folders


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder of sources, with a user's cache elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def test_code_lies_beside_its_source(source):
    assert find_places(source, "").write == source / "__pycache__"


def test_the_folder_that_was_chosen_is_the_only_one(source, tmp_path):
    places = find_places(source, str(tmp_path / "chosen"))
    assert places.write.parent == tmp_path / "chosen"
    assert places.read == (places.write,)


def test_relative_folders_are_not_followed(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "user")
    (source / "__pycache__").touch()  # no folder can be there
    assert find_places(source, "chosen") == ((), None)
    assert not (tmp_path / "chosen").exists()
    assert not (tmp_path / "user").exists()


@unix
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("which", ["chosen", "its part", "beside the source"])
def test_folders_that_others_may_write_are_not_read(source, tmp_path, mode, which):
    chosen = "" if which == "beside the source" else str(tmp_path / "chosen")
    before = find_places(source, chosen).write
    (before.parent if which == "chosen" else before).chmod(mode)
    find_places.cache_clear()
    places = find_places(source, chosen)
    assert before not in places.read
    assert places.write is not None


@unix
def test_a_chosen_folder_like_tmp_is_shared_safely(source, tmp_path):
    (tmp_path / "chosen").mkdir()
    (tmp_path / "chosen").chmod(0o1777)
    assert find_places(source, str(tmp_path / "chosen")).write.parent == tmp_path / "chosen"


@unix
def test_folders_and_files_of_others_are_not_read(source, folder, monkeypatch):
    assert use(double) == (84.0, 0)
    if os.getuid() == 0:
        for path in files(folder):
            os.chown(path, 12345, -1)
        os.chown(source, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert use(double)[1] == 0
    assert not _compiled_cache._is_safe_folder(source)


def test_a_read_only_installation_may_bring_code_along(source, tmp_path, monkeypatch):
    beside = source / "__pycache__"
    monkeypatch.setattr(os, "access", lambda path, _mode: path != beside)
    places = find_places(source, "")
    assert places.read == (beside, places.write)
    assert tmp_path / "user" in places.write.parents


def test_without_a_home_and_without_a_folder_nothing_is_kept(source, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    (source / "__pycache__").touch()
    assert find_places(source, "") == ((), None)


READ_ONLY = """
import os, sys
import numba
from mercer._jit import compile_log
numba.njit(lambda x: x + 1.0)(1.0)
# The administrator may write everywhere: somebody else goes on, who may not even read most of this machine.
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.path.insert(0, sys.argv[1])
from toy import answer
print(answer(1.0), [compiled.name for compiled in compile_log.compiled])
"""


@unix
def test_a_read_only_installation_without_home():
    with tempfile.TemporaryDirectory() as name:
        site = Path(name)
        (site / "toy.py").write_text("from mercer._jit import jit\n@jit\ndef answer(x):\n    return x + 2\n")
        site.chmod(0o555)
        environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        environment |= {"HOME": "/nonexistent", "XDG_CACHE_HOME": ""}
        command = [sys.executable, "-c", READ_ONLY, str(site)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
        kept = list(site.iterdir())
        site.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "3.0 ['toy.answer']"
    assert [path.name for path in kept] == ["toy.py"]
