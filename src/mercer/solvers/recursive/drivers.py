"""One block of rows after the other, in compiled code: by one thread, or by two that go side by side.

With two threads, the second one has the kernel values of the next block and their products with K⁻¹ ready when the
first one has learned the rows of a block: it takes K⁻¹ as it was before, and mends the products by what the block has
changed. Then the first thread applies the block to P⁻¹ and the second to K⁻¹, and both multiply by P⁻¹: each takes the
next part of the products that nobody has begun with. A small P⁻¹ stays in the cache of the first thread, which
multiplies alone, and the factors of functions in that of the second, which moves them.

Each thread counts what it has done, in a number that the other waits for.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np

from mercer._jit import count_shared, in_place, load_shared, store_shared
from mercer._typing import FloatArray, IntArray
from mercer.solvers.compiled_blas import Routines, call_back
from mercer.solvers.recursive.state import (
    BEFORE,
    CHANGED,
    DRIFT,
    FULL,
    N_G,
    N_V,
    ROWS,
    SIGMA,
    SIZE,
    TAU,
    Limits,
    Matrices,
    State,
)
from mercer.solvers.recursive.steps import learn_rows
from mercer.solvers.recursive.updates import (
    apply,
    clear_behind,
    error_of_inverse,
    go_back,
    moved,
    multiply,
    multiply_panel,
    n_panels,
    take_diagonal,
)
from mercer.solvers.recursive.values import Source, fill_values, move_factors
from mercer.solvers.recursive.vectors import fold

__all__ = ["SPOILT", "follow", "lead", "learn_blocks", "quit_waiting", "shared_counts"]

# How far K⁻¹(Kz) may be from z, of random signs, before K⁻¹ is computed anew; its relative error is then about 1e-9.
SPOILT = 1e-7

# Places among shared counts, on cache lines of their own: what each has done; after which block to stop; whether to
# quit at once; parts of products that somebody has begun with.
_LEADER, _FOLLOWER, _STOP, _QUIT, _PANELS = 0, 8, 16, 24, 32
_PATIENCE = 2000  # looks at a number before others are let run

_count: Any = count_shared
_load: Any = load_shared
_store: Any = store_shared


@cache
def _let_others_run() -> int:
    """Address of the system's function for that."""
    on_windows = sys.platform == "win32"
    library = ctypes.CDLL("kernel32" if on_windows else None)
    return ctypes.cast(library.SwitchToThread if on_windows else library.sched_yield, ctypes.c_void_p).value or 0


def shared_counts() -> tuple[IntArray, int]:
    """What two threads have in common: counts, and how to let others run."""
    return np.zeros(40, dtype=np.int64), _let_others_run()


def quit_waiting(shared: tuple[IntArray, int]) -> None:
    """Have the other thread wait no more."""
    shared[0][_QUIT] = 1


@in_place
def learn_blocks(blas: Routines, state: State, matrices: Matrices, limits: Limits, source: Source, rows: Any) -> Any:
    """Learn rows, in blocks; return how many.

    These are all, unless K⁻¹ is spoilt, there may be too little room for the next block, or a row of it is too far.
    ``rows`` are data, where to begin in them, and the number of their first row.
    """
    (data, start, first), done = rows, rows[1]
    while done < len(data.prior):
        m, stop = state.counts[SIZE], min(done + len(state.values), len(data.prior))
        if not has_room(limits, m, stop - done):
            break
        if not fill_values(blas, source, state.columns, state.values, (m, done, done, stop)):
            break
        open_block(state, stop - done, first + done)
        sizes = (m, stop - done, stop - done)
        multiply(blas, matrices.P, state.values, state.u, sizes)
        multiply(blas, matrices.K, state.values, state.a, sizes)
        take_diagonal(matrices.P, state.P_diagonal, state.counts)
        if limits.forgetting < 1.0:
            take_diagonal(matrices.K, state.K_diagonal, state.counts)
        learn_rows(blas, state, matrices, limits, data, done)
        close_block(state, source, done)
        move_functions(state, source, 0)
        extend_gram(state, matrices.gram, data.prior, done)
        apply_to_P(blas, state, matrices.P)
        apply_to_K(blas, state, matrices.K)
        if limits.forgetting < 1.0:
            go_back(matrices.P, matrices.K, state)
        done = stop
        if is_spoilt(blas, state, matrices, limits.fixed, first + done, state.scratch):
            break
    return done - start


