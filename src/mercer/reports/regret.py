r"""The regret of stochastic gradient descent, and what it cannot exceed.

With :math:`R_t(f) = \ell(f(x_t), y_t) + \frac{\lambda}{2}|f|^2`, rates :math:`\eta_t` that do not grow, and any fixed
function g,

.. math::
    \sum_{t\le n} R_t(f_t) - R_t(g) \le \frac{D^2}{2\eta_n} + \frac{G^2}{2}\sum_{t\le n}\eta_t
        + \sum_{t\le n}\frac{2D\delta_t + \delta_t^2}{2\eta_t}.

=========  ==================================================================================================
symbol     meaning
=========  ==================================================================================================
X²         the largest k(x, x)
c          the steepest slope of the loss; of the squared loss max abs(y) + UX
U          bound of abs(f_t): cX/λ as ηλ < 1; of the squared loss max abs(y)X/λ, if η(X² + λ) ≤ 1; or what was
           recorded, if terms that were dropped have made it more
D, G       U + abs(g) and cX + λU, bounds of abs(f_t - g) and of the gradient
δ_t        the norm of what was dropped after row t, as recorded
=========  ==================================================================================================

Proof: the risk is λ-strongly convex, so its excess is at most
:math:`\langle\partial_t, f_t - g\rangle - \frac{\lambda}{2}|f_t - g|^2`, and a step gives
:math:`\langle\partial_t, f_t - g\rangle = (|f_t - g|^2 - |\tilde f_{t+1} - g|^2)/2\eta_t + \eta_t|\partial_t|^2/2`;
dropping moves :math:`\tilde f_{t+1}` by :math:`\delta_t`. Sum. With :math:`\eta_t = \eta_0/\sqrt t` this is
:math:`a\sqrt n + b`, :math:`a = D^2/2\eta_0 + G^2\eta_0`, b what was dropped (Kivinen, Smola and Williamson, 2004,
Theorem 4, where D = 2U). With the "inverse" schedule the strong convexity pays for the growth of :math:`1/\eta_t`: the
first term is :math:`D^2/2\eta_1`, and the sum grows like log n. With a constant rate it grows like n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from mercer._typing import FloatArray
from mercer._validation import check_is_fitted
from mercer.engine import ArrayRows, GradientLearner, as_rows
from mercer.kernels import Kernel
from mercer.model import KernelExpansion
from mercer.solvers.stochastic import LOSSES, SCHEDULES, Loss, rates

_MOST_POINTS = 1000  # of a comparator
_LEAST = 1e-12  # eigenvalues of its kernel matrix, as a share of the largest


@dataclass(frozen=True)
class Regret:
    """Sums over rows 1 to n, for each n; losses are in units of the targets.

    Attributes
    ----------
    risk : array (n,)
        Σ R_t(f_t), of the model.
    comparator : array (n,)
        Σ R_t(g), of a fixed function.
    bound : array (n,)
        Of their difference.
    a, b : float
        The bound is at most a√n + b, with the "inverse_sqrt" schedule; else infinite.
    """

    risk: FloatArray
    comparator: FloatArray
    bound: FloatArray
    a: float
    b: float

    @property
    def regret(self) -> FloatArray:
        """The difference, (n,)."""
        return self.risk - self.comparator

    def __str__(self) -> str:
        n = len(self.risk)
        return (
            f"{n} rows: cumulative regularised risk {self.risk[-1]:.6g}, of the comparator {self.comparator[-1]:.6g}; "
            f"regret {self.regret[-1]:.6g}, bound {self.bound[-1]:.6g}"
        )


def regret(model: Any, X: Any, y: Any, comparator: KernelExpansion | None = None) -> Regret:
    """Compare a model with a fixed function, on the rows that it was fitted to.

    Parameters
    ----------
    model : NormaRegressor or NormaClassifier
        Fitted with ``record=True`` and ``intercept=False`` to one target, or two classes, without weights.
    X : array (n, d)
    y : array (n,)
        The rows and targets of ``fit``, in their order.
    comparator : KernelExpansion or None, default=None
        An expansion of the same kernel, without intercept, in the units of y; None stands for a function that is about
        the best in hindsight, on at most 1000 of the rows.

    Returns
    -------
    Regret

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NormaRegressor
    >>> from mercer.reports.regret import regret
    >>> X = np.random.default_rng(0).uniform(-2, 2, size=(500, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = NormaRegressor(schedule="inverse_sqrt", regularization=0.1, intercept=False, record=True).fit(X, y)
    >>> found = regret(model, X, y)
    >>> bool(np.all(found.regret <= found.bound))
    True
    """
    learner, rows = _checked(model, X, y), ArrayRows(np.asarray(X, dtype=np.float64))
    targets = _targets(model, learner, y)
    weight, table = learner.regularization, np.asarray(X, dtype=np.float64)
    if comparator is None:
        comparator = best_in_hindsight(learner.kernel, learner.loss, weight, table, targets)
        values = comparator.evaluate(rows)[:, 0]
        size = _norm(comparator)
    else:
        if np.any(comparator.intercept) or not comparator.kernel.equals(learner.kernel):
            raise ValueError("comparator must be an expansion of the model's kernel, without an intercept.")
        unit = float(learner.units.unit[0])
        values, size = comparator.evaluate(rows)[:, 0] / unit, _norm(comparator) / unit
    history = model.history_
    own = history["loss"][:, 0] + weight / 2 * history["squared_norm"][:, 0]
    theirs = learner.loss.values(values, targets) + weight / 2 * size**2
    bound, a, b = _bound(learner, targets, size, history)
    return Regret(np.cumsum(own), np.cumsum(theirs), bound, a, b)


def best_in_hindsight(kernel: Kernel, loss: Loss, weight: float, X: FloatArray, targets: FloatArray) -> KernelExpansion:
    """A function that about minimises Σ ℓ(g(x), y) + nλ/2·abs(g)², by L-BFGS; on all rows if they are few."""
    points = X[:: max(1, -(-len(X) // _MOST_POINTS))]
    s, U = np.linalg.eigh(kernel(points))
    kept = s > _LEAST * s[-1]
    root = U[:, kept] / np.sqrt(s[kept])  # g = k(·, points) root u, so that |g| = |u|
    features, total = kernel(X, points) @ root, len(X) * weight

    def objective(u: FloatArray) -> tuple[float, FloatArray]:
        values = features @ u
        risk = float(np.sum(loss.values(values, targets))) + total / 2 * float(u @ u)
        return risk / len(X), (features.T @ loss.slopes(values, targets) + total * u) / len(X)

    found = minimize(objective, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return KernelExpansion(kernel, points, (root @ found.x)[:, np.newaxis], np.zeros(1))


def _checked(model: Any, X: Any, y: Any) -> GradientLearner:
    check_is_fitted(model)
    learner: GradientLearner = model._state.learner
    if learner.n_outputs != 1 or learner.hidden:
        raise ValueError("the regret is that of one target, or of two classes.")
    if learner.steps.intercept:
        raise ValueError("an intercept is not penalised, and there is no bound with it: fit with intercept=False.")
    if len(model.history_["loss"]) != len(y) or as_rows(X).n_rows != len(y):
        raise ValueError(f"the model must be fitted with record=True to these {len(y)} rows, without weights.")
    if learner.loss.kind == LOSSES["squared_error"] and learner.longest > 1.0:
        raise ValueError(
            f"learning_rate={learner.rate:.3g} is too large for the bound of the squared loss: it must be at most "
            f"{learner.rate / learner.longest:.3g}."
        )
    if not np.allclose(learner.kernel.diagonal(np.asarray(X, dtype=np.float64)), learner.largest, rtol=1e-9) and (
        "auto" in (model.learning_rate, model.regularization)
    ):
        raise ValueError("k(x, x) varies: give learning_rate and regularization as numbers, which must not change.")
    return learner


def _targets(model: Any, learner: GradientLearner, y: Any) -> FloatArray:
    if hasattr(model, "classes_"):
        coding = model._coding
        return np.asarray(coding.columns(coding.codes(y))[:, 0])
    return np.asarray((np.ravel(y) - learner.units.shift[0]) / learner.units.unit[0])


def _norm(expansion: KernelExpansion) -> float:
    c = expansion.coefficients[:, 0]
    return float(np.sqrt(max(float(c @ expansion.kernel(expansion.points) @ c), 0.0)))


def _bound(
    learner: GradientLearner, targets: FloatArray, size: float, history: dict[str, FloatArray]
) -> tuple[FloatArray, float, float]:
    """The bound for each n, and its a and b."""
    largest, weight, steepest = float(np.sqrt(learner.largest)), learner.regularization, learner.loss.steepest
    recorded = float(np.sqrt(np.max(history["squared_norm"], initial=0.0)))
    if steepest is None:
        tallest = float(np.max(np.abs(targets)))
        bounded = max(tallest * largest / weight, recorded)
        steepest = tallest + bounded * largest
    else:
        bounded = max(steepest * largest / weight, recorded)
    distance, slope = bounded + size, steepest * largest + weight * bounded  # D, G
    eta, delta = rates(learner.steps, learner.largest, len(targets)), history["dropped"][:, 0]
    dropped = np.cumsum((2 * distance * delta + delta**2) / (2 * eta))
    first = eta[0] if learner.steps.schedule == SCHEDULES["inverse"] else eta
    bound = distance**2 / (2 * first) + slope**2 / 2 * np.cumsum(eta) + dropped
    if learner.steps.schedule != SCHEDULES["inverse_sqrt"]:
        return bound, np.inf, np.inf
    return bound, float(distance**2 / (2 * eta[0]) + slope**2 * eta[0]), float(dropped[-1])
