import gzip

import numpy as np
import pytest

from mercer.datasets import load_abalone, load_boston, load_laser, make_clusters
from mercer.datasets.sources import find_file


def test_abalone_is_read_from_a_file(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "abalone.csv.gz", "wt") as file:
        file.write("Sex,a,b,Rings\nM,1,2,9\nI,3,4,7\n")
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    X, y = load_abalone()
    np.testing.assert_array_equal(X, [[1, 0, 0, 1, 2], [0, 0, 1, 3, 4]])
    np.testing.assert_array_equal(y, [9, 7])


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


def test_the_laser():
    if find_file("santafe_a_train.csv.gz") is None:
        pytest.skip("santafe_a_train.csv.gz is not on this machine")
    series, continuation = load_laser()
    assert series.shape == (1000,)
    assert continuation.shape == (9093,)
    np.testing.assert_array_equal(series[:5], [86, 141, 95, 41, 22])
    assert np.min(continuation) >= 0
    assert np.max(continuation) <= 255


def test_the_laser_that_is_not_here(tmp_path, monkeypatch):
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"put santafe_a_train\.csv\.gz"):
        load_laser()


def test_clusters_are_of_very_different_size_and_repeat_rows():
    X, y = make_clusters(4000, n_features=3, random_state=0)
    assert X.shape == (4000, 3)
    assert np.all(np.isfinite(y))
    assert len(np.unique(X, axis=0)) < 3000
