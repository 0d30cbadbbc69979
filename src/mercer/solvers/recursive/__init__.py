"""Regularised least squares on functions that come and go, one row at a time.

``rules`` says when functions come and go, ``reference`` is the plain recursion, ``blocks`` the fast one.
"""

from mercer.solvers.recursive.blocks import BlockRecursion, Together, block_rows
from mercer.solvers.recursive.reference import ReferenceRecursion
from mercer.solvers.recursive.rules import Rules
from mercer.solvers.recursive.updates import inverse

__all__ = ["BlockRecursion", "ReferenceRecursion", "Rules", "Together", "block_rows", "inverse"]
