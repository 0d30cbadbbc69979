"""What an archive does not hold is refused before anything is written."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from mercer import CommitteeRegressor, ExactRegressor, NystromRegressor
from mercer._stored import declaration_named
from mercer.basis import Basis, BasisStrategy, Distribution
from mercer.engine import ArrayRows
from mercer.exceptions import ArchiveError
from mercer.kernels import Function, Gaussian
from mercer.persistence.archive import save
from tests.archives import loaded, names_in, saved


class Own(BasisStrategy):
    def choose(self, task):
        return Basis(task.rows.take(np.arange(3)))


class Subclass(NystromRegressor):
    pass


class Impostor:
    """Says that it is a kernel of ours."""


Impostor.__module__, Impostor.__qualname__ = "mercer.kernels.gaussian", "Gaussian"


def looping():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Function(np.dot), "Function cannot be saved.*never runs code"),
        (Gaussian() + Function(np.dot), r"Sum\.right is of type mercer\.kernels\.function\.Function: loading.*never"),
        (
            NystromRegressor(basis=Own(), noise=0.1, intercept=False),
            r"NystromRegressor\.basis is of type .*Own: loading a model never runs code",
        ),
        (
            NystromRegressor(basis=Distribution(np.random.rand), noise=0.1, intercept=False),
            r"NystromRegressor\.basis\.law is of type .*function",
        ),
        (
            NystromRegressor(kernel=LinearRegression(), noise=0.1, intercept=False),
            r"NystromRegressor\.kernel is of type sklearn.*not mercer's",
        ),
        (Subclass(), "Subclass cannot be saved"),
        (Impostor(), "Gaussian cannot be saved"),
        (Gaussian(Impostor()), r"Gaussian\.length_scale is of type"),
        (SVR(), "SVR cannot be saved"),
        (make_pipeline(StandardScaler(), NystromRegressor(noise=0.1, intercept=False)), "Pipeline cannot be saved"),
        ([Gaussian()], "list cannot be saved"),
        (Gaussian, "ABCMeta cannot be saved"),
        (None, "NoneType cannot be saved"),
        (ArrayRows(np.zeros((2, 2))), "ArrayRows cannot be saved"),
        (Gaussian(1j), "complex: an archive holds numbers"),
        (Gaussian({1, 2}), "set: an archive holds numbers"),
        (Gaussian(np.zeros(2, dtype=complex)), "dtype complex128"),
        (Gaussian(np.zeros(2, dtype=[("a", "f8")])), "an archive cannot hold"),
        (Gaussian(np.array([print, None], dtype=object)), r"length_scale\[0\] is of type builtin"),
        (Gaussian(np.ma.masked_array([1.0, 2.0], [True, False])), "MaskedArray: an archive holds"),
        (Gaussian(looping()), "nested more than 100 deep, or contains itself"),
        (Gaussian(2**20000), "integer of 20001 bits"),
        (Gaussian(float), "type: loading a model never runs code"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_archive_does_not_hold(model, message, tmp_path):
    with pytest.raises(ArchiveError, match=message):
        save(model, tmp_path / "model")
    assert names_in(tmp_path) == []


def test_attributes_of_users_own_are_refused(rows):
    model = ExactRegressor(noise=0.1, intercept=False).fit(*rows)
    model.note = "mine"
    with pytest.raises(ArchiveError, match="ExactRegressor has an attribute 'note', which an archive does not know"):
        saved(model)
    del model.note
    model.note_ = ("what scikit-learn calls a fitted attribute", 1.0)
    assert loaded(saved(model)).note_ == model.note_
    model.predict_ = model._private_ = None
    with pytest.raises(ArchiveError, match="ExactRegressor has an attribute '_private_'"):
        saved(model)


def test_a_model_whose_parts_do_not_fit_is_refused_as_it_would_be_when_loaded(rows):
    model = ExactRegressor(noise=0.1, intercept=False).fit(*rows)
    model._index = model._index[:-1]
    with pytest.raises(ArchiveError, match="row numbers has shape"):
        saved(model)
    model._index = "none"
    with pytest.raises(ArchiveError, match=r"ExactRegressor\._index is of type str"):
        saved(model)
    del model._index
    with pytest.raises(ArchiveError, match="ExactRegressor lacks the attribute '_index'"):
        saved(model)


class Source(ArrayRows):
    """A source of rows of a user's own."""


def test_rows_that_a_committee_keeps_must_be_arrays(rows):
    X, y = rows
    with pytest.raises(ArchiveError, match=r"CommitteeRegressor\._batches\[0\]\.table\.rows is of type .*Source"):
        saved(CommitteeRegressor().fit(Source(X), y))
    model = CommitteeRegressor(keep_rows=False, random_state=0).fit(Source(X), y)
    np.testing.assert_array_equal(loaded(saved(model)).predict(X), model.predict(X))


# ------------------------------------------------------------------------------------------------ declarations


def test_only_what_was_declared_has_a_name():
    assert declaration_named("NystromRegressor").cls is NystromRegressor
    for name in ("os.system", "Function", "mercer.kernels.Gaussian", "", "Subclass"):
        assert declaration_named(name) is None
