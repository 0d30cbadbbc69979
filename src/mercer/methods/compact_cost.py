"""Whether variances are cheaper with a factor that a fit did without.

Work is counted in multiplications of a product with the sparse matrix, each about a nanosecond or two:

======================  =================================================================================
step                    work
======================  =================================================================================
conjugate gradients     non-zeros · iterations for each row, shared by the workers
order of elimination    1000 per non-zero: it may be looked for only where the iterations exceed that
factor                  Σ c_j², of columns with c_j entries; one worker
a row with it           3 for each entry of L on the way to the root, shared by the workers
======================  =================================================================================

The factors were measured on points in the plane (20 000 to 200 000 rows), in one run with one thread.
"""

from typing import NamedTuple

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.solvers.sparse_symbolic import entries_reached

ORDERING = 1000.0  # multiplications per non-zero that finding an order of elimination is worth
_PER_ENTRY = 3.0  # multiplications that reading an entry of L costs, four rows at a time
_LONG = 1e11  # multiplications that a user is told of: minutes
_A_SECOND = 1e9


class Elimination(NamedTuple):
    """What is known of a factor before its numbers are."""

    entries: float  # of L
    work: float  # of making it
    row_work: float  # of the variance of a row, with one worker

    @classmethod
    def of(cls, parent: IntArray, counts: IntArray) -> "Elimination":
        """From the elimination tree and the entries of each column."""
        columns: FloatArray = counts.astype(np.float64)
        reached = entries_reached(parent, counts)
        return cls(float(np.sum(columns)), float(columns @ columns), _PER_ENTRY * float(np.mean(reached)))


class Request(NamedTuple):
    """Variances of so many rows of a model that was fitted by conjugate gradients."""

    n_rows: int
    n_points: int
    nnz: int
    n_iter: int
    workers: int

    @property
    def by_gradients(self) -> float:
        """Work without a factor."""
        return float(self.n_rows) * self.n_iter * self.nnz / self.workers

    @property
    def is_worth_a_look(self) -> bool:
        """Whether the iterations take longer than finding out what a factor would."""
        return self.by_gradients > ORDERING * self.nnz

    @property
    def most_entries(self) -> float:
        """With more entries the factor is not cheaper: Σc² is at least (Σc)²/n."""
        return float(np.sqrt(self.by_gradients * self.n_points))

    def is_cheaper(self, factor: Elimination) -> bool:
        """Whether to make the factor, and use it."""
        return factor.work + self.n_rows * factor.row_work / self.workers < self.by_gradients

    def warning(self, obstacle: str) -> str | None:
        """What to tell the user, if it takes long without a factor."""
        if self.by_gradients <= _LONG:
            return None
        minutes = self.by_gradients / _A_SECOND / 60
        return (
            f"standard deviations of {self.n_rows} rows take about {self.n_iter} iterations of conjugate gradients "
            f"each, in all {minutes:.0f} minutes or more: {obstacle}. Ask for fewer rows, fit with a smaller length "
            "scale or a larger noise, or use NystromRegressor."
        )
