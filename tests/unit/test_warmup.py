"""After ``mercer.warmup`` no estimator has to wait for code to be compiled."""

import os
import subprocess
import sys

import pytest

FIRST_USES = """
import inspect, warnings
import numpy as np
from numba.core import event
from sklearn.base import BaseEstimator, is_classifier
import mercer

warnings.simplefilter("ignore")
rng = np.random.default_rng(1)
X = rng.normal(size=(80, 3))
y = np.sin(X[:, 0])
with event.install_recorder("numba:compile") as recorder:
    for rows in (X, X.astype(np.float32), np.broadcast_to(X, X.shape), np.asfortranarray(X)):
        for name in mercer.__all__:
            member = getattr(mercer, name)
            if inspect.isclass(member) and issubclass(member, BaseEstimator):
                model = member()
                model.fit(rows, y > 0 if is_classifier(model) else y)
                if not hasattr(model, "predict"):
                    model.transform(rows)
                    continue
                model.predict(rows)
                if "return_std" in inspect.signature(model.predict).parameters:
                    model.predict(rows, return_std=True)
                if hasattr(model, "predict_proba"):
                    model.predict_proba(rows)
        model = mercer.NystromRegressor(n_basis=20).fit(rows, y)
        mercer.compress(model, n_vectors=5).predict(rows)
    mercer.tune_cutoff(mercer.CompactRegressor(), X, y)
print([str(found.data["dispatcher"]) for _, found in recorder.buffer])
"""


def run(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_after_a_warmup_nothing_is_left_to_compile(tmp_path):
    place = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    status, out, error = run("-m", "mercer", "warmup", **place)
    assert status == 0, error
    assert "mercer.kernels.gaussian." in out
    assert "functions" in out.splitlines()[-1]
    assert len(error.splitlines()) == 1  # who asks for it is not told to ask for it
    status, out, error = run("-c", FIRST_USES, **place)
    assert (status, out.strip(), error) == (0, "[]", "")
    status, out, error = run("-m", "mercer", "warmup", **place)
    assert (status, out.strip()) == (0, "mercer: nothing to compile, all code was found on disk")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("warmup", "now"), ("serve",)])
def test_the_command_tells_how_it_is_used(arguments):
    status, out, error = run("-m", "mercer", *arguments)
    assert (status, out) == (2, "")
    assert error.startswith("usage: python -m mercer warmup")


def test_the_report_is_a_table():
    from mercer._jit import Compiled
    from mercer._warmup import WarmupReport

    report = WarmupReport((Compiled("a.b", 1.5), Compiled("c.d", 0.25)))
    assert report.seconds == 1.75
    assert str(report).splitlines() == ["   1.50 s  a.b", "   0.25 s  c.d", "   1.75 s  in all, for 2 functions"]
