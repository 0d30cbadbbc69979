"""One line tells the user who waits for code to be compiled, and nobody else."""

import sys
import threading
import time
from types import SimpleNamespace

import numba
import pytest

from mercer import _jit
from mercer._jit import CompileLog, callback, compile_log, jit


def triple(x):
    return x + x + x


def fill(result):
    result[0] = 3.0


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_jit, "_PATIENCE", 0.0)
    monkeypatch.setattr(compile_log, "compiled", [])
    monkeypatch.setattr(compile_log, "_told", False)
    return compile_log


def test_the_line_comes_once_when_compiling_takes_long(log, capsys):
    for number in (1.0, 1, 1j):
        jit(triple)(number)
    error = capsys.readouterr().err
    assert error.splitlines() == [_jit._ONCE]
    assert "python -m mercer warmup" in error
    assert [compiled.name.rpartition(".")[2] for compiled in log.compiled] == ["triple"] * 3
    assert all(0 < compiled.seconds < 60 for compiled in log.compiled)


def test_the_line_comes_from_worker_threads_too(log, capsys):
    worker = threading.Thread(target=jit(triple), args=(1.0,))
    worker.start()
    worker.join()
    assert capsys.readouterr().err.splitlines() == [_jit._ONCE]


def test_code_from_disk_says_nothing(log, monkeypatch, capsys):
    jit(triple)(1.0)
    callback.cache_clear()
    callback(fill, "f")
    assert len(log.compiled) == 2
    capsys.readouterr()
    monkeypatch.setattr(log, "compiled", [])
    monkeypatch.setattr(log, "_told", False)
    jit(triple)(1.0)
    callback.cache_clear()
    callback(fill, "f")
    assert capsys.readouterr().err == ""
    assert log.compiled == []


def test_functions_of_others_are_not_ours_to_report(log, capsys):
    assert numba.njit(triple)(1.0) == 3.0
    assert capsys.readouterr().err == ""
    assert log.compiled == []


def test_where_nothing_can_be_kept_the_line_says_so(log, monkeypatch, capsys):
    monkeypatch.setattr(_jit, "find_places", lambda *_: _jit.Places((), None))
    assert jit(triple)(1.0) == 3.0
    assert capsys.readouterr().err.splitlines() == [_jit._ALWAYS]
    assert "NUMBA_CACHE_DIR" in _jit._ALWAYS


def test_short_compilations_add_up_and_only_then_are_reported(monkeypatch, capsys):
    monkeypatch.setattr(_jit, "_PATIENCE", 0.5)
    log, event = CompileLog(), SimpleNamespace(data={"dispatcher": jit(triple)})
    for _ in range(3):
        log.on_start(event)
        log.on_end(event)
    assert capsys.readouterr().err == ""
    log.compiled.append(_jit.Compiled("long", 0.6))
    log.on_start(event)
    time.sleep(0.2)
    log.on_end(event)
    assert capsys.readouterr().err.splitlines() == [_jit._ONCE]


def test_it_is_quiet_for_those_who_have_asked_for_it_and_without_standard_error(log, monkeypatch, capsys):
    with log.quiet():
        jit(triple)(1.0)
    monkeypatch.setattr(sys, "stderr", None)
    jit(triple)(1)
    monkeypatch.undo()
    assert capsys.readouterr() == ("", "")
