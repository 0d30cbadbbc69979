"""Orthogonal least squares: the row whose function lowers the squared error most, one after the other."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mercer._stored import stored
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.basis.least_squares import AllCandidates, Candidate, GrowingFit

__all__ = ["ForwardSelection", "check_greedy_parameters", "grow"]

_PATIENCE = 10  # functions added without a better score before GCV stops


@stored
class ForwardSelection(BasisStrategy):
    """Greedy forward selection by orthogonal least squares (OLS), supervised.

    Each step adds the candidate that lowers the squared error of the targets most, all outputs together. Of 59
    candidates drawn at random the best is among the best 5 % of all with 95 % certainty, at a cost that does not grow
    with their number.

    Cost: n·m²·c/2 multiply-adds for c candidates per step (with all rows as candidates n² kernel values per step);
    memory n·(m + c), with all rows as candidates also a copy of them.

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

    def choose(self, task: Task) -> Basis:
        """Choose at most ``n_basis`` rows."""
        check_greedy_parameters(self.candidates, self.tol)
        if self.stop not in {"budget", "gcv"}:
            msg = f"stop must be 'budget' or 'gcv', got {self.stop!r}."
            raise ValueError(msg)
        return grow(GrowingFit(task, noise=0.0), task, self.candidates, self.tol, gcv=self.stop == "gcv")


def grow(fit: GrowingFit, task: Task, candidates: int | None, tol: float, *, gcv: bool = False) -> Basis:
    """Add functions until the room is used, nothing is gained, or GCV has passed its least."""
    room, scale, note = min(task.n_basis, task.rows.n_rows), fit.squares, ""
    total_weight = _total_weight(task, room) if gcv else 0.0
    everything = AllCandidates(fit) if candidates is None else None
    scores: list[float] = []
    while len(fit.index) < room:
        candidate, gain = _best(fit, everything, candidates or 1, task.random_state)
        if candidate is None or not gain > tol * scale:
            why = f"no candidate gains {tol:g} of the sum of squares" if tol > 0 else "no other row gains anything"
            note = f"{len(fit.index)} of {task.n_basis} points: {why}."
            break
        if not fit.add(candidate) > 0:  # spanned by the others, to rounding: it is not free any more
            continue
        if everything is not None:
            everything.update()
        if gcv:
            scores.append(_gcv(fit.squares, len(fit.index), total_weight))
            if len(scores) - int(np.argmin(scores)) > _PATIENCE:
                break
    size = int(np.argmin(scores)) + 1 if scores else len(fit.index)
    if scores and size < min(task.n_basis, len(fit.index) + (not note)):
        note = f"{size} of {task.n_basis} points: generalised cross-validation is least there."
    if size < task.n_basis and not note:
        note = f"{size} of {task.n_basis} points: there are no more rows."
    return Basis(points=fit.points[:size], index=np.array(fit.index[:size], dtype=np.intp), note=note)


def _total_weight(task: Task, room: int) -> float:
    """What GCV counts as rows."""
    total = float(task.rows.n_rows if task.weights is None else np.sum(task.weights))
    if total <= min(room, 1):
        msg = f"stop='gcv' counts a weight as so many rows; these weights sum to {total:g} only."
        raise ValueError(msg)
    return total


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
    """The best of some rows drawn at random; while none of them gains anything, of others."""
    if fit.squares <= 0:
        return None, 0.0
    if everything is not None:
        return everything.best()
    eligible = fit.eligible
    if not len(eligible):
        return None, 0.0
    first = eligible if len(eligible) <= number else random_state.choice(eligible, number, replace=False)
    candidate, gain = fit.best(first)
    if gain > 0:
        return candidate, gain
    others = random_state.permutation(np.setdiff1d(eligible, first))
    for start in range(0, len(others), number):
        candidate, gain = fit.best(others[start : start + number])
        if gain > 0:
            return candidate, gain
    return None, 0.0


def _gcv(squares: float, size: int, total_weight: float) -> float:
    share = 1.0 - size / total_weight
    return squares / share**2 if share > 0 else np.inf
