"""Estimators with a noise of 0.1 and without an intercept, unless told otherwise: for tests of something else."""

from functools import partial

import mercer

_GIVEN = {"noise": 0.1, "intercept": False}

CommitteeRegressor = partial(mercer.CommitteeRegressor, **_GIVEN)
ExactRegressor = partial(mercer.ExactRegressor, **_GIVEN)
NystromRegressor = partial(mercer.NystromRegressor, **_GIVEN)
PseudoInputRegressor = partial(mercer.PseudoInputRegressor, **_GIVEN)
ReducedRankRegressor = partial(mercer.ReducedRankRegressor, **_GIVEN)
