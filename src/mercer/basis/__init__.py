"""Ways to choose basis points, one per file."""

from mercer.basis.base import Basis, BasisStrategy, Task, choose_basis
from mercer.basis.diagnostics import NystromError, nystrom_error
from mercer.basis.distribution import Distribution
from mercer.basis.forward_selection import ForwardSelection
from mercer.basis.kmeans import KMeans
from mercer.basis.leverage import Leverage, ridge_leverage_scores
from mercer.basis.pivoted_cholesky import PivotedCholesky
from mercer.basis.sequential import Sequential
from mercer.basis.sparse_greedy import SparseGreedy
from mercer.basis.supervised_cholesky import SupervisedCholesky
from mercer.basis.uniform import Uniform

__all__ = [
    "Basis",
    "BasisStrategy",
    "Distribution",
    "ForwardSelection",
    "KMeans",
    "Leverage",
    "NystromError",
    "PivotedCholesky",
    "Sequential",
    "SparseGreedy",
    "SupervisedCholesky",
    "Task",
    "Uniform",
    "choose_basis",
    "nystrom_error",
    "ridge_leverage_scores",
]
