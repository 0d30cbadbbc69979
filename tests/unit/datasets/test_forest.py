from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import get_data_home

from mercer.datasets import forest, load_forest
from mercer.datasets.sources import find_file


def test_files_are_found_in_the_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert find_file("some.npz") is None
    (tmp_path / "some.npz").touch()
    assert find_file("some.npz") == tmp_path / "some.npz"


def test_forest_is_read_from_an_archive(tmp_path, monkeypatch):
    X, y = np.arange(8, dtype=np.int16).reshape(4, 2), np.array([1, 2, 2, 7], dtype=np.uint8)
    np.savez(tmp_path / "covtype.npz", X=X, y=y)
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    got_X, got_y = load_forest()
    np.testing.assert_array_equal(got_X, X)
    np.testing.assert_array_equal(got_y, y)


def test_forest_falls_back_to_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forest, "fetch_covtype", lambda return_X_y: (np.ones((3, 54)), np.array([1, 2, 3])))
    X, y = load_forest()
    assert X.dtype == np.int16
    assert y.tolist() == [1, 2, 3]


def test_forest_is_the_public_set():
    if find_file("covtype.npz") is None and not list((Path(get_data_home())).glob("covertype*")):
        pytest.skip("the forest data set is not on this machine")
    X, y = load_forest()
    assert X.shape == (581_012, 54)
    assert np.bincount(y)[1:].tolist() == [211_840, 283_301, 35_754, 2747, 9493, 17_367, 20_510]
