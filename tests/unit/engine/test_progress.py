import io
import os
import threading
from types import SimpleNamespace

import pytest

from mercer.engine import Threads, progress
from mercer.engine.blocks import Spans
from mercer.engine.progress import Progress
from tests.unit.engine.executors.test_threads import Calls


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Standard error on a terminal of 60 columns."""
    terminal = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=terminal))
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda: os.terminal_size((60, 20)))
    return terminal


def advanced(clock, line, rows, seconds):
    clock.now += seconds
    line.advance(rows)


def test_short_work_is_silent(clock, terminal):
    with Progress("statistics", 1000, verbose=2) as advance:
        clock.now += 0.9
        advance(1000)
    assert terminal.getvalue() == ""


def test_elsewhere_than_on_a_terminal_nothing_is_said(clock, capsys):
    advanced(clock, Progress("statistics", 10_000), 2500, 2.0)
    assert capsys.readouterr() == ("", "")


def test_long_work_says_how_far_it_is_how_fast_and_how_long_it_takes(clock, capsys):
    advanced(clock, Progress("statistics", 10_000, verbose=2), 2500, 2.0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "mercer: statistics: 2,500 of 10,000 rows, 1,250 rows/s, 6 s left\n"


def test_rows_of_an_unknown_number(clock, capsys):
    advanced(clock, Progress("statistics", None, verbose=2), 2500, 2.0)
    assert capsys.readouterr().err == "mercer: statistics: 2,500 rows, 1,250 rows/s\n"


def test_rows_that_were_done_before_do_not_make_it_faster(clock, capsys):
    advanced(clock, Progress("statistics", 10_000, verbose=2, before=5000), 1000, 2.0)
    assert capsys.readouterr().err == "mercer: statistics: 6,000 of 10,000 rows, 500 rows/s, 8 s left\n"


def test_on_a_terminal_one_line_is_written_again_and_cleared(clock, terminal):
    with Progress("statistics", 10_000) as advance:
        for rows in (100, 1900, 1):
            clock.now += 2.0
            advance(rows)
    first, second, third, blank, last = terminal.getvalue().split("\r")[1:]
    assert first == "mercer: statistics: 100 of 10,000 rows, 50 rows/s, 198 s lef"[:59]
    assert second.startswith("mercer: statistics: 2,000 of 10,000 rows")
    assert len(third) >= len(second)
    assert (blank.strip(), last) == ("", "")
    assert "\n" not in terminal.getvalue()
    assert max(map(len, (first, second, third, blank))) <= 59


def test_the_line_is_cleared_after_an_error(clock, terminal):
    def fail(advance):
        clock.now += 2.0
        advance(1)
        raise KeyError

    with pytest.raises(KeyError), Progress("statistics", 10) as advance:
        fail(advance)
    assert terminal.getvalue().endswith(" \r")


def test_a_process_without_standard_error(clock, monkeypatch):
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=None))
    advanced(clock, Progress("statistics", 10, verbose=2), 1, 5.0)


def test_a_line_a_second_at_most(clock, capsys):
    line = Progress("statistics", 10_000, verbose=2)
    for _ in range(100):
        advanced(clock, line, 100, 0.0625)
    assert len(capsys.readouterr().err.splitlines()) == 6


@pytest.mark.parametrize("total", [0, 10])
def test_no_rows_done_yet(clock, capsys, total):
    advanced(clock, Progress("statistics", total, verbose=2), 0, 5.0)
    assert capsys.readouterr().err == f"mercer: statistics: 0 of {total} rows, 0 rows/s\n"


def test_threads_lose_no_counts(clock, capsys):
    line = Progress("statistics", 4000, verbose=2)

    def work():
        for _ in range(1000):
            line.advance(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    advanced(clock, line, 0, 5.0)
    assert "4,000 of 4,000 rows" in capsys.readouterr().err


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_pass_shows_its_name_and_leaves_a_clear_line(n_jobs, clock, terminal):
    def slow(_tile):
        clock.now += 2.0

    Threads(n_jobs, verbose=1).reduce(Calls(slow), Spans([0, 10, 20, 30]))
    assert "mercer: calls: 10 of 30 rows" in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")
