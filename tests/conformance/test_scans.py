"""Every public estimator is fitted to files as it is to arrays, and predicts for files."""

import inspect
import warnings

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.base import is_classifier
from sklearn.utils.validation import has_fit_parameter

import mercer
from mercer import AutoClassifier, AutoRegressor, scan
from mercer.engine import Threads, using
from mercer.engine import rows as engine_rows
from mercer.exceptions import NegativeVarianceWarning
from mercer.files import parquet as parquet_source
from mercer.kernels import Gaussian
from tests.processes import Processes
from tests.walks import PUBLIC, accepts, answers, over, still, targets_for

pytestmark = pytest.mark.slow  # each estimator is fitted several times

AUTOMATIC = (AutoClassifier, AutoRegressor)  # what they try depends on how long it takes
WALKED = [still(cls) if "kernel" in inspect.signature(cls).parameters else cls for cls in PUBLIC]
EXACTLY = [cls for cls in WALKED if not issubclass(cls, AUTOMATIC)]
N, GROUP = 1200, 300
NAMES = ["x0", "x1", "x2", "x3"]
RNG = np.random.default_rng(0)
ROWS, NEW = RNG.normal(size=(N, 4)), RNG.normal(size=(700, 4))
WEIGHTS = RNG.uniform(0.5, 2.0, N)


@pytest.fixture(autouse=True)
def _several_partitions(monkeypatch):
    monkeypatch.setattr(engine_rows, "_FEWEST_ROWS", GROUP)
    monkeypatch.setattr(parquet_source, "_FEWEST_ROWS", GROUP)
    monkeypatch.setattr(parquet_source, "_KEPT_NUMBERS", 0)  # read anew by each pass


def make(estimator):
    wanted = {
        "kernel": Gaussian(1.0), "n_basis": 20, "noise": 0.1, "random_state": 0, "max_iter": 200, "tol": 1e-10,
        "partition": "order", "time_limit": 1.0,
    }  # fmt: skip
    known = inspect.signature(estimator).parameters
    return estimator(**{n: v for n, v in wanted.items() if n in known and accepts(estimator, {n: v})})


def written(path, rows, **columns):
    table = pa.table({f"x{j}": column for j, column in enumerate(rows.T)} | columns)
    parquet.write_table(table, path, row_group_size=GROUP)
    return path


def named(model, rows):
    """What a model says of rows in an array, which has no names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return answers(model, rows)


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * np.max(np.abs(values)))
        else:
            np.testing.assert_array_equal(actual[name], values)


def fitted_both_ways(estimator, path, executor, weights):
    """A model fitted to arrays, and one fitted to a file with the same rows."""
    y = targets_for(estimator, ROWS)
    columns = {"y": y} if weights is None else {"y": y, "w": weights}
    path = written(path, ROWS, **columns)
    source = scan(path, target="y", features=NAMES, weight=None if weights is None else "w")
    given = {} if weights is None else {"sample_weight": weights}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeVarianceWarning)  # of the reduced rank approximation
        expected = make(estimator).fit(ROWS, y, **given)
        with using(executor):
            return expected, make(estimator).fit(source)


@over("estimator", EXACTLY)
@pytest.mark.parametrize("weighted", [False, True])
def test_files_give_what_arrays_give(estimator, weighted, tmp_path):
    if weighted and not has_fit_parameter(estimator, "sample_weight"):
        weighted = False  # its rows have none
    expected, model = fitted_both_ways(estimator, tmp_path / "a.parquet", Threads(2), WEIGHTS if weighted else None)
    assert list(model.feature_names_in_) == NAMES
    said = named(model, NEW)
    assert_same(said, named(expected, NEW))
    if hasattr(expected, "coefficients_"):
        assert_same({"": np.asarray(model.coefficients_)}, {"": np.asarray(expected.coefficients_)})
    # Columns are found by their names; others are not read.
    assert_same(answers(model, scan(written(tmp_path / "new.parquet", NEW, other=np.zeros(len(NEW))))), said)


@over("estimator", EXACTLY)
def test_processes_read_the_files_themselves(estimator, tmp_path):
    expected, model = fitted_both_ways(estimator, tmp_path / "a.parquet", Processes(), None)
    assert_same(named(model, NEW), named(expected, NEW))


@pytest.mark.filterwarnings("ignore:time_limit")
@over("estimator", AUTOMATIC)
def test_automatic_choices_are_made_on_files(estimator, tmp_path):
    y = targets_for(estimator, ROWS)
    source = scan(written(tmp_path / "a.parquet", ROWS, y=y), target="y")
    model = make(estimator).fit(source)
    assert np.mean(model.predict(source) == y if is_classifier(model) else (model.predict(source) - y) ** 2 < 0.1) > 0.9


def test_every_public_estimator_is_walked():
    assert len(WALKED) == sum(
        inspect.isclass(getattr(mercer, name)) and hasattr(getattr(mercer, name), "fit") for name in mercer.__all__
    )
