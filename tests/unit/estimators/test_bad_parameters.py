"""Bad parameters are refused when they are used; what is not fitted says so."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from mercer import ReducedRankRegressor
from mercer.kernels import Gaussian, Matern, Wendland
from tests.walks import (
    COMPACT,
    ESTIMATORS,
    ONLINE,
    N,
    assert_close,
    each_estimator,
    has_gcv,
    output,
    pairs,
    targets_for,
    with_methods,
)

# ------------------------------------------------------------------------------------------ bad parameters

BAD_PARAMETERS = [
    ("noise", -1.0, "noise"),
    ("noise", np.nan, "noise"),
    ("noise", np.inf, "noise"),
    ("noise", "much", "noise"),
    ("noise", None, "noise"),
    ("intercept", "yes", "intercept"),
    ("n_jobs", 0, "n_jobs"),
    ("n_jobs", 1.5, "n_jobs"),
    ("solver", "lu", "solver"),
    ("tol", 0.0, "tol"),
    ("max_iter", 0, "max_iter"),
    ("n_basis", 0, "n_basis"),
    ("n_basis", 2.5, "n_basis"),
    ("variance", "fitc", "variance"),
    ("random_state", "seed", "random_state"),
    ("kernel", "gauss", "kernel must be one of 'gaussian'"),
    ("kernel", Gaussian, "kernel must be one of"),
    ("kernel", None, "kernel must be one of"),
    ("kernel", Gaussian(-1.0), "length_scale"),
    ("kernel", Gaussian([1.0, 2.0]), "length_scale has 2 values, but the rows have 3 features"),
    ("kernel", Gaussian("mean"), "length_scale"),
    ("kernel", Gaussian(amplitude=0.0), "amplitude"),
    ("kernel", Matern(nu=1.0), "nu must be 0.5, 1.5 or 2.5"),
    ("kernel", lambda a, b: np.ones((1, 1)), "the kernel function must return an array of shape"),
    ("basis", np.ones((4, 2)), r"basis.*shape \(m, 3\)"),
    ("basis", np.full((4, 3), np.nan), "basis.*NaN"),
    ("basis", "nonsense", "basis must be one of 'uniform'"),
    ("basis", None, "basis must be one of 'uniform'"),
    ("block_size", 0, "block_size"),
    ("block_size", 2.5, "block_size"),
    ("block_size", None, "block_size"),
    ("partition", "nonsense", "partition must be one of 'random', 'kmeans', 'order'"),
    ("partition", None, "partition, given as labels, must have one for each of the 40 rows"),
    ("partition", np.zeros(N - 1), "partition, given as labels, must have one for each of the 40 rows"),
    ("partition", np.full(N, np.nan), "partition, given as labels, contains NaN"),
    ("keep_rows", "yes", "keep_rows"),
    ("objective", "nonsense", "objective"),
    ("fit_points", "yes", "fit_points"),
    ("fit_kernel", 1.0, "fit_kernel"),
    ("fit_noise", None, "fit_noise"),
]


def parameter_cases(estimator):
    cases = [case for case in BAD_PARAMETERS if case[0] in estimator().get_params()]
    if issubclass(estimator, COMPACT):
        refused = "kernel must be 'wendland' or a kernel of compact support"
        cases = [(name, value, refused if name == "kernel" else message) for name, value, message in cases]
        cases.append(("kernel", Wendland([1.0, 2.0]), "length_scale has 2 values, but the rows have 3 features"))
        cases.append(("kernel", Wendland(smoothness=5), "smoothness must be 0, 1 or 2"))
    if "noise" in estimator().get_params() and not has_gcv(estimator):
        cases.append(("noise", "gcv", "noise"))
    if estimator is ReducedRankRegressor:
        cases.append(("noise", 0.0, "noise=0 is not possible here: the weights are residuals divided by the noise"))
        cases.append(("noise", 0, "Use a small noise, or NystromRegressor or CommitteeRegressor"))
    return [(estimator, *case) for case in cases]


PARAMETER_CASES = [case for cls in ESTIMATORS for case in parameter_cases(cls)]


@pytest.mark.parametrize(
    ("estimator", "name", "value", "message"),
    PARAMETER_CASES,
    ids=[f"{cls.__name__}-{name}-{index}" for index, (cls, name, *_) in enumerate(PARAMETER_CASES)],
)
def test_bad_parameters(estimator, rows, name, value, message):
    y = targets_for(estimator, rows)
    model = estimator()
    model.set_params(**{name: value})
    with pytest.raises(ValueError, match=message):
        model.fit(rows, y)
    assert not hasattr(model, "expansion_")
    fitted = estimator().fit(rows, y)
    before = output(fitted, rows)
    with pytest.raises(ValueError, match=message):
        fitted.set_params(**{name: value}).fit(rows, y)
    assert_close(output(fitted.set_params(**{name: estimator().get_params()[name]}), rows), before, 0.0)


CHANGES = [
    {"noise": 10.0},
    {"intercept": True},
    {"variance": "sor"},
    {"noise": -1.0},
    {"noise": "gcv"},
    {"block_size": 3},
    {"partition": "order"},
    {"keep_rows": False},
]


@pairs(
    ("estimator", "change"),
    [(cls, change) for cls in ONLINE for change in CHANGES if set(change) <= set(cls().get_params())],
)
def test_what_was_fitted_does_not_depend_on_when_it_was_first_used(estimator, rows, change):
    # Solving is put off until it is needed: a change of parameters in between must count always or never.
    y = targets_for(estimator, rows)
    used, unused = (estimator().partial_fit(rows, y) for _ in range(2))
    output(used, rows)
    np.testing.assert_array_equal(output(unused.set_params(**change), rows), output(used.set_params(**change), rows))


# -------------------------------------------------------------------------------------------- not fitted


@with_methods(ESTIMATORS, ["predict", "decision_function", "forget", "merge", "noise_path", "loo_residuals"])
def test_not_fitted(estimator, rows, method):
    y = targets_for(estimator, rows)
    arguments = {"forget": (rows, y), "merge": (estimator().fit(rows, y),), "noise_path": ([1.0],), "loo_residuals": ()}
    with pytest.raises(NotFittedError, match=estimator.__name__):
        getattr(estimator(), method)(*arguments.get(method, (rows,)))


@each_estimator
def test_fitted_attributes_are_missing_before_fit(estimator, rows):
    unfitted, fitted = estimator(), estimator().fit(rows, targets_for(estimator, rows))
    attributes = [name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")]
    assert {"kernel_", "expansion_"} <= set(attributes)
    assert [name for name in attributes if hasattr(unfitted, name)] == []
