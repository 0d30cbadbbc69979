r"""The online ridge update of document 001: a solution follows when few rows come or go, without a new factorisation.

=============  ======================  ========  ====================================================================
document 001   code                    shape     meaning
=============  ======================  ========  ====================================================================
K_{X|Z}        V, whitened features    (n, m)    L⁻¹k_m(x) of the rows that were solved for, times √ω, centred
K_{Y|Z}        ``added``, ``removed``  (ℓ, m)    W: the same of rows that came, or went, since
B              ``root``: λB = RᵀR      (m, m)    (VᵀV + λI)⁻¹
B′             of the new ``root``     (m, m)    B ∓ BWᵀ(I ± WBWᵀ)⁻¹WB, the upper signs for rows that came
=============  ======================  ========  ====================================================================

The document updates α̂ = λ⁻¹y - λ⁻¹K_{X|Z}BK_{X|Z}ᵀy, n numbers (once it is printed without the first K_{X|Z}); ours are
the m weights u = K_{X|Z}ᵀα̂ = BK_{X|Z}ᵀy. Variances need R, not B, and R cannot lose definiteness. With P = RWᵀ/√λ and
the factor I ± PᵀP = SSᵀ,

.. math:: R' = R \mp P\,(S^\top + I)^{-1}S^{-1}\,P^\top R, \qquad \lambda B' = R'^\top R'.

That takes 6m²ℓ operations, in three products, where a new factor and its inverse take 2m³/3. The weights are u = B'c
with the new sums, refined once by their residual. A root is used only if it fits the new sums (``_is_root``), so
neither rounding that has added up nor a singular system goes unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack, solve_triangular

from mercer._typing import FloatArray
from mercer.engine import ArrayTable, NormalStatistics
from mercer.solvers.ridge import RidgeProblem, RidgeSolution

# Rows, as a share of the basis, up to which the update is faster than a new factor (``benchmarks/online_update.py``).
_CROSSING = 1 / 16
# Rows that may come and go, as a share of those solved for, until the factor is made anew and the model judged again:
# rows that are left out are looked at then alone, at the price of some 2000·m² operations.
_RENEWED = 0.5
# Relative error of variances, by a random test, at which a root is given up for a new factor.
_DRIFT = 1e-9
_PROBES = 4  # vectors of that test: an error in a single direction is seen at a tenth of its size but once in 10 000


@dataclass(frozen=True)
class Changes:
    """A system that was solved, and the rows by which its sums have changed since."""

    root: FloatArray  # (m, m)
    noise: float
    left: float  # how many rows may still come or go
    added: tuple[FloatArray, ...] = ()
    removed: tuple[FloatArray, ...] = ()

    @classmethod
    def since(cls, root: FloatArray, noise: float, n_rows: int) -> Changes:
        """None yet, of a system of that many rows that was factored."""
        return cls(root, noise, _RENEWED * n_rows)

    def admit(self, n_rows: int) -> bool:
        """Whether so many rows more can be followed faster than a new factor is made."""
        pending = sum(len(rows) for rows in (*self.added, *self.removed))
        return self.noise > 0 and n_rows <= self.left and pending + n_rows <= _CROSSING * len(self.root)

    def plus(self, rows: FloatArray) -> Changes:
        """With rows that came, from ``centred``."""
        return replace(self, added=(*self.added, rows), left=self.left - len(rows))

    def minus(self, rows: FloatArray) -> Changes:
        """With rows that went, from ``centred``."""
        return replace(self, removed=(*self.removed, rows), left=self.left - len(rows))

    def solve(self, problem: RidgeProblem) -> RidgeSolution | None:
        """The solution with the sums as they are now; None where it must be found directly."""
        if problem.is_nearly_singular(self.noise):
            return None
        root: FloatArray | None = self.root
        for rows, sign in ((self.added, 1.0), (self.removed, -1.0)):  # in this order it stays definite
            if root is not None and rows:
                root = updated_root(root, np.concatenate(rows), noise=self.noise, sign=sign)
        return None if root is None else _solve_by(root, problem, self.noise)

    def applied(self, solution: RidgeSolution) -> Changes:
        """None yet, of the system that ``solve`` has found."""
        return replace(self, root=solution.root, added=(), removed=())


def centred(features: FloatArray, table: ArrayTable, others: NormalStatistics, *, intercept: bool) -> FloatArray:
    """W (ℓ, m), by whose WᵀW these rows change the centred Gram matrix of all others.

    Means μ of weights n: Σω(v - μ₂)(v - μ₂)ᵀ + n₁n₂/(n₁ + n₂) (μ₁ - μ₂)(μ₁ - μ₂)ᵀ, which is Σω(v - c)(v - c)ᵀ with
    c = μ₂ + √(n₁/(n₁ + n₂)) (μ₁ - μ₂).
    """
    weights = np.ones(len(features)) if table.weights is None else table.weights
    total = float(np.sum(weights))
    if intercept and total > 0:
        mean, first = weights @ features / total, others.total_weight
        if first > 0:
            mean += np.sqrt(first / (first + total)) * (others.cross[:, -1] / first - mean)
        features = features - mean
    return np.asarray(np.sqrt(weights)[:, np.newaxis] * features)


def updated_root(root: FloatArray, rows: FloatArray, *, noise: float, sign: float) -> FloatArray | None:
    """R' with λ(C ± WᵀW)⁻¹ = R'ᵀR', from R with λC⁻¹ = RᵀR and the rows W; None where that is not definite."""
    # P = RWᵀ/√λ, I ± PᵀP = SSᵀ
    projected = root @ (rows.T / np.sqrt(noise))
    inner = np.eye(len(rows)) + sign * (projected.T @ projected)
    factor, info = lapack.dpotrf(inner, lower=1, clean=1)
    if info or not np.all(np.isfinite(factor)):
        return None
    # (Sᵀ + I)⁻¹ S⁻¹ PᵀR
    step = solve_triangular(factor, projected.T @ root, lower=True, check_finite=False)
    factor[np.diag_indices_from(factor)] += 1.0
    step = solve_triangular(factor, step, lower=True, trans="T", check_finite=False, overwrite_b=True)
    change = projected @ step
    return np.asarray(np.subtract(root, change, out=change) if sign > 0 else np.add(root, change, out=change))


def _solve_by(root: FloatArray, problem: RidgeProblem, noise: float) -> RidgeSolution | None:
    """u = Bc and its refinement, with λB = RᵀR; None if R is not the root it should be."""
    p = problem.cross.shape[1]
    probes = np.random.default_rng(0).standard_normal((len(root), _PROBES))
    # Rᵀ[z, Rc/λ], of which the last are u
    vectors = root.T @ np.column_stack([probes, root @ problem.cross / noise])
    # C[Rᵀz, u]
    images = problem.gram @ vectors + noise * vectors
    images[:, _PROBES:] = problem.cross - images[:, _PROBES:]
    back = root @ images / noise
    if not _is_root(back[:, :_PROBES], probes):
        return None
    # u + B(c - Cu)
    return problem.solution(vectors[:, _PROBES:] + root.T @ back[:, _PROBES : _PROBES + p], root, noise)


def _is_root(images: FloatArray, probes: FloatArray) -> bool:
    """Whether RCRᵀz/λ = z for normal z, to ``_DRIFT``.

    RCRᵀ/λ and B¹ᐟ²CB¹ᐟ² have the same eigenvalues, the ratios of vᵀBv and vᵀC⁻¹v: their distance from 1, of which
    this finds the root of the sum of squares, is the relative error of variances.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.sqrt(np.sum((images - probes) ** 2) / _PROBES)
    return bool(error <= _DRIFT)
