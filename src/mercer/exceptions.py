"""Errors and warnings of mercer's own."""

import numpy as np

__all__ = ["ArchiveError", "JitterWarning", "NegativeVarianceWarning", "NotPositiveDefiniteError", "StarvedWarning"]


class ArchiveError(ValueError):
    """A file is not a valid archive of a model, or a model has parts that an archive cannot hold."""


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A matrix that must be positive definite is not; the message names it and the remedy."""


class JitterWarning(UserWarning):
    """A kernel matrix was singular to rounding; a tiny multiple of the identity was added and is reported."""


class StarvedWarning(UserWarning):
    """A kernel of compact support reaches so few rows that the model is little more than a constant."""


class NegativeVarianceWarning(UserWarning):
    """An approximation gives a negative predictive variance, for which there is no standard deviation."""