@in_place
def lead(blas: Routines, states: Any, matrices: Matrices, limits: Limits, source: Source, rows: Any) -> Any:
    """As ``learn_blocks``, together with a thread that follows; two states take turns.

    ``rows`` are as there, and what is shared.
    """
    (state, ahead), (data, start, first, shared) = states, rows
    n_rows, done, posts = len(data.prior), rows[1], 0
    stop = min(done + len(state.values), n_rows)
    m = state.counts[SIZE]
    is_possible = has_room(limits, m, stop - done)
    if not is_possible or not fill_values(blas, source, state.columns, state.values, (m, done, done, stop)):
        _store(shared[0], _QUIT, 1)
        return 0
    open_block(state, stop - done, first + done)
    sizes = (m, stop - done, stop - done)
    multiply(blas, matrices.P, state.values, state.u, sizes)
    multiply(blas, matrices.K, state.values, state.a, sizes)
    take_diagonal(matrices.P, state.P_diagonal, state.counts)
    posts = _post(shared, _LEADER, posts)
    block, expected = 0, 0
    while True:
        block += 1
        n_next = min(len(state.values), n_rows - stop)
        learn_rows(blas, state, matrices, limits, data, done)
        expected += 1
        if not _arrives(shared, _FOLLOWER, expected):  # values of the next block
            return 0
        close_block(state, source, done)
        hand_over(state, ahead)
        if n_next > 0:
            open_block(ahead, n_next, first + stop)
        if not has_room(limits, ahead.counts[SIZE], n_next):
            _store(shared[0], _STOP, block)
        _store(shared[0], _PANELS, 0)
        posts = _post(shared, _LEADER, posts)
        apply_to_P(blas, state, matrices.P)
        posts = _post(shared, _LEADER, posts)
        done = stop
        expected += 1
        if not _arrives(shared, _FOLLOWER, expected):  # the next block in its places
            return 0
        if n_next > 0:
            take_diagonal(matrices.P, ahead.P_diagonal, ahead.counts)
            sizes = (ahead.counts[BEFORE], n_next, n_next)
            if is_small(ahead):
                multiply(blas, matrices.P, ahead.values, ahead.u, sizes)
            else:
                clear_behind(ahead.u, sizes)
                multiply_some(blas, matrices.P, ahead, n_next, shared)
        expected += 1
        if not _arrives(shared, _FOLLOWER, expected):  # K⁻¹, and the other products
            return 0
        if n_next == 0 or _load(shared[0], _STOP) == block:  # the other thread may have gone on
            break
        stop = done + n_next
        state, ahead = ahead, state
    return done - start


@in_place
def follow(blas: Routines, states: Any, matrices: Matrices, limits: Limits, source: Source, rows: Any) -> None:
    """What ``lead`` waits for."""
    (state, ahead), (data, done, first, shared) = states, rows
    n_rows, posts, block, expected = len(data.prior), 0, 0, 1
    stop = min(done + len(state.values), n_rows)
    if not _arrives(shared, _LEADER, expected):
        return
    while True:
        block += 1
        n_next = min(len(state.values), n_rows - stop)
        m, n_own = state.counts[BEFORE], stop - done
        if not fill_values(blas, source, state.columns, ahead.values, (m, done, stop, stop + n_next)):
            _store(shared[0], _STOP, block)
        posts = _post(shared, _FOLLOWER, posts)
        if n_next > 0:
            multiply(blas, matrices.K, ahead.values, ahead.a, (m, n_next, n_own))
        expected += 1
        if not _arrives(shared, _LEADER, expected):
            return
        move_functions(state, source, n_next)
        if n_next > 0:
            span = (n_next, 0, 0, state.counts[N_G], m + n_own)
            fold(blas, ahead.values, ahead.a, (state.G, state.d), ahead.projections, span)
            move_block(state, ahead, n_next)
        posts = _post(shared, _FOLLOWER, posts)
        extend_gram(state, matrices.gram, data.prior, done)
        apply_to_K(blas, state, matrices.K)
        if is_spoilt(blas, ahead, matrices, limits.fixed, first + stop, state.scratch):
            _store(shared[0], _STOP, block)
        expected += 1
        if not is_small(ahead):
            if not _arrives(shared, _LEADER, expected):
                return
            if n_next > 0:
                multiply_some(blas, matrices.P, ahead, n_next, shared)
        posts = _post(shared, _FOLLOWER, posts)
        if n_next == 0 or _load(shared[0], _STOP) == block:
            break
        done, stop = stop, stop + n_next
        state, ahead = ahead, state


@in_place
def multiply_some(blas: Routines, P: FloatArray, state: State, n_rows: Any, shared: Any) -> None:
    """Multiply the rows of a block by P⁻¹, together with another thread: columns that it has not begun with."""
    m = state.counts[BEFORE]
    panel = _count(shared[0], _PANELS)
    while panel < n_panels(m):
        multiply_panel(blas, P, state.values, state.u, (m, n_rows, panel))
        panel = _count(shared[0], _PANELS)


@in_place
def is_small(state: State) -> Any:
    """Whether one thread is to multiply by P⁻¹: to fetch it from the other one's cache would take longer."""
    return state.counts[BEFORE] <= FULL


@in_place
def has_room(limits: Limits, size: Any, n_rows: Any) -> Any:
    """Whether all rows of a block may become functions."""
    return size + n_rows <= limits.room or limits.room >= limits.max_basis


@in_place
def apply_to_P(blas: Routines, state: State, P: FloatArray) -> None:  # noqa: N802  a matrix keeps its letter
    """Have P⁻¹ know a block that is closed."""
    counts = state.counts
    apply(blas, P, (state.V, state.c, counts[N_V]), (state.source, state.P_moved), state.P_room, counts)


