"""``n_jobs=1`` is one thread, of BLAS too, wherever an estimator computes; BLAS gets back what it had."""

import inspect
import sys

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from tests.walks import PUBLIC, answers, over, targets_for

COMPUTES = ("/methods/", "/solvers/", "/model/", "/kernels/", "/basis/")  # of mercer: not what checks arguments
X = np.random.default_rng(0).normal(size=(60, 2))
SPREADS = {"return_std", "return_cov"}


def threads_while(work):
    """The largest numbers of BLAS threads that functions of mercer found when they were called, by function."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    found = {}

    def ask(frame, event, _):
        code = frame.f_code
        if event == "call" and "mercer" in code.co_filename and any(part in code.co_filename for part in COMPUTES):
            number = max(library.get_num_threads() for library in libraries)
            found[code.co_qualname] = max(number, found.get(code.co_qualname, 0))

    with threadpool_limits(limits=2, user_api="blas"):
        if max(library.get_num_threads() for library in libraries) != 2:
            pytest.skip("BLAS has one thread here")
        before = sys.getprofile()
        sys.setprofile(ask)
        try:
            work()
        finally:
            sys.setprofile(before)
        assert max(library.get_num_threads() for library in libraries) == 2
    return found


def asked_for_everything(model):
    model.fit(X, targets_for(type(model), X))
    answers(model, X)
    if hasattr(model, "predict_interval"):
        model.predict_interval(X)
        model.log_density(X, X[:, 0])
        for spread in SPREADS & inspect.signature(model.predict).parameters.keys():
            model.predict(X, **{spread: True})


def few(estimator, **options):
    names = estimator().get_params()
    small = {"n_basis": 10, "max_basis": 10, "max_iter": 20, "time_limit": 5.0, "random_state": 0} | options
    return estimator(**{name: value for name, value in small.items() if name in names})


@pytest.mark.filterwarnings("ignore")
@over("estimator", [cls for cls in PUBLIC if "n_jobs" in cls().get_params()])
def test_one_job_is_one_thread_of_blas(estimator):
    found = threads_while(lambda: asked_for_everything(few(estimator, n_jobs=1)))
    assert found
    assert {name: number for name, number in found.items() if number > 1} == {}


def test_several_jobs_have_more_outside_of_passes():
    """That what is asked above can be answered in another way."""
    cls = next(cls for cls in PUBLIC if cls.__name__ == "ExactRegressor")
    assert max(threads_while(lambda: asked_for_everything(few(cls, n_jobs=2))).values()) == 2
