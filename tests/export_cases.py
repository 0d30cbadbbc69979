"""Models to export, with the values they should have, for the tests of ONNX and of C."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from mercer.kernels import Linear, Matern, Product, Stationary, Sum
from mercer.kernels.closed_form import closed_form
from mercer.model import KernelExpansion
from tests.kernel_cases import VECTORS, D

# Largest error in units of Σ|w_j| sqrt(k(x,x) k(z_j,z_j)), which bounds the function.
TOLERANCE = {np.float64: 1e-13, np.float32: 2e-6}
# The same for kernels with a kink at r = 0, where squared distances are differences of inner products: √eps, times the
# slope of the kernel and the distance from the centre.
KINK_TOLERANCE = {np.float64: 1e-6, np.float32: 5e-3}


def has_closed_form(kernel):
    try:
        closed_form(kernel, D)
    except TypeError:
        return False
    return True


FORMULAS = [case for case in VECTORS if has_closed_form(case.kernel)]
every_formula = pytest.mark.parametrize("case", FORMULAS, ids=str)


def has_kink(kernel):
    if isinstance(kernel, (Sum, Product)):
        return has_kink(kernel.left) or has_kink(kernel.right)
    if isinstance(kernel, Matern):
        return kernel.nu == 0.5  # those of the others' derivatives do not matter
    return isinstance(kernel, Stationary) and not kernel.smooth_at_zero


def expansion_of(case, *, n_outputs=2, m=13, seed=0):
    """An expansion on vectors that float32 holds exactly."""
    rng = np.random.default_rng(seed)
    _, points = case.draw(seed, m=m, dtype=np.float32)
    coefficients = rng.normal(size=(m, n_outputs))
    return KernelExpansion(case.kernel, points.astype(np.float64), coefficients, np.array([0.5, -2.0])[:n_outputs])


def rows_of(case, *, n=23, m=13, seed=0):
    """Rows that float32 holds exactly, the first two of them vectors of the expansion."""
    rows, _ = case.draw(seed, n=n, m=m, dtype=np.float32)
    return rows.astype(np.float64)


def expected_values(case, expansion, rows):
    """Values by the kernel's definition, shape (n, p), and what bounds them."""
    values = case.define(rows, expansion.points) @ expansion.coefficients + expansion.intercept
    return values, case.size(rows, expansion.points) @ np.abs(expansion.coefficients) + np.abs(expansion.intercept)


@dataclass(frozen=True)
class Classifier:
    """A classifier whose decision values are its inputs, as an exporter sees it."""

    classes_: Any
    decision_rule_: str
    scale: float = 1.0

    @property
    def n_outputs(self):
        k = len(self.classes_)
        return {"threshold": 1, "largest": k, "pairs": k * (k - 1) // 2}[self.decision_rule_]

    @property
    def expansion_(self):
        unit = np.eye(self.n_outputs)
        return KernelExpansion(Linear(), unit, self.scale * unit, np.zeros(self.n_outputs))

    def every_sign(self):
        """All inputs of -1, 0 and 1: every tie there is."""
        return np.array(list(product([-1.0, 0.0, 1.0], repeat=self.n_outputs)))

    def expected(self, values):
        """Index of the class, decided row by row as the rule says."""
        return np.array([_DECIDE[self.decision_rule_](row, len(self.classes_)) for row in values])


def _by_votes(row, n_classes):
    votes, values = [0] * n_classes, iter(row)
    for first in range(n_classes):
        for second in range(first + 1, n_classes):
            votes[first if next(values) > 0 else second] += 1
    return votes.index(max(votes))


_DECIDE = {
    "threshold": lambda row, _n_classes: int(row[0] > 0),
    "largest": lambda row, _n_classes: row.tolist().index(max(row)),
    "pairs": _by_votes,
}

STRINGS = ["", 'a "quote"', "back\\slash", "what??/", "Grün 緑", "1", "line\nfeed"]
CLASSIFIERS = [
    Classifier(np.array([3, 7]), "threshold"),
    Classifier(np.array([False, True]), "threshold"),
    Classifier(np.array([-1.5, 0.5]), "threshold"),
    Classifier(np.array([-(2**31) + 1, 0, 40_000]), "largest"),
    Classifier(np.array([-(2**63) + 1, 0, 2**63 - 1]), "largest"),
    Classifier(np.array(STRINGS), "largest"),
    Classifier(np.array(["a", "b", "c"], dtype=object), "pairs"),
    Classifier(np.array([10, 20, 30, 40]), "pairs"),
]
every_classifier = pytest.mark.parametrize(
    "classifier", CLASSIFIERS, ids=lambda c: f"{c.decision_rule_}-{len(c.classes_)}-{c.classes_.dtype}"
)
