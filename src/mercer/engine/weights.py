"""What weights of rows count as.

A weight ω divides the noise of its row, λ/ω. That is the fit of ω equal rows, too, but ω rows say more about the noise
than one does, and one of them that is left out is predicted by the others. So it must be known which is meant: weights
that are whole numbers count equal rows, all others say how much each row matters relative to the rest.
"""

import numpy as np

from mercer._typing import FloatArray


def are_counts(weights: FloatArray | None) -> bool:
    """Whether weights (n,) are numbers of equal rows: whole ones."""
    return weights is None or bool(np.all(weights == np.rint(weights)))


def unit_of(weights: FloatArray, *, counted: bool) -> float:
    """The weight of an ordinary row: 1 if weights are counts, else their mean."""
    return 1.0 if counted else float(np.mean(weights))


def left_out_parts(weights: FloatArray, *, counted: bool) -> FloatArray:
    """What is taken from each weight when an observation is left out: 1 of a count, all of any other."""
    return np.minimum(weights, 1.0) if counted else weights


def relative_weights(weights: FloatArray, *, counted: bool) -> FloatArray:
    """Counts as they are, other weights relative to the largest."""
    return weights if counted else weights / np.max(weights, initial=0.0)


def effective_number(total: float, squares: float, *, counted: bool) -> float:
    """How many observations rows with these Σω and Σω² are worth: Σω of counts, else (Σω)²/Σω² (Kish 1965).

    Counts that were made smaller, as those of outliers are, are at least worth the latter, too.
    """
    relative = total * (total / squares) if squares > 0 else total
    return max(total, relative) if counted else relative


def number_of(weights: FloatArray, *, counted: bool) -> float:
    """How many observations rows of these weights are worth."""
    return effective_number(float(np.sum(weights)), float(np.sum(weights**2)), counted=counted)
