"""Whether sums from which rows were taken are those of the others: rounding of what went may be all that is left."""

import numpy as np
from scipy.linalg import lapack

from mercer._typing import AnyArray
from mercer.engine import NormalStatistics
from mercer.model import Sample

# Rounding that is a larger share than this is refused: of the noise, in plain sums; of what is left where rows went.
REFUSED_ERROR = 1e-3
_FEWEST = float(np.finfo(np.float64).eps) / REFUSED_ERROR  # share of a sum that is no rounding of it
# Sums that should vanish, or be positive, are so up to this share of what they were: rounding, in float64.
_FORGOTTEN = 1e-8


def check_digits(rest: NormalStatistics, before: NormalStatistics, zero: AnyArray) -> None:
    """Refuse a difference of which rounding is a visible share: weights, or squares of targets that are not zero."""
    if rest.total_weight <= _FEWEST * before.total_weight:
        raise ValueError(
            f"the rows to forget have {before.total_weight / max(rest.total_weight, 1e-300):.1e} times the weight of "
            "the others, whose digits are lost in the sums: fit the remaining rows anew."
        )
    squares, total = (np.diagonal(each.moments)[:-1] for each in (rest, before))
    if np.any((squares <= _FEWEST * total) & (total > 0) & ~zero):
        raise ValueError(
            "the rows to forget have targets so large that the digits of the others' are lost in the sums: fit the "
            "remaining rows anew."
        )


def weight_squares(rest: NormalStatistics, before: NormalStatistics, sample: Sample | None) -> float:
    """Σω² of the rest; where too few digits are left, by a sample of its weights, or as if they were 1."""
    if rest.weight_squares > _FEWEST * before.weight_squares:  # they are lost long before those of Σω
        return rest.weight_squares
    total = rest.total_weight
    if sample is None or len(sample.weights) == 0:
        return total
    return total * float(np.sum(sample.weights**2) / np.sum(sample.weights))


def is_positive(rest: NormalStatistics, before: NormalStatistics, *, must_vanish: bool, slack: float) -> bool:
    """Whether a difference of sums is positive semi-definite (or zero) up to the rounding of what it was taken from.

    ``slack`` is what rounding may have left besides on the features' diagonal, where plain sums were whitened.
    """
    scale = np.sqrt(np.diagonal(before.sums))
    scale[scale == 0] = 1.0
    scaled, allowed = rest.sums / np.outer(scale, scale), np.full(len(scale), _FORGOTTEN)
    allowed[: rest.n_features] += slack / scale[: rest.n_features] ** 2
    if must_vanish:
        return bool(np.all(np.abs(scaled) <= np.sqrt(np.outer(allowed, allowed))))
    scaled[np.diag_indices_from(scaled)] += allowed
    return int(lapack.dpotrf(scaled, lower=1, overwrite_a=1)[1]) == 0
