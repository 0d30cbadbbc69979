"""What a block of rows is, for compiled code: rules as numbers, data, state."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._typing import FloatArray, IntArray

__all__ = [
    "BEFORE",
    "CHANGED",
    "COST",
    "DRIFT",
    "FOLD",
    "FULL",
    "GROWN",
    "HIDDEN",
    "LEAST",
    "N_G",
    "N_V",
    "PRUNED",
    "ROWS",
    "SCORED",
    "SIGMA",
    "SIZE",
    "TAU",
    "Data",
    "Limits",
    "Matrices",
    "State",
    "aligned",
    "good_length",
]

BEFORE, ROWS, N_V, N_G, SIZE, GROWN, PRUNED, SCORED, CHANGED = range(9)  # of ``counts``
SIGMA, TAU, COST, LEAST, HIDDEN, DRIFT = range(6)  # of ``numbers``
# Up to so many functions both triangles of the inverses are kept: half of the work is not faster than whole products.
FULL = 256
FOLD = 16  # rows after which vectors are folded into the products of the rows to come


def aligned(n_rows: int, n_columns: int) -> FloatArray:
    """A table, of whatever numbers, whose rows start on cache lines if their length is a multiple of eight.

    Vectors of 64 bytes that lie on two lines take twice as long to read.
    """
    flat = np.empty(n_rows * n_columns + 8)
    start = -(flat.ctypes.data // 8) % 8
    return flat[start : start + n_rows * n_columns].reshape(n_rows, n_columns)


def good_length(size: int) -> int:
    """A length of rows that is at least that: whole cache lines, and no power of two, so that columns share no set."""
    size = (size + 7) // 8 * 8
    return size + 8 if size % 64 == 0 else size


class Limits(NamedTuple):
    """The rules, as numbers; a negative ``gain_tol`` asks for novelty alone.

    The first ``fixed`` functions, which count in ``max_basis``, are never removed. There is memory for ``room``.
    """

    noise: float
    max_basis: int
    fixed: int
    novelty_tol: float
    gain_tol: float
    forgetting: float
    least_novelty: float
    tie: float
    room: int


class State(NamedTuple):
    """A block of b rows with m functions before it, which takes s = m + b slots.

    Arrays have room for more: kernel values, when they are made ahead, for the rows of two blocks.

    Attributes
    ----------
    values : array (b, s)
        Kernel values between the rows and the functions of all slots.
    u, a : arrays (b, s)
        Mk and K⁻¹k of the rows, as far as vectors are folded in.
    w : array (p, s)
    P_diagonal, K_diagonal : arrays (s,)
        Of P⁻¹ and K⁻¹.
    used : array (s,)
        1 for functions in use, else 0.
    births, homes : arrays (s,)
        Row number that each slot came from; its place after the block.
    columns : array (s,)
        Where the kernel values of each function stand among those that were given.
    source : array (s,)
        After the block, the slot that each place is taken by.
    P_moved, K_moved : arrays (s,)
        Room for the places that newcomers take, for those who care for either matrix.
    V, c : arrays (5 b, s), (5 b,)
        Vectors and factors of M.
    G, d : arrays (2 b, s), (2 b,)
        Vectors and factors of K⁻¹.
    counts : array (9,)
        m, b; vectors in V, in G; functions in use; grown; pruned; outputs that count; functions that came since K⁻¹ was
        looked at.
    numbers : array (6,)
        σ, τ, ξ; the least novelty seen, as a share of k(x, x); ξ of the outputs that do not count; the error of K⁻¹
        when it was looked at.
    scratch : array (4, s)
    by_output : array (2, p)
        ρ and κ.
    projections : array (b, 5 FOLD) or wider
    P_room, K_room : arrays (5 b, s), (2 b, s)
        For V and G, packed.
    """

    values: FloatArray
    u: FloatArray
    a: FloatArray
    w: FloatArray
    P_diagonal: FloatArray
    K_diagonal: FloatArray
    used: FloatArray
    births: IntArray
    homes: IntArray
    columns: IntArray
    source: IntArray
    P_moved: IntArray
    K_moved: IntArray
    V: FloatArray
    c: FloatArray
    G: FloatArray
    d: FloatArray
    counts: IntArray
    numbers: FloatArray
    scratch: FloatArray
    by_output: FloatArray
    projections: FloatArray
    P_room: FloatArray
    K_room: FloatArray

    @classmethod
    def empty(cls, n_rows: int, slots: int, n_outputs: int) -> State:
        """Room for blocks of that many rows and slots; the tables lie in one piece of memory, on cache lines."""
        numbers = {"V": 5, "G": 2, "P_room": 5, "K_room": 2, "values": 1, "u": 1, "a": 1}
        heights = {name: number * n_rows for name, number in numbers.items()}
        heights |= {"w": n_outputs, "scratch": 4, "P_diagonal": 1, "K_diagonal": 1, "used": 1}
        tables: dict[str, Any] = {}
        memory, start = aligned(sum(heights.values()), slots), 0
        for name, height in heights.items():
            tables[name], start = memory[start : start + height], start + height
        tables |= {name: tables[name][0] for name in ("P_diagonal", "K_diagonal", "used")}
        names = ("births", "homes", "columns", "source", "P_moved", "K_moved")
        tables |= zip(names, np.empty((len(names), slots), dtype=np.intp), strict=True)
        return cls(
            **tables,
            c=np.empty(5 * n_rows),
            d=np.empty(2 * n_rows),
            counts=np.zeros(9, dtype=np.intp),
            numbers=np.zeros(6),
            by_output=np.empty((2, n_outputs)),
            projections=np.empty((n_rows, max(5 * FOLD, 2 * n_rows))),
        )


class Data(NamedTuple):
    """k(x, x) (n,), targets (n, p), weights (n,) of n rows; |ρ|² (n,), to be filled in."""

    prior: FloatArray
    targets: FloatArray
    weights: FloatArray
    residuals: FloatArray


class Matrices(NamedTuple):
    """P⁻¹, K_mm⁻¹ and K_mm, with room: their first rows and columns are in use.

    While rows are learned, only the upper triangles hold, but for inverses of up to ``FULL`` functions.
    """

    P: FloatArray
    K: FloatArray
    gram: FloatArray
