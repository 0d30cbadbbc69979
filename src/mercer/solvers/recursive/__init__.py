"""Regularised least squares on functions that come and go, one row at a time.

``rules`` says when functions come and go, ``reference`` is the plain recursion, ``blocks`` the fast one.
"""

from mercer.solvers.recursive.block import aligned, good_length
from mercer.solvers.recursive.blocks import MOST_ROWS, BlockRecursion, block_rows
from mercer.solvers.recursive.inverses import inverse
from mercer.solvers.recursive.reference import ReferenceRecursion
from mercer.solvers.recursive.rules import Rules
from mercer.solvers.recursive.values import Source

__all__ = [
    "MOST_ROWS",
    "BlockRecursion",
    "ReferenceRecursion",
    "Rules",
    "Source",
    "aligned",
    "block_rows",
    "good_length",
    "inverse",
]
