"""Orthogonal least squares: the row whose function lowers the squared error most, one after the other."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.basis.base import Basis, BasisStrategy
from mercer.basis.least_squares import AllCandidates, Candidate, GrowingFit
from mercer.engine import Executor, Rows
from mercer.kernels import Kernel

__all__ = ["ForwardSelection", "check_greedy_parameters", "grow"]

_PATIENCE = 10  # functions added without a better score before GCV stops


class ForwardSelection(BasisStrategy):
    """Greedy forward selection by orthogonal least squares (OLS), supervised.

    Each step adds the candidate that lowers the squared error of the targets most, all outputs together. Of 59
    candidates drawn at random the best is among the best 5 % of all with 95 % certainty, at a cost that does not grow
    with their number.

    Cost: n·m²·c/2 multiply-adds for c candidates per step (with all rows as candidates n² kernel values per step);
    memory n·(m + c).

    Parameters
    ----------
    candidates : int or None, default=59
        Rows tried per step; None for all.
    stop : {"budget", "gcv"}, default="budget"
        "budget" stops at ``n_basis``; "gcv" where generalised cross-validation is least, or at ``n_basis``.
    tol : float, default=0.0
        Stop when the best gain falls below this share of the targets' sum of squares.

    References
    ----------
    S. Chen, C. F. N. Cowan, P. M. Grant: Orthogonal least squares learning algorithm for radial basis function
    networks, 1991. A. J. Smola, P. L. Bartlett: Sparse greedy Gaussian process regression, NIPS 2000 (the rule of 59).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import ForwardSelection
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> basis = ForwardSelection(tol=1e-6)
    >>> model = NystromRegressor("gaussian", basis=basis, noise=1e-6, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.rank_ < 10
    True
    """

    def __init__(
        self, candidates: int | None = 59, *, stop: Literal["budget", "gcv"] = "budget", tol: float = 0.0
    ) -> None:
        self.candidates = candidates
        self.stop = stop
        self.tol = tol

    def select(
        self,
        rows: Rows,
        targets: FloatArray,
        kernel: Kernel,
        n_basis: int,
        *,
        weights: FloatArray | None,
        random_state: np.random.RandomState,
        executor: Executor,
    ) -> Basis:
        """Choose at most ``n_basis`` rows."""
        check_greedy_parameters(self.candidates, self.tol)
        if self.stop not in {"budget", "gcv"}:
            msg = f"stop must be 'budget' or 'gcv', got {self.stop!r}."
            raise ValueError(msg)
        room = min(n_basis, rows.n_rows)
        fit = GrowingFit(rows, targets, kernel, weights=weights, noise=0.0, room=room, executor=executor)
        total = float(rows.n_rows if weights is None else np.sum(weights))
        return grow(fit, self.candidates, self.tol, random_state, n_basis, total if self.stop == "gcv" else None)


def grow(
    fit: GrowingFit,
    candidates: int | None,
    tol: float,
    random_state: np.random.RandomState,
    n_basis: int,
    total_weight: float | None,
) -> Basis:
    """Add functions until the room is used, nothing is gained, or (``total_weight`` given) GCV has passed its least."""
    room, scale, note = min(n_basis, fit.rows.n_rows), fit.squares, ""
    everything = AllCandidates(fit) if candidates is None else None
    scores: list[float] = []
    while len(fit.index) < room:
        candidate, gain = _best(fit, everything, candidates or 1, random_state)
        if candidate is None or not gain > tol * scale:
            note = f"{len(fit.index)} of {n_basis} points: no candidate gains {tol:g} of the sum of squares."
            break
        if not fit.add(candidate) > 0:  # spanned by the others, to rounding
            break
        if everything is not None:
            everything.update()
        if total_weight is not None:
            scores.append(_gcv(fit.squares, len(fit.index), total_weight))
            if len(scores) - int(np.argmin(scores)) > _PATIENCE:
                break
    size = len(fit.index) if total_weight is None or not scores else int(np.argmin(scores)) + 1
    if size < len(fit.index) or (total_weight is not None and not note and size < n_basis):
        note = f"{size} of {n_basis} points: generalised cross-validation is least there."
    if size < n_basis and not note:
        note = f"{size} of {n_basis} points: there are no more rows."
    index = np.array(fit.index[:size], dtype=np.intp)
    return Basis(points=fit.points[:size], index=index, note=note)


def check_greedy_parameters(candidates: int | None, tol: float) -> None:
    """Refuse parameters out of range."""
    if candidates is not None and candidates < 1:
        msg = f"candidates must be None or at least 1, got {candidates!r}."
        raise ValueError(msg)
    if not 0 <= tol < 1:
        msg = f"tol must be at least 0 and below 1, got {tol!r}."
        raise ValueError(msg)


def _best(
    fit: GrowingFit, everything: AllCandidates | None, number: int, random_state: np.random.RandomState
) -> tuple[Candidate | None, float]:
    if everything is not None:
        return everything.best()
    candidates = _draw(fit, number, random_state)
    return fit.best(candidates) if len(candidates) else (None, 0.0)


def _draw(fit: GrowingFit, number: int, random_state: np.random.RandomState) -> IntArray:
    """Rows of positive weight that are not chosen yet, at random."""
    left = fit.eligible
    return left if len(left) <= number else random_state.choice(left, number, replace=False)


def _gcv(squares: float, size: int, total_weight: float) -> float:
    share = 1.0 - size / total_weight
    return squares / share**2 if share > 0 else np.inf
