"""Classes that declare themselves beside their fields: a new one needs nothing else to be saved and loaded."""

import ast
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin

import mercer
from mercer import KernelExpansion, NystromRegressor
from mercer._stored import Sometimes, declaration_named, declaration_of, stored
from mercer._stored.checks import check_columns, need
from mercer._typing import FloatArray
from mercer.exceptions import ArchiveError
from mercer.kernels import Gaussian, Kernel
from mercer.persistence.archive import save
from tests.archives import find, loaded, put_together, saved, taken_apart


@stored(name="toy statistics", also=("root",))
@dataclass(frozen=True)
class Statistics:
    sums: FloatArray
    n_rows: int
    note: str | None = None

    def check_stored(self) -> None:
        check_columns(self.sums, len(self.sums), "toy sums")

    @cached_property
    def root(self) -> FloatArray:
        if self.n_rows == 0:
            raise ValueError("there are no rows.")
        return np.sqrt(self.sums / self.n_rows)

    @cached_property
    def forgotten(self) -> float:
        return float(np.sum(self.sums))


@stored(name="toy index")
class Index:
    order: list[int]
    LARGEST: ClassVar[int] = 7

    def __init__(self, order):
        self.order = order
        self.rebuild_stored()

    def check_stored(self) -> None:
        need(sorted(self.order) == list(range(len(self.order))), "a toy index is no permutation.")

    def rebuild_stored(self) -> None:
        self.places = {row: place for place, row in enumerate(self.order)}


@stored
class ToyKernel(Gaussian):
    def __init__(self, length_scale=1.0, amplitude=1.0, power=2):
        super().__init__(length_scale, amplitude=amplitude)
        self.power = power


@stored
class ToyTransformer(TransformerMixin, BaseEstimator):
    expansion_: KernelExpansion
    kernel_: Kernel
    shift_: Sometimes[FloatArray]
    _statistics: Statistics
    _index: Index

    def __init__(self, kernel=None, centre=False):
        self.kernel = kernel
        self.centre = centre

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        self.kernel_ = self.kernel or Gaussian()
        self.expansion_ = KernelExpansion(self.kernel_, X, np.eye(len(X)), np.zeros(len(X)))
        self._statistics, self._index = Statistics(X, len(X)), Index([2, 0, 1])
        if self.centre:
            self.shift_ = np.mean(X, axis=0)
        return self

    def transform(self, X):
        return self.expansion_.evaluate(X - getattr(self, "shift_", 0.0))

    def check_stored(self) -> None:
        need(self.n_features_in_ == self.expansion_.points.shape[1], "a toy has other features.")


X = np.random.default_rng(0).normal(size=(3, 2)) ** 2


@pytest.mark.parametrize("centre", [False, True])
def test_a_new_estimator_with_parts_of_its_own(centre):
    model = ToyTransformer(Gaussian(2.0), centre).fit(X)
    again = loaded(saved(model))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert vars(again).keys() == vars(model).keys()
    assert again._index.places == {2: 0, 0: 1, 1: 2}
    np.testing.assert_array_equal(vars(again._statistics)["root"], model._statistics.root)
    assert saved(again) == saved(model)
    assert type(loaded(saved(ToyTransformer(centre=True)))) is ToyTransformer


def test_a_new_kernel():
    kernel = loaded(saved(ToyKernel(3.0, power=5)))
    assert (type(kernel), kernel.length_scale, kernel.power) == (ToyKernel, 3.0, 5)


def test_what_is_computed_is_not_stored():
    model = ToyTransformer().fit(X)
    assert model._statistics.forgotten > 0
    attributes = find(taken_apart(saved(model))[0]["model"], "toy statistics")
    assert attributes.keys() == {"sums", "n_rows", "note", "root"}
    assert find(taken_apart(saved(model))[0]["model"], "toy index").keys() == {"order"}
    model._statistics = Statistics(X, 0)
    assert "root" not in vars(loaded(saved(model))._statistics)


@pytest.mark.parametrize(
    ("part", "attribute", "value", "message"),
    [
        ("toy statistics", "n_rows", 1.5, "n_rows is of type float, where an archive has int"),
        ("toy statistics", "note", 5, r"note is of type int, where an archive has str \| None"),
        ("toy statistics", "forgotten", 5, "has an attribute 'forgotten', which an archive does not know"),
        ("toy index", "order", [0, 0, 1], "a toy index is no permutation"),
        ("toy index", "order", [0, "1"], r"order is of type list, where an archive has list\[int\]"),
        ("toy index", "places", {"dict": []}, "has an attribute 'places'"),
        ("toy index", "LARGEST", 8, "has an attribute 'LARGEST'"),
        ("ToyTransformer", "n_features_in_", 3, "a toy has other features"),
        ("ToyTransformer", "_statistics", None, "_statistics is None, where an archive has Statistics"),
        ("ToyTransformer", "_private", None, "has an attribute '_private'"),
    ],
)
def test_a_declaration_is_held_to(part, attribute, value, message):
    header, members = taken_apart(saved(ToyTransformer().fit(X)))
    find(header["model"], part)[attribute] = value
    with pytest.raises(ArchiveError, match=message):
        loaded(put_together(header, members))


def test_parts_are_no_models():
    with pytest.raises(ArchiveError, match="Statistics cannot be saved"):
        saved(Statistics(X, 3))


def test_subclasses_are_not_what_was_declared():
    class Sub(ToyKernel):
        pass

    assert declaration_of(Sub) is None
    with pytest.raises(ArchiveError, match="Sub cannot be saved"):
        saved(Sub())


def test_two_classes_of_one_name():
    with pytest.raises(TypeError, match=r"two classes would be stored as 'Gaussian', mercer.* and .*: give a name"):

        @stored(name="Gaussian")
        class Other:
            pass

    assert declaration_named("Gaussian").cls is Gaussian


# ------------------------------------------------------------------------------------------------ who is known


def run(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("door", [pytest.param("mercer", marks=pytest.mark.slow), "mercer.persistence"])
def test_every_door_knows_all_public_classes(tmp_path, door):
    """Also those of modules that nobody has imported yet."""
    for name in (name for name in mercer.__all__ if hasattr(getattr(mercer, name), "get_params")):
        save(getattr(mercer, name)(), tmp_path / name)
    code = f"import os; from {door} import load; print(*[type(load(name)).__name__ for name in sorted(os.listdir())])"
    assert run(code, tmp_path) == sorted(path.name for path in tmp_path.iterdir())


def test_a_file_cannot_choose_what_is_imported(tmp_path):
    header, members = taken_apart(saved(Gaussian(2.0)))
    header["model"]["object"][0] = "antigravity"
    (tmp_path / "antigravity.py").write_text("print('imported')")
    (tmp_path / "forged").write_bytes(put_together(header, members))
    code = (
        "from mercer.persistence import load\n"
        "try: load('forged')\n"
        "except ValueError as error: print('no class' in str(error))\n"
        "import sys; print('antigravity' in sys.modules)"
    )
    assert run(code, tmp_path) == ["True", "False"]


def strings(path):
    """Constants of a module, its docstrings apart."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose)
    return {node.value for node in constants if isinstance(node.value, str)}


def test_persistence_names_no_class_of_a_higher_layer():
    assert NystromRegressor.__module__ in sys.modules
    public = {name for name in mercer.__all__ if hasattr(getattr(mercer, name), "get_params")}
    for path in Path(mercer.persistence.__file__).parent.glob("*.py"):
        found = {text for text in strings(path) if text in public or "mercer.estimators" in text}
        assert not found, path
