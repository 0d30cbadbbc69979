import threading

import pytest

from mercer.engine import progress
from mercer.engine.progress import Progress


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


def test_short_work_is_silent(clock, capsys):
    line = Progress("statistics", 1000)
    clock.now += 0.9
    line.advance(1000)
    assert capsys.readouterr() == ("", "")


def test_long_work_says_how_far_it_is_and_how_long_it_takes(clock, capsys):
    line = Progress("statistics", 10_000)
    clock.now += 2.0
    line.advance(2_500)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "mercer: statistics: 2,500 of 10,000 rows, 2 s, 6 s left\n"


def test_a_line_a_second_at_most(clock, capsys):
    line = Progress("statistics", 10_000)
    for _ in range(100):
        clock.now += 0.0625
        line.advance(100)
    assert len(capsys.readouterr().err.splitlines()) == 6


def test_no_rows_done_yet(clock, capsys):
    line = Progress("statistics", 10)
    clock.now += 5.0
    line.advance(0)
    assert "0 of 10 rows" in capsys.readouterr().err


def test_no_rows_at_all(clock, capsys):
    line = Progress("statistics", 0)
    clock.now += 5.0
    line.advance(0)
    assert "0 of 0 rows" in capsys.readouterr().err


def test_threads_lose_no_counts(clock, capsys):
    line = Progress("statistics", 4000)

    def work():
        for _ in range(1000):
            line.advance(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now += 5.0
    line.advance(0)
    assert "4,000 of 4,000 rows" in capsys.readouterr().err
