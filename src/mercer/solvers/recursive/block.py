"""A block of rows, as compiled code sees it: the data, and memory to work in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.solvers.compiled_blas import Routines, routines
from mercer.solvers.recursive.rules import Rules

FOLD = 16  # rows after which vectors are folded into the products of the rows to come
PANEL = 128  # columns of a symmetric matrix that are kept together, from the first row to the diagonal block

# Most vectors that a row adds: its own, those of a growth and a pruning, and with forgetting K's two once more.
_VECTORS_OF_P, _VECTORS_OF_K = 5, 2

# What changes while rows are learned.
_COUNTS = (
    "n_before",  # m
    "n_rows",  # b
    "n_V",  # vectors so far
    "n_G",
    "size",  # functions in use
    "n_grown",
    "n_pruned",
    "n_scored",  # outputs that count
    "n_changed",  # functions that came since K⁻¹ was checked
    "n_moved",  # entries of ``moved``
    "room",  # functions for which there is memory
)
_NUMBERS = (
    "sigma",  # P⁻¹ = σM + τK⁻¹
    "tau",
    "cost",
    "hidden_cost",
    "least_novelty",  # seen, as a share of k(x, x)
    "drift",  # the error of K⁻¹ when it was checked
)
_TALLY = np.dtype([(name, np.intp) for name in _COUNTS] + [(name, np.float64) for name in _NUMBERS], align=True)


class Vectors(NamedTuple):
    """Vectors v (n, s) and factors c (n,) of a sum of c vvᵀ; so many as a tally tells are in use."""

    rows: FloatArray
    factors: FloatArray


class Block(NamedTuple):
    """Memory for a block of b rows with m functions before it, which takes s = m + b slots, with room for more."""

    values: FloatArray  # (b, s), kernel values of the rows
    u: FloatArray  # (b, s), Mk and K⁻¹k of the rows, as far as vectors are folded in
    a: FloatArray
    V: Vectors  # of M and of K⁻¹
    G: Vectors
    scaled: FloatArray  # (5b, s), room for either, scaled
    projections: FloatArray  # (b, 5 FOLD)
    w: FloatArray  # (p, s), coefficients
    steps: FloatArray  # (p,), by how much of a vector the coefficients change
    P_diagonal: FloatArray  # (s,), of the inverses
    K_diagonal: FloatArray
    used: FloatArray  # (s,), 1 for functions in use, else 0
    scores: FloatArray  # (s,), what the removal of each function costs
    scratch: FloatArray  # (3, s)
    births: IntArray  # (s,), row number that each slot came from
    homes: IntArray  # (s,), its place after the block
    origins: IntArray  # (s,), the slot that takes each place after the block
    columns: IntArray  # (s,), where the kernel values of each function stand among those that were given
    moved: IntArray  # (s,), places that are taken by another slot than their own
    tally: AnyArray  # (1,), a record of the counts and numbers above
    rules: Any  # Rules, in which a negative ``gain_tol`` asks for novelty alone
    blas: Routines

    @classmethod
    def empty(cls, n_rows: int, n_outputs: int, slots: int, rules: Rules) -> Block:
        """Room for blocks of so many rows, outputs and slots."""
        n_V, n_G, length = _VECTORS_OF_P * n_rows, _VECTORS_OF_K * n_rows, good_length(slots)
        # One piece of memory: to take twelve would be a good part of the time that a single row takes.
        sizes = (n_rows, n_rows, n_rows, n_V, n_G, n_V, n_outputs, 4, 3)
        tables = np.split(aligned(sum(sizes), length), np.cumsum(sizes)[:-1])
        values, u, a, V, G, scaled, w, numbers, scratch = tables
        P_diagonal, K_diagonal, used, scores = numbers
        births, homes, origins, columns, moved = np.empty((5, slots), dtype=np.intp)
        return cls(
            values, u, a, Vectors(V, np.empty(n_V)), Vectors(G, np.empty(n_G)),
            scaled, np.empty((n_rows, _VECTORS_OF_P * FOLD)), w,
            np.empty(n_outputs), P_diagonal, K_diagonal, used, scores, scratch,
            births, homes, origins, columns, moved, np.zeros(1, dtype=_TALLY), rules, routines(),
        )  # fmt: skip


class Data(NamedTuple):
    """Rows to be learned."""

    prior: FloatArray  # (n,), k(x, x)
    targets: FloatArray  # (n, p)
    weights: FloatArray  # (n,)
    units: FloatArray  # (n,), in which gains are measured
    residuals: FloatArray  # (n, p), ρ, to be filled in
    variances: FloatArray  # (n,), δ + λkᵀu, to be filled in
    first: int  # number of the first row


class Matrices(NamedTuple):
    """Matrices with room: their first rows and columns are in use.

    While rows are learned, only the panels of the inverses hold, and of K_mm what is above the diagonal.
    """

    P: FloatArray  # P⁻¹
    K: FloatArray  # K_mm⁻¹
    gram: FloatArray  # K_mm


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
