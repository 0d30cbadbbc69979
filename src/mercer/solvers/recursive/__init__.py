"""Regularised least squares on functions that come and go, one row at a time.

``recursion`` has the formulas and the state, ``rules`` say when functions come and go; the rest is compiled code.
"""

from mercer.solvers.recursive.block import aligned, good_length
from mercer.solvers.recursive.blocks import Source
from mercer.solvers.recursive.recursion import MOST_ROWS, BlockRecursion, inverse
from mercer.solvers.recursive.rules import Rules

__all__ = ["MOST_ROWS", "BlockRecursion", "Rules", "Source", "aligned", "good_length", "inverse"]
