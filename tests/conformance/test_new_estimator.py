"""An estimator that is added as CONTRIBUTING says, from the pieces of all others, is one like any other."""

import inspect
import pickle
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from mercer import NystromRegressor, load, save
from mercer._stored import stored
from mercer._stored.checks import check_estimator
from mercer._validation import parameters
from mercer.basis import KMeans
from mercer.engine import ArrayTable, Sequence, Threads, as_rows, using
from mercer.estimators.shell import BASIS_CONSTRAINTS, OnBasis, all_or_nothing, read_rows
from mercer.estimators.transformation import KernelTransformer
from mercer.exceptions import ArchiveError
from mercer.kernels import Gaussian, Matern
from mercer.methods.frame import Frame
from mercer.model import Components, KernelExpansion, read_outputs
from tests.archives import assert_alike, loaded, saved, taken_apart, with_array
from tests.doubles import GuardedRows
from tests.processes import Processes
from tests.walks import kind, output

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def whitened_features(frame: Frame) -> KernelExpansion:
    """v(x) = L⁻¹k_m(x), with K_mm = LLᵀ: an expansion whose coefficients are L⁻ᵀ."""
    m = len(frame.lower)
    return KernelExpansion(frame.kernel, frame.basis.points, frame.unwhiten(np.eye(m)), np.zeros(m))


@stored(name="toy features")  # CONTRIBUTING's own, in the same process, has the other name
@parameters
class WhitenedFeatures(KernelTransformer, OnBasis):
    """Features v(x) on a basis of m points, whose inner products approximate the kernel."""

    n_basis: int = 100  # the other parameters are those of OnBasis, with its defaults

    _parameter_constraints: ClassVar[dict[str, Any]] = BASIS_CONSTRAINTS

    expansion_: KernelExpansion = field(init=False)
    _fitted_frame: Frame = field(init=False)

    def fit(self, X, y=None):
        """Choose the basis from the rows of X (n, d); y is ignored."""
        self._validate_params()
        with all_or_nothing(self):
            table = ArrayTable(read_rows(self, X, reset=True))
            self._fitted_frame = self._choose_frame(table, np.dtype(np.float64))
            self.expansion_ = whitened_features(self._fitted_frame)
        return self

    @property
    def _frame(self) -> Frame:
        return self._fitted_frame

    def check_stored(self) -> None:
        """Refuse an archive whose parts do not fit together."""
        m, n_features = self.expansion_.points.shape
        check_estimator(self, n_outputs=m, n_features=n_features)
        self._fitted_frame.check_expansion(self.expansion_, m)


RNG = np.random.default_rng(0)
ROWS, NEW = RNG.normal(size=(1500, 3)), RNG.normal(size=(700, 3))
CASES = {
    "default": {},
    "all rows": {"kernel": Matern(2.0, nu=1.5), "n_basis": 10_000},
    "k-means": {"kernel": Gaussian(1.5), "basis": KMeans(), "n_basis": 12},
}
each_case = pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())


@pytest.fixture(scope="module")
def model():
    return WhitenedFeatures(Gaussian(1.5), n_basis=40, random_state=0).fit(ROWS)


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1, user_api="blas"):
        yield


def test_contributing_shows_this_very_code():
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert inspect.getsource(whitened_features) in text
    assert "@stored\n" + inspect.getsource(WhitenedFeatures).split("\n", 1)[1] in text


# ----------------------------------------------------------------------------------------------- what it promises


@parametrize_with_checks([WhitenedFeatures(**options) for options in CASES.values()])
def test_scikit_learns_contract(estimator, check):
    check(estimator)


@each_case
def test_inner_products_are_the_kernels_approximation(options):
    model = WhitenedFeatures(random_state=0, **options).fit(ROWS[:200])
    features, kernel = model.transform(NEW), model.kernel_
    # V Vᵀ = K_nm K_mm⁻¹ K_mn
    expected = kernel(NEW, model.basis_) @ np.linalg.solve(kernel(model.basis_), kernel(model.basis_, NEW))
    np.testing.assert_allclose(features @ features.T, expected, atol=1e-6)
    at_basis = model.transform(model.basis_)
    np.testing.assert_allclose(at_basis @ at_basis.T, kernel(model.basis_), atol=1e-6)


def test_ridge_regression_on_the_features_is_nystrom_regression():
    y = np.sin(ROWS[:, 0])
    options = {"n_basis": 40, "random_state": 0}
    pipeline = make_pipeline(WhitenedFeatures(Gaussian(1.5), **options), Ridge(alpha=0.1, fit_intercept=False))
    regressor = NystromRegressor(Gaussian(1.5), noise=0.1, intercept=False, **options)
    np.testing.assert_allclose(pipeline.fit(ROWS, y).predict(NEW), regressor.fit(ROWS, y).predict(NEW), atol=1e-8)


def test_walks_and_outputs_know_a_transformer(model):
    assert kind(model) == "transformer"
    assert isinstance(read_outputs(model, 40), Components)
    np.testing.assert_array_equal(output(model, NEW), model.transform(NEW))


def test_a_failed_fit_leaves_the_model_as_it_was(model):
    before = dict(vars(model))
    with pytest.raises(ValueError, match="basis must be one of"):
        model.set_params(basis="no such strategy").fit(ROWS)
    model.set_params(basis="uniform")
    assert vars(model) == before


# ------------------------------------------------------------------------------------------------ rows and executors


def test_executors_give_the_same(model):
    alone = model.transform(NEW)
    for executor in (Threads(1), Threads(10)):
        with using(executor):
            fitted = WhitenedFeatures(Gaussian(1.5), n_basis=40, random_state=0).fit(ROWS)
            np.testing.assert_array_equal(fitted.transform(NEW), alone)
    for executor in (Processes(), Sequence()):
        with using(executor):
            fitted = WhitenedFeatures(Gaussian(1.5), n_basis=40, random_state=0).fit(ROWS)
            np.testing.assert_allclose(fitted.transform(NEW), alone, rtol=0, atol=1e-12 * np.max(np.abs(alone)))


def test_processes_did_the_work(model):
    executor = Processes()
    with using(executor):
        model.transform(NEW)
    assert executor.sent > 0


def test_sources_of_rows_are_read_a_tile_at_a_time(model, tmp_path):
    np.save(tmp_path / "rows.npy", NEW)
    for rows in (GuardedRows(NEW), np.load(tmp_path / "rows.npy", mmap_mode="r"), as_rows(sparse.csr_array(NEW))):
        np.testing.assert_array_equal(model.transform(rows), model.transform(NEW))


def test_sparse_matrices_are_tables(model):
    again = WhitenedFeatures(Gaussian(1.5), n_basis=40, random_state=0).fit(sparse.coo_array(ROWS))
    np.testing.assert_array_equal(again.transform(sparse.csr_array(NEW)), model.transform(NEW))


# ------------------------------------------------------------------------------------------------------------ archives


def test_it_is_saved_and_loaded(model, tmp_path):
    save(model, tmp_path / "features.mercer")
    again = load(tmp_path / "features.mercer")
    assert_alike(vars(again), vars(model))
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))
    assert loaded(saved(WhitenedFeatures(n_basis=3))).get_params() == WhitenedFeatures(n_basis=3).get_params()


def test_an_archive_whose_parts_do_not_fit_is_refused(model):
    header, members = taken_apart(saved(model))
    refused = 0
    for number, entry in enumerate(header["arrays"]):
        if entry["shape"] == [40, 40]:
            with pytest.raises(ArchiveError):
                loaded(with_array(header, members, number, np.eye(39)))
            refused += 1
    assert refused


def test_it_pickles(model):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))
