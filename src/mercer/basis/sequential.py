"""The dictionary that the sequential learner finds in one pass."""

from typing import Literal

import numpy as np

from mercer._stored import stored
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.engine import ArrayTable, SequentialLearner, learn_table
from mercer.solvers.recursive import Rules


@stored
class Sequential(BasisStrategy):
    """Rows that a sequential LS-SVM keeps: in one pass, in the rows' order, supervised.

    A row is kept if it is new and useful; if there are too many, the one whose removal costs least is dropped. See
    ``OnlineRegressor``.

    Cost: about 3n·m² multiply-adds on one thread, one pass over the rows; memory m².

    Parameters
    ----------
    noise : float, default=0.1
        λ; that of the estimator is the natural choice.
    novelty_tol : float, default=1e-2
        Least squared distance of a row's function from the span of the others, between 0 and k(x, x).
    gain_tol : float, default=1e-4
        Least novelty times saved cost, in squared units of the targets.
    selection : {"supervised", "novelty"}, default="supervised"
        "novelty" leaves ``gain_tol`` out.

    References
    ----------
    T. Jung, D. Polani: Sequential learning with LS-SVM for large-scale data sets, ICANN 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import Sequential
    >>> X = np.random.default_rng(0).uniform(0, 6, size=(1000, 1))
    >>> model = NystromRegressor("matern", basis=Sequential(), n_basis=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.rank_ <= 20
    True
    """

    def __init__(
        self,
        noise: float = 0.1,
        *,
        novelty_tol: float = 1e-2,
        gain_tol: float = 1e-4,
        selection: Literal["supervised", "novelty"] = "supervised",
    ) -> None:
        self.noise = noise
        self.novelty_tol = novelty_tol
        self.gain_tol = gain_tol
        self.selection = selection

    @property
    def needs_targets(self) -> bool:
        """Whether there is no choice without targets."""
        return self.selection != "novelty"

    def choose(self, task: Task) -> Basis:
        """Keep at most ``n_basis`` rows."""
        if not self.noise > 0:
            raise ValueError(f"noise must be above zero, got {self.noise!r}.")
        for name in ("novelty_tol", "gain_tol"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least zero, got {getattr(self, name)!r}.")
        if self.selection not in {"supervised", "novelty"}:
            raise ValueError(f"selection must be 'supervised' or 'novelty', got {self.selection!r}.")
        rules = Rules(
            noise=float(self.noise),
            max_basis=task.n_basis,
            novelty_tol=float(self.novelty_tol),
            gain_tol=float(self.gain_tol) if self.selection == "supervised" else None,
        )
        # The learner has at least one output, which novelty does not depend on.
        targets = task.targets if task.targets.shape[1] else np.broadcast_to(0.0, (task.rows.n_rows, 1))
        learner = SequentialLearner(task.kernel, rules, task.rows.n_features, targets.shape[1])
        seen = np.arange(task.rows.n_rows) if task.weights is None else np.flatnonzero(task.weights > 0)
        learner, _ = learn_table(learner, ArrayTable(task.rows, targets, task.weights))
        note = task.note(len(learner.points), "no other row was new and useful enough")
        return Basis(points=learner.points, index=seen[learner.recursion.births], note=note)
