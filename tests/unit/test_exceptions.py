"""Warnings point at the line of the user's that called mercer, however deep inside something was found."""

from functools import cached_property

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVR

import mercer
from mercer import CommitteeRegressor, CompactRegressor, ExactRegressor, ReducedRankRegressor, compress
from mercer.exceptions import warn
from mercer.kernels import Gaussian, Matern, Wendland

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
y = np.sin(3 * X[:, 0])
TWICE, TARGETS = np.repeat(X[:30], 2, axis=0), np.repeat(y[:30], 2)


def by_cg():
    CompactRegressor(Wendland(3.0), solver="cg", preconditioner=None, max_iter=1, noise=1e-6).fit(X, y)


def exact_by_cg():
    rows = RNG.normal(size=(600, 3))  # far more than the preconditioner takes
    ExactRegressor(Matern(0.3), noise=1e-6, solver="cg", max_iter=1, intercept=False).fit(rows, np.sin(3 * rows[:, 0]))


def singular():
    ExactRegressor(Gaussian(1.0), noise=0.0, intercept=False).fit(TWICE, TARGETS)


def committee():
    CommitteeRegressor(Gaussian(1.0), n_basis=20, block_size=20, noise=0.0, random_state=0).fit(TWICE, TARGETS)


def negative_variance():
    model = ReducedRankRegressor(Matern(0.5), n_basis=5, noise=1e-3, random_state=0).fit(X, y)
    model.predict(5 * X, return_std=True)


def starved():
    CompactRegressor(Wendland(1e-3)).fit(X, y)


def not_close_enough():
    compress(ExactRegressor(Gaussian(0.3), noise=0.1, intercept=False).fit(X, y), n_vectors=2, tol=1e-9, random_state=0)


def without_estimator(path):
    mercer.save(compress(SVR().fit(X, y), n_vectors=5, random_state=0), path / "model.mercer")


@pytest.mark.parametrize(
    "call", [by_cg, exact_by_cg, singular, committee, negative_variance, starved, not_close_enough, without_estimator]
)
def test_the_file_of_the_caller(call, tmp_path):
    with pytest.warns(Warning) as warned:  # noqa: PT030  whichever it is
        call(tmp_path) if call is without_estimator else call()
    assert {each.filename for each in warned} == {__file__}


def test_the_standard_library_is_no_caller():
    """A cached property is computed in a frame of functools."""

    class Model:
        @cached_property
        def value(self):
            warn("deep", ConvergenceWarning)

    with pytest.warns(ConvergenceWarning) as warned:
        _ = Model().value
    assert warned[0].filename == __file__
