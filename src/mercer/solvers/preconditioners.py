r"""Preconditioners of conjugate gradients: from right-hand sides (n, p) to an approximate solution.

They must be symmetric positive definite themselves. SuperLU's incomplete factor is not: it drops from L and U
separately. The one here is an incomplete Cholesky factor.

References
----------
T. A. Manteuffel, An incomplete factorization technique for positive definite linear systems, Math. Comp. 34 (1980).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.sparse import csc_array, csr_array

from mercer._jit import jit
from mercer._stored import stored
from mercer._stored.checks import check_unit_lower
from mercer._typing import FloatArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.conjugate_gradient import Operator
from mercer.solvers.sparse_cholesky import solve_in_place

_FIRST_SHIFT = 1e-3  # share of the diagonal that is added when the factorisation first breaks down
# Least share of its diagonal entry that a pivot may keep: below √eps its column of L is mostly rounding error.
_LEAST_PIVOT = 1.5e-8


@stored
@dataclass(frozen=True)
class Unchanged:
    """No preconditioner."""

    def __call__(self, right: FloatArray) -> FloatArray:
        """Return the vectors."""
        return right


@stored
@dataclass(frozen=True)
class Jacobi:
    """Division by the diagonal (n,), which is positive: n operations for each column."""

    diagonal: FloatArray

    def __post_init__(self) -> None:
        """Refuse a diagonal that no positive definite matrix has."""
        _check_diagonal(self.diagonal)

    def __call__(self, right: FloatArray) -> FloatArray:
        """Apply the inverse to each column."""
        return np.asarray(right / self.diagonal[:, np.newaxis])


@stored
class Incomplete:
    r"""The inverse of an incomplete Cholesky factorisation without fill, IC(0), of the matrix with a shifted diagonal.

    .. math:: LDL^\top \approx A + \tau\,\mathrm{diag}(A)

    The factorisation of a positive definite matrix may break down; then τ is set to 10⁻³, and doubled until it
    succeeds, as it must once the diagonal dominates (Manteuffel). Whatever τ is, the operator is symmetric positive
    definite, and conjugate gradients solve the system with A itself.

    Both triangles of the matrix are stored. Entries with :math:`|a_{ij}| \leq \mathrm{drop\_tol}\,\sqrt{a_{ii}a_{jj}}`
    are left out. Cost: n·m² operations for m entries in a row of L, for each shift that is tried; 4·nnz(L) for each
    column it is applied to; 12 bytes for each entry of L.
    """

    lower: csc_array  # L, unit lower triangular, indices sorted
    pivots: FloatArray  # the diagonal of D, positive
    shift: float  # τ

    def __init__(self, matrix: csr_array, drop_tol: float = 1e-3) -> None:
        diagonal = np.asarray(matrix.diagonal(), dtype=np.float64)
        _check_diagonal(diagonal)
        if not np.all(np.isfinite(matrix.data)):  # no shift would help, and the search for one not end
            raise NotPositiveDefiniteError("the sparse matrix contains NaN or infinity: scale its rows.")
        lower = _lower_triangle(matrix, diagonal, drop_tol)
        self.pivots, self.shift, work = np.empty(len(diagonal)), 0.0, np.zeros(len(diagonal))
        given = (lower.indptr, lower.indices, lower.data.copy())
        while not _factor(given, (1.0 + self.shift) * diagonal, lower.data, self.pivots, work):
            self.shift = 2 * self.shift or _FIRST_SHIFT
        self.lower = lower.tocsc()  # sorted, in linear time

    def check_stored(self) -> None:
        """Refuse what compiled loops cannot walk along."""
        check_unit_lower(self.lower, self.pivots)

    def __call__(self, right: FloatArray) -> FloatArray:
        """Apply the inverse to each column."""
        x = np.array(right, dtype=np.float64, order="C")
        solve_in_place(self.lower, self.pivots, x)
        return x


@dataclass(frozen=True, kw_only=True)
class NystromPreconditioner:
    r"""The inverse of :math:`\Lambda + VV^\top`, a low-rank matrix plus diagonal noise.

    Here :math:`V = K_{nr}L^{-\top}`, :math:`K_{rr} = LL^\top` and :math:`\Lambda = \lambda W^{-1}`. By the Woodbury
    formula it is :math:`\Lambda^{-1} - \Lambda^{-1}V(\lambda I + V^\top W V)^{-1}V^\top W`.
    """

    times: Operator  # s (r, p) ↦ K_nr s (n, p)
    transposed_times: Operator  # b (n, p) ↦ K_rn b (r, p)
    lower: FloatArray  # L (r, r)
    gram: FloatArray  # VᵀWV (r, r)
    noise: float  # λ > 0
    weights: FloatArray  # (n,), the diagonal of W

    @cached_property
    def _inner(self) -> Any:  # the factor of λI + VᵀWV
        if not np.all(np.isfinite(self.gram)):
            raise NotPositiveDefiniteError(
                "the coarse matrix of the preconditioner contains NaN or infinity: scale weights and noise, or use "
                "another preconditioner."
            )
        # Where λ is less than the rounding of VᵀWV, more must be added; any such matrix is a preconditioner.
        rounding = len(self.gram) * np.finfo(np.float64).eps * float(np.trace(self.gram))
        shift, unit = self.noise, np.eye(len(self.gram))
        while True:
            try:
                return cho_factor(self.gram + shift * unit, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                shift = max(10 * shift, rounding)

    def __call__(self, right: FloatArray) -> FloatArray:
        """Apply the inverse to each column."""
        weights = self.weights[:, np.newaxis]
        weighted = weights * right
        # t = (λI + VᵀWV)⁻¹ VᵀW b
        reduced = solve_triangular(self.lower, self.transposed_times(weighted), lower=True, check_finite=False)
        inner = cho_solve(self._inner, reduced, check_finite=False)
        unwhitened = solve_triangular(self.lower, inner, lower=True, trans="T", check_finite=False)
        # (W b - W V t)/λ
        return np.asarray((weighted - weights * self.times(unwhitened)) / self.noise)


def _check_diagonal(diagonal: FloatArray) -> None:
    if not np.all(diagonal > 0) or not np.all(np.isfinite(diagonal)):
        raise NotPositiveDefiniteError(
            f"the sparse matrix is not positive definite: {np.min(diagonal):.3g} stands on its diagonal. Use a larger "
            "noise, or a positive definite kernel."
        )


def _lower_triangle(matrix: csr_array, diagonal: FloatArray, drop_tol: float) -> csr_array:
    """The entries that are kept, by rows, indices sorted: the diagonal is the last entry of each row."""
    entries = matrix.tocoo()  # a csr_array with duplicates keeps them, and the way back to rows sums them
    row, column = entries.coords
    root = np.sqrt(diagonal)
    kept = (row == column) | ((row > column) & (np.abs(entries.data) > drop_tol * root[row] * root[column]))
    data = entries.data[kept].astype(np.float64)
    # 32 bits, whatever the matrix has: they are 12 bytes per entry with the value, and compiled code for them is there.
    row, column = row[kept].astype(np.int32), column[kept].astype(np.int32)
    lower = csr_array((data, (row, column)), shape=matrix.shape)
    lower.sum_duplicates()
    return lower


@jit
def _factor(given: Any, diagonal: FloatArray, values: FloatArray, pivots: FloatArray, work: FloatArray) -> bool:
    """Fill values with L and pivots with D, row by row; False as soon as a pivot is lost. work is zero in between."""
    pointers, columns, entries = given
    for i in range(len(diagonal)):
        start, last = pointers[i], pointers[i + 1] - 1
        pivot = diagonal[i]
        for q in range(start, last):
            k = columns[q]
            # u_ik = a_ik - Σ_j u_ij l_kj, l_ik = u_ik / d_k, d_i = a_ii - Σ_k u_ik l_ik
            dot = 0.0
            for e in range(pointers[k], pointers[k + 1] - 1):
                dot += values[e] * work[columns[e]]
            u = entries[q] - dot
            work[k] = u
            values[q] = u / pivots[k]
            pivot -= u * values[q]
        for q in range(start, last):
            work[columns[q]] = 0.0
        values[last], pivots[i] = 1.0, pivot
        if not pivot > _LEAST_PIVOT * diagonal[i]:
            return False
    return True
