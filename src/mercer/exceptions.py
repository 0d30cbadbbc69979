"""Errors and warnings of mercer's own."""

import sys
import warnings
from pathlib import Path

import numpy as np

_PACKAGE = str(Path(__file__).parent / "_")[:-1]


class ArchiveError(ValueError):
    """A file is not a valid archive of a model, or a model has parts that an archive cannot hold."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, in use, or of another fit, or a fit cannot have one; the message says what to do."""


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A matrix that must be positive definite is not; the message names it and the remedy."""


class JitterWarning(UserWarning):
    """A kernel matrix was singular to rounding; a tiny multiple of the identity was added and is reported."""


class StarvedWarning(UserWarning):
    """A kernel of compact support reaches so few rows that the model is little more than a constant."""


class GeneralisationWarning(UserWarning):
    """A model predicts rows that it has not seen worse than the mean of the targets, or a linear regression, does."""


class OutlierWarning(UserWarning):
    """Targets lie so far from all others that they would decide the fit alone."""


class NegativeVarianceWarning(UserWarning):
    """An approximation gives a negative predictive variance, for which there is no standard deviation."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn of something at the line of the user's that called mercer, however deep inside it was found."""
    level, outermost, frame = 1, 0, sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            outermost = level  # the standard library may stand between two frames of mercer
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]  # None ends the loop
    warnings.warn(message, category, stacklevel=outermost + 1)
