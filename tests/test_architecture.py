"""docs/architecture.md lists the files whose code one fit and one prediction run."""

import re
import sys
import threading
from pathlib import Path

import numpy as np

import mercer
from mercer import NystromRegressor

SOURCE = Path(mercer.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK = PAGE[PAGE.index("## One fit, file by file") : PAGE.index("## A tile of kernel values")]
# Called when a class is made or a name is looked up, which the page does not tell of.
NO_STEPS = {"__init__.py"}


def files_of(call):
    """Files of the package, of which a function is called."""
    found = set()

    def note(frame, event, _argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE) and frame.f_code.co_name != "<module>":
            found.add(path.relative_to(SOURCE).as_posix())

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found - NO_STEPS


def test_the_files_of_one_fit():
    X = np.random.default_rng(0).normal(size=(5000, 3))
    y = np.sin(X[:, 0])

    def fit_and_predict():
        NystromRegressor(random_state=0, n_jobs=1, noise=0.1, intercept=False).fit(X, y).predict(X, return_std=True)

    fit_and_predict()  # compiles, which calls other files
    found = files_of(fit_and_predict)
    table = "\n".join(line for line in WALK.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`(\w+(?:/\w+)*\.py)`", table)) == found
    assert f"code of {len(found)} files" in WALK
