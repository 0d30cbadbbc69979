"""Public sets, from files and, where they are not here, from elsewhere."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import get_data_home

from mercer.datasets import load_abalone, load_boston, load_forest, load_laser, public
from mercer.datasets.public import find_file


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder in which files are looked for."""
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_found_in_the_folder_of_the_environment(folder):
    assert find_file("some.npz") is None
    (folder / "some.npz").touch()
    assert find_file("some.npz") == folder / "some.npz"


def test_abalone_is_read_from_a_file(folder):
    with gzip.open(folder / "abalone.csv.gz", "wt") as file:
        file.write("Sex,a,b,Rings\nM,1,2,9\nI,3,4,7\n")
    X, y = load_abalone()
    np.testing.assert_array_equal(X, [[1, 0, 0, 1, 2], [0, 0, 1, 3, 4]])
    np.testing.assert_array_equal(y, [9, 7])


@pytest.mark.usefixtures("folder")
def test_boston_falls_back_to_openml(monkeypatch):
    def fetch(name, *, version, **_):
        assert (name, version) == ("boston", 1)
        return np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0])

    monkeypatch.setattr(public, "fetch_openml", fetch)
    X, y = load_boston()
    np.testing.assert_array_equal(X, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(y, [5, 6])


def test_forest_is_read_from_an_archive(folder):
    X, y = np.arange(8, dtype=np.int16).reshape(4, 2), np.array([1, 2, 2, 7], dtype=np.uint8)
    np.savez(folder / "covtype.npz", X=X, y=y)
    got_X, got_y = load_forest()
    np.testing.assert_array_equal(got_X, X)
    np.testing.assert_array_equal(got_y, y)


@pytest.mark.usefixtures("folder")
def test_forest_falls_back_to_scikit_learn(monkeypatch):
    monkeypatch.setattr(public, "fetch_covtype", lambda return_X_y: (np.ones((3, 54)), np.array([1, 2, 3])))
    X, y = load_forest()
    assert X.dtype == np.int16
    assert y.tolist() == [1, 2, 3]


@pytest.mark.usefixtures("folder")
def test_the_laser_that_is_not_here():
    with pytest.raises(FileNotFoundError, match=r"put santafe_a_train\.csv\.gz"):
        load_laser()


# ------------------------------------------------------------------------------------- the sets, where they are here


@pytest.mark.parametrize(
    ("load", "name", "shape", "mean"),
    [(load_abalone, "abalone.csv.gz", (4177, 10), 9.9337), (load_boston, "boston_housing.csv.gz", (506, 13), 22.5328)],
)
def test_the_public_sets(load, name, shape, mean):
    if find_file(name) is None:
        pytest.skip(f"{name} is not on this machine")
    X, y = load()
    assert X.shape == shape
    assert y.shape == shape[:1]
    assert np.mean(y) == pytest.approx(mean, abs=1e-4)


def test_forest_is_the_public_set():
    if find_file("covtype.npz") is None and not list((Path(get_data_home())).glob("covertype*")):
        pytest.skip("the forest data set is not on this machine")
    X, y = load_forest()
    assert X.shape == (581_012, 54)
    assert np.bincount(y)[1:].tolist() == [211_840, 283_301, 35_754, 2747, 9493, 17_367, 20_510]


def test_the_laser():
    if find_file("santafe_a_train.csv.gz") is None:
        pytest.skip("santafe_a_train.csv.gz is not on this machine")
    series, continuation = load_laser()
    assert series.shape == (1000,)
    assert continuation.shape == (9093,)
    np.testing.assert_array_equal(series[:5], [86, 141, 95, 41, 22])
    assert np.min(continuation) >= 0
    assert np.max(continuation) <= 255
