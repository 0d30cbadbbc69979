"""Compact models that a linear regression beats say so."""

import warnings

import numpy as np
import pytest

from mercer import CompactRegressor
from mercer.exceptions import GeneralisationWarning


def test_features_of_scales_that_do_not_suit_are_warned_of():
    # As many neighbours as rows should have, but all of them in the direction that does not matter.
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, size=(400, 2))
    targets = rows[:, 0] + 0.3 * np.sin(3 * rows[:, 0]) + 0.05 * rng.normal(size=400)
    with pytest.warns(GeneralisationWarning, match=r"by a linear regression with 0\..*Scale these"):
        CompactRegressor().fit(rows * [1.0, 300.0], targets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CompactRegressor().fit(rows, targets)
