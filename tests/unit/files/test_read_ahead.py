import threading
from contextlib import closing

import numpy as np
import pytest

from mercer.engine import Piece
from mercer.files.read_ahead import cut, read_ahead


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "mercer-read"]


def test_items_come_in_their_order_from_another_thread():
    def items():
        for i in range(5):
            yield i, threading.current_thread().name

    found = list(read_ahead(items()))
    assert [i for i, _ in found] == list(range(5))
    assert {name for _, name in found} == {"mercer-read"}
    assert not readers()


def test_no_more_than_one_is_made_ahead():
    made = []

    def items():
        for i in range(10):
            made.append(i)
            yield i

    with closing(read_ahead(items())) as stream:
        for i in stream:
            assert len(made) <= i + 2
            if i == 4:
                break
    assert not readers()


def test_errors_arrive_where_they_belong():
    def items():
        yield 1
        raise OSError("no disk")

    stream = read_ahead(items())
    assert next(stream) == 1
    with pytest.raises(OSError, match="no disk"):
        next(stream)
    assert not readers()


def test_who_stops_early_ends_the_thread_and_closes_what_it_read():
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(True)

    stream = read_ahead(items())
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt)
    assert closed == [True]
    assert not readers()


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_pieces_are_cut_to_one_size(size):
    rows = np.arange(20.0)[:, np.newaxis]
    pieces = [Piece(rows[a:b], rows[a:b, 0]) for a, b in [(0, 5), (5, 6), (6, 18), (18, 20)]]
    found = list(cut(iter(pieces), size))
    assert [len(piece.rows) for piece in found] == [min(size, 20 - i) for i in range(0, 20, size)]
    np.testing.assert_array_equal(np.concatenate([piece.rows for piece in found]), rows)
    np.testing.assert_array_equal(np.concatenate([piece.labels for piece in found]), rows[:, 0])