@in_place
def apply_to_K(blas: Routines, state: State, K: FloatArray) -> None:  # noqa: N802  as above
    """Have K⁻¹ know a block that is closed."""
    counts = state.counts
    apply(blas, K, (state.G, state.d, counts[N_G]), (state.source, state.K_moved), state.K_room, counts)


@in_place
def _post(shared: Any, place: Any, posts: Any) -> Any:
    _store(shared[0], place, posts + 1)
    return posts + 1


@in_place
def _arrives(shared: Any, place: Any, number: Any) -> Any:
    """Wait for a number; whether it has come."""
    looks = 0
    while _load(shared[0], place) < number:
        if _load(shared[0], _QUIT) > 0:
            return False
        looks += 1
        if looks > _PATIENCE:
            call_back(shared[1], ())
    return True


@in_place
def open_block(state: State, n_rows: Any, number: Any) -> None:
    """Begin a block of rows, from that number on, but for their values and products."""
    counts, m = state.counts, state.counts[SIZE]
    counts[BEFORE], counts[ROWS], counts[N_V], counts[N_G] = m, n_rows, 0, 0
    state.numbers[SIGMA], state.numbers[TAU] = 1.0, 0.0
    for i in range(m):
        state.used[i], state.homes[i] = 1.0, i
    for t in range(n_rows):
        state.used[m + t], state.births[m + t] = 0.0, number + t
        for o in range(len(state.w)):
            state.w[o, m + t] = 0.0


@in_place
def close_block(state: State, source: Source, start: Any) -> None:
    """Have newcomers take the places that they found: fill in ``source``, and move what is known of them."""
    counts, places, m, size = state.counts, state.source, state.counts[BEFORE], state.counts[SIZE]
    own = source.given.shape[1] - len(source.given) + start
    for place in range(size):
        places[place] = place
    for slot in range(m, m + counts[ROWS]):
        if state.used[slot] > 0.0:
            places[state.homes[slot]] = slot
    for place in range(size):  # a newcomer never comes from a slot before its place
        slot = places[place]
        if slot < m:
            continue
        counts[CHANGED] += 1
        state.columns[place] = own + slot - m
        state.births[place] = state.births[slot]
        for o in range(len(state.w)):
            state.w[o, place] = state.w[o, slot]


@in_place
def extend_gram(state: State, gram: FloatArray, prior: FloatArray, start: Any) -> None:
    """Have the values of newcomers in K_mm, above its diagonal."""
    m, places, size = state.counts[BEFORE], state.source, state.counts[SIZE]
    for place in range(size):
        slot = places[place]
        if slot < m:
            continue
        for j in range(size):
            if places[j] < slot:  # of two newcomers the later one has the value
                gram[min(place, j), max(place, j)] = state.values[slot - m, places[j]]
        gram[place, place] = prior[start + slot - m]


@in_place
def move_functions(state: State, source: Source, n_rows: Any) -> None:
    """Have the factors of functions in their places, and those of so many rows of the next block after them."""
    if source.profile != 0:
        counts, places = state.counts, state.K_moved
        n_moved = moved(state.source, counts[SIZE], places)
        sizes = (n_moved, counts[SIZE], counts[BEFORE] + counts[ROWS], n_rows)
        move_factors(source.functions, state.source, places, sizes)


@in_place
def hand_over(state: State, ahead: State) -> None:
    """Have another state know what this one knows after its block."""
    for place in range(state.counts[SIZE]):
        ahead.births[place], ahead.columns[place] = state.births[place], state.columns[place]
        for o in range(len(state.w)):
            ahead.w[o, place] = state.w[o, place]
    for i in range(len(state.counts)):
        ahead.counts[i] = state.counts[i]
    for i in range(len(state.numbers)):
        ahead.numbers[i] = state.numbers[i]


@in_place
def move_block(state: State, ahead: State, n_rows: Any) -> None:
    """Have the values and products of the next block, made for the slots of this one, in the places after it."""
    size, behind = state.counts[SIZE], state.counts[BEFORE] + state.counts[ROWS]
    places = state.K_moved
    n_moved = moved(state.source, size, places)
    for t in range(n_rows):
        for i in range(n_moved):
            ahead.values[t, places[i]] = ahead.values[t, state.source[places[i]]]
            ahead.a[t, places[i]] = ahead.a[t, state.source[places[i]]]
        for j in range(n_rows):
            ahead.values[t, size + j] = ahead.values[t, behind + j]
            ahead.a[t, size + j] = 0.0


@in_place
def is_spoilt(blas: Routines, state: State, matrices: Matrices, fixed: Any, seed: Any, scratch: FloatArray) -> Any:
    """Whether K⁻¹ must be computed anew.

    Looked at when an eighth of the dictionary has changed, and after each block once something is seen.
    """
    counts, numbers = state.counts, state.numbers
    quiet = 8 * counts[CHANGED] < counts[SIZE] and numbers[DRIFT] <= 0.1 * SPOILT
    if counts[CHANGED] == 0 or quiet:
        return False
    numbers[DRIFT], counts[CHANGED] = error_of_inverse(blas, matrices, (counts[SIZE], fixed, seed), scratch), 0
    return not numbers[DRIFT] <= SPOILT
