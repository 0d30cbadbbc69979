"""A block of rows, as compiled code sees it: the rules as numbers, the data, and memory to work in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.solvers.compiled_blas import Routines, routines
from mercer.solvers.recursive.rules import Rules

__all__ = [
    "FACTOR",
    "FOLD",
    "FULL",
    "KAPPA",
    "RHO",
    "Block",
    "Data",
    "Layout",
    "Limits",
    "Matrices",
    "aligned",
    "good_length",
]

# Up to so many functions both triangles of the inverses are kept: half of the work is not faster than whole products.
FULL = 256
FOLD = 16  # rows after which vectors are folded into the products of the rows to come

# Most vectors that a row adds: its own, those of a growth and a pruning, and with forgetting K's two once more.
_VECTORS_OF_P, _VECTORS_OF_K = 5, 2

# Behind the slots, rows of the table have room for numbers: a vector has its factor there, coefficients have ρ and κ.
FACTOR = RHO = -1
KAPPA = -2

# What changes while rows are learned.
_COUNTS = "n_before n_rows n_V n_G size n_grown n_pruned n_scored n_changed n_moved"
_NUMBERS = "sigma tau cost hidden_cost least_novelty drift"
_FIELDS = [(name, np.intp) for name in _COUNTS.split()] + [(name, np.float64) for name in _NUMBERS.split()]
_TALLY = np.dtype(_FIELDS, align=True)


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
    room: int

    @classmethod
    def of(cls, rules: Rules, room: int) -> Limits:
        """The limits that rules set."""
        fixed, gain_tol = int(rules.intercept), -1.0 if rules.gain_tol is None else rules.gain_tol
        return cls(rules.noise, rules.max_basis + fixed, fixed, rules.novelty_tol, gain_tol, rules.forgetting, room)


class Layout(NamedTuple):
    """First rows, in the table of a block, of what it holds for each slot.

    values : b rows of kernel values; u, a : Mk and K⁻¹k of the b rows, as far as vectors are folded in; V, G : vectors
    of M and of K⁻¹; scaled : room for either, scaled; w : p rows of coefficients; P_diagonal, K_diagonal : of the
    inverses; used : 1 for functions in use, else 0; scores : see ``joining``, and two more rows to work in.
    """

    values: int
    u: int
    a: int
    V: int
    G: int
    scaled: int
    w: int
    P_diagonal: int
    K_diagonal: int
    used: int
    scores: int


class Block(NamedTuple):
    """Memory for a block of b rows with m functions before it, which takes s = m + b slots, with room for more.

    Attributes
    ----------
    table : array (rows, s)
        All vectors over slots, in one piece of memory: handing over an array takes nine numbers, a row takes one.
    at : Layout
        Where they are in it.
    births, homes : arrays (s,)
        Row number that each slot came from; its place after the block.
    columns : array (s,)
        Where the kernel values of each function stand among those that were given.
    origins : array (s,)
        After the block, the slot that each place is taken by.
    moved : array (s,)
        Places that are taken by another slot than their own.
    projections : array (b, 5 FOLD)
    tally : array (1,) of records
        n_before, n_rows: m and b; n_V, n_G: vectors so far; size: functions in use; n_scored: outputs that count;
        n_changed: functions that came since K⁻¹ was checked; n_moved: entries of ``moved``; sigma, tau:
        P⁻¹ = σM + τK⁻¹; least_novelty: the least seen, as a share of k(x, x); drift: the error of K⁻¹ when checked.
    limits : Limits
    blas : Routines
    n_outputs : int
        p.
    """

    table: FloatArray
    at: Layout
    births: IntArray
    homes: IntArray
    columns: IntArray
    origins: IntArray
    moved: IntArray
    projections: FloatArray
    tally: AnyArray
    limits: Limits
    blas: Routines
    n_outputs: int

    @classmethod
    def empty(cls, n_rows: int, slots: int, n_outputs: int, limits: Limits) -> Block:
        """Room for blocks of that many rows and slots."""
        n_V, n_G = _VECTORS_OF_P * n_rows, _VECTORS_OF_K * n_rows
        heights = (n_rows, n_rows, n_rows, n_V, n_G, n_V, n_outputs, 1, 1, 1, 3)
        first = np.concatenate([[0], np.cumsum(heights)]).tolist()
        births, homes, columns, origins, moved = np.empty((5, slots), dtype=np.intp)
        return cls(
            aligned(first[-1], good_length(slots - KAPPA)), Layout(*first[:-1]), births, homes, columns, origins, moved,
            np.empty((n_rows, _VECTORS_OF_P * FOLD)), np.zeros(1, dtype=_TALLY), limits, routines(), n_outputs,
        )  # fmt: skip

    def fits(self, n_rows: int, slots: int, n_outputs: int) -> bool:
        """Whether this is memory for blocks of that many rows, and of at least so many slots."""
        return (len(self.projections), self.n_outputs) == (n_rows, n_outputs) and len(self.births) >= slots

    @property
    def w(self) -> FloatArray:
        """The coefficients (p, s)."""
        return self.table[self.at.w : self.at.w + self.n_outputs]


class Data(NamedTuple):
    """K(x, x) (n,), targets (n, p), weights (n,) of n rows; |ρ|² (n,), to be filled in; the number of the first row."""

    prior: FloatArray
    targets: FloatArray
    weights: FloatArray
    residuals: FloatArray
    first: int


class Matrices(NamedTuple):
    """P⁻¹, K_mm⁻¹ and K_mm, with room: their first rows and columns are in use.

    While rows are learned, only the upper triangles hold, but for inverses of up to ``FULL`` functions.
    """

    P: FloatArray
    K: FloatArray
    gram: FloatArray


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
