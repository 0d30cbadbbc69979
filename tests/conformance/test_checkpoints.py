"""Every estimator, interrupted anywhere and fitted again, is the one that was not interrupted, to the bit."""

import warnings

import numpy as np
import pytest

from mercer import NormaClassifier, NormaNoveltyDetector, NormaRegressor, checkpoint
from mercer.engine import checkpoint as module
from mercer.engine import rows as sources_of_rows
from tests.conformance.test_executors import NEW, ROWS, make
from tests.walks import ESTIMATORS, kind, output, over, targets_for

pytestmark = pytest.mark.slow

NORMA = [NormaClassifier, NormaNoveltyDetector, NormaRegressor]


class CrashError(Exception):
    """The process would have ended here."""


@pytest.fixture(autouse=True)
def _all_is_stored(monkeypatch):
    monkeypatch.setattr(sources_of_rows, "_FEWEST_ROWS", 256)
    monkeypatch.setattr(module, "_DISK", 1e30)


@pytest.fixture
def kept(monkeypatch):
    """How often something was kept; a crash comes after so many times."""

    class Kept:
        number, most = 0, np.inf

    keep, kept = module.Record.keep, Kept()

    def counted(self, *args, **options):
        keep(self, *args, **options)
        kept.number += 1
        if kept.number >= kept.most:
            raise CrashError

    monkeypatch.setattr(module.Record, "keep", counted)
    return kept


def fitted(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few steps, or a negative variance
        options = {} if estimator in NORMA else {"max_iter": 20}
        model = make(estimator, n_jobs=2, **{k: v for k, v in options.items() if k in estimator().get_params()})
        targets = targets_for(estimator, ROWS)
        return model.fit(ROWS) if kind(model) in ("transformer", "outlier_detector") else model.fit(ROWS, targets)


def interrupted(estimator, folder, kept, after):
    kept.number, kept.most = 0, after
    with pytest.raises(CrashError), checkpoint(folder, seconds=0):
        fitted(estimator)
    kept.number, kept.most = 0, np.inf


@over("estimator", ESTIMATORS + NORMA)
def test_what_goes_on_ends_with_the_same_bits(estimator, tmp_path, kept):
    expected = output(fitted(estimator), NEW)
    with checkpoint(tmp_path / "whole", seconds=0):
        model = fitted(estimator)
    number = kept.number
    assert not list((tmp_path / "whole").iterdir())
    np.testing.assert_array_equal(output(model, NEW), expected)
    for i, after in enumerate(sorted({number // 2, number - 1} & set(range(1, number)))):
        interrupted(estimator, tmp_path / str(i), kept, after)
        with checkpoint(tmp_path / str(i), seconds=0):
            model = fitted(estimator)
        assert kept.number < number
        np.testing.assert_array_equal(output(model, NEW), expected)
