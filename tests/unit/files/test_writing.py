import numpy as np
import pandas as pd
import pytest

import mercer
from mercer import NystromClassifier, NystromPCA, NystromRegressor, scan, write_predictions
from mercer.files import writing

N = 5000
X = np.random.default_rng(0).normal(size=(N, 2))
FRAME = pd.DataFrame(X, columns=["a", "b"])


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch):
    monkeypatch.setattr(writing, "_BLOCK_NUMBERS", 1 << 13)


@pytest.fixture
def regressor():
    return NystromRegressor(n_basis=20, random_state=0).fit(FRAME, np.sin(X[:, 0]))


@pytest.fixture
def rows(tmp_path):
    FRAME.assign(other="text").to_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def read(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_tables_name_their_columns(suffix, regressor, rows, tmp_path):
    path = tmp_path / f"out{suffix}"
    write_predictions(regressor, rows, path, return_std=True)
    mean, deviation = regressor.predict(FRAME, return_std=True)
    pd.testing.assert_frame_equal(read(path), pd.DataFrame({"prediction": mean, "std": deviation}))
    write_predictions(regressor, scan(rows, features=["b", "a"]), path, method="predict_interval", coverage=0.8)
    lower, upper = regressor.predict_interval(FRAME, 0.8)
    pd.testing.assert_frame_equal(read(path), pd.DataFrame({"lower": lower, "upper": upper}))


def test_arrays(regressor, rows, tmp_path):
    write_predictions(regressor, rows, tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), regressor.predict(FRAME), rtol=1e-12)


def test_classes_and_components(rows, tmp_path):
    labels = np.array(["lo", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model, path = NystromClassifier(n_basis=20, random_state=0).fit(FRAME, labels), tmp_path / "out.parquet"
    write_predictions(model, rows, path)
    np.testing.assert_array_equal(read(path)["prediction"], model.predict(FRAME))
    for method in ("predict_proba", "decision_function"):
        write_predictions(model, rows, path, method=method)
        expected = pd.DataFrame(getattr(model, method)(FRAME), columns=model.classes_)
        pd.testing.assert_frame_equal(read(path), expected)
    pca = NystromPCA(n_components=2, n_basis=20, random_state=0).fit(FRAME)
    write_predictions(pca, rows, path, method="transform")
    expected = pd.DataFrame(pca.transform(FRAME), columns=pca.get_feature_names_out())
    pd.testing.assert_frame_equal(read(path), expected)
    write_predictions(model, rows, tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), model.predict(FRAME))


def test_several_targets(rows, tmp_path):
    model = NystromRegressor(n_basis=20, random_state=0).fit(FRAME, np.sin(X))
    write_predictions(model, rows, tmp_path / "out.csv")
    assert read(tmp_path / "out.csv").columns.tolist() == ["prediction_0", "prediction_1"]


def test_what_fails_leaves_the_file_as_it_was(regressor, tmp_path):
    values = X.copy()
    values[4000, 0] = np.nan
    np.save(tmp_path / "rows.npy", values)
    path = tmp_path / "out.csv"
    path.write_text("before")
    model = NystromRegressor(n_basis=20, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"row 4000: .*rows.npy"):
        write_predictions(model, tmp_path / "rows.npy", path)
    assert path.read_text() == "before"
    assert {each.name for each in tmp_path.iterdir()} == {"out.csv", "rows.npy"}
    with pytest.raises(ValueError, match=r"path must end in one of .parquet, .csv, .npy; got 'out.txt'"):
        mercer.write_predictions(model, tmp_path / "rows.npy", tmp_path / "out.txt")
    with pytest.raises(ValueError, match=r"method must be one of 'predict'"):
        mercer.write_predictions(model, tmp_path / "rows.npy", path, method="score")
