"""The harness of benchmarks/tabular: scores by their definitions, splits, ranks, what is stored and written."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss

from benchmarks.tabular import classification, pages, regression, sets
from benchmarks.tabular.pages import MARKED, PAGES, fill, parts, write
from benchmarks.tabular.regression import held_out
from benchmarks.tabular.run import METHODS, Key, load, run, store
from benchmarks.tabular.scores import (
    Predicted,
    Probabilities,
    Took,
    class_scores,
    conformal_width,
    mean_ranks,
    scores,
)
from benchmarks.tabular.sets import NEVER, Set, Split, random_folds, read
from benchmarks.tabular.tables import rounded, table
from mercer import ExactRegressor

TOOK = Took(2.0, 3.0)


def test_scores_of_a_regression_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    truth, mean, std = rng.normal(size=40), rng.normal(size=40), rng.uniform(0.5, 2.0, 40)
    lower, upper = mean - std, mean + 2 * std
    found = scores(Predicted(mean, std, lower, upper, TOOK), truth, unit=4.0)
    squares = [(truth[i] - mean[i]) ** 2 for i in range(40)]
    assert found["error"] == pytest.approx((sum(squares) / 40) ** 0.5 / 4)
    assert found["z2"] == pytest.approx(sum(squares[i] / std[i] ** 2 for i in range(40)) / 40)
    assert found["coverage"] == sum(lower[i] <= truth[i] <= upper[i] for i in range(40)) / 40
    assert found["width"] == pytest.approx(3 * sum(std) / 40 / 4)
    # the density of y/4 at y/4 is four times that of y at y
    densities = [4 * np.exp(-squares[i] / (2 * std[i] ** 2)) / np.sqrt(2 * np.pi * std[i] ** 2) for i in range(40)]
    assert found["log_density"] == pytest.approx(sum(map(np.log, densities)) / 40)
    assert (found["processor"], found["real"]) == TOOK


def test_scores_do_not_depend_on_the_units_of_the_targets():
    rng = np.random.default_rng(1)
    truth, mean, std = rng.normal(size=20), rng.normal(size=20), rng.uniform(0.5, 2.0, 20)
    once = scores(Predicted(mean, std, mean - std, mean + std, TOOK), truth, unit=1.0)
    mean, std, truth = 100 * mean + 7, 100 * std, 100 * truth + 7
    assert scores(Predicted(mean, std, mean - std, mean + std, TOOK), truth, unit=100.0) == pytest.approx(once)


def test_scores_of_a_classification_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.dirichlet(np.ones(3), size=30), rng.integers(0, 3, 30)
    found = class_scores(Probabilities(probabilities, TOOK), truth)
    assert found["log_loss"] == pytest.approx(log_loss(truth, probabilities, labels=[0, 1, 2]))
    squares = [(probabilities[i, c] - (truth[i] == c)) ** 2 for i in range(30) for c in range(3)]
    assert found["brier"] == pytest.approx(sum(squares) / 30)
    assert found["wrong"] == np.mean(probabilities.argmax(axis=1) != truth)


def test_a_conformal_width_is_exceeded_by_one_in_twenty():
    assert conformal_width(np.array([3.0, -1.0, 2.0]), coverage=0.5) == 2.0  # the second of three
    assert conformal_width(-np.arange(1.0, 100.0)) == 95.0  # ⌈100·0.95⌉
    assert conformal_width(np.array([1.0, -4.0])) == 4.0  # too few


def test_equal_errors_share_their_ranks():
    ranks = mean_ranks({"a": [1.0, 1.0], "b": [1.0, 2.0], "c": [3.0, 2.0]})
    assert ranks == {"a": 1.25, "b": 2.0, "c": 2.75}


def test_splits_are_disjoint_and_complete():
    fold = random_folds(103)
    assert sorted(np.bincount(fold)) == [10] * 7 + [11] * 3
    X = np.arange(103.0)[:, np.newaxis]
    data = Set("some", X, X[:, 0], fold)
    assert data.folds == list(range(10))
    tested = []
    for each in data.folds:
        split = data.split(each)
        assert sorted([*split.y, *split.y_test]) == list(range(103))
        np.testing.assert_array_equal(split.X_test[:, 0], split.y_test)
        tested += split.y_test.tolist()
    assert sorted(tested) == list(range(103))


def test_rows_without_a_fold_are_never_test_rows():
    data = Set("some", np.zeros((4, 1)), np.arange(4.0), np.array([NEVER, 0, NEVER, 0]))
    assert data.folds == [0]
    np.testing.assert_array_equal(data.split(0).y, [0, 2])
    with pytest.raises(ValueError, match=r"fold 1 of some has no rows; its folds are \[0\]"):
        data.split(1)


@pytest.mark.parametrize(("n_rows", "n_folds"), [(1999, 10), (9999, 10), (10_000, 1)])
def test_large_sets_have_fewer_folds(n_rows, n_folds):
    assert len(Set("some", np.zeros((n_rows, 1)), np.zeros(n_rows), random_folds(n_rows)).folds) == n_folds


def test_inputs_and_targets_are_standardised_on_the_training_rows():
    rng = np.random.default_rng(0)
    split = Split(rng.normal(3, 2, (50, 2)), rng.normal(9, 4, 50), rng.normal(size=(5, 2)), rng.normal(size=5))
    shown = split.standardised(targets=True)
    np.testing.assert_allclose([shown.X.mean(axis=0), shown.X.std(axis=0)], [[0, 0], [1, 1]], atol=1e-12)
    np.testing.assert_allclose(shown.X_test * split.X.std(axis=0) + split.X.mean(axis=0), split.X_test)
    np.testing.assert_allclose(shown.y_test * split.y.std() + split.y.mean(), split.y_test)
    assert split.standardised(targets=False).y is split.y
    assert len(split.first(7).y) == 7
    assert split.first(50) is split


@pytest.mark.parametrize("n_rows", [100, 3000])
def test_the_spread_of_a_model_without_one_is_that_of_rows_held_out(n_rows):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows + 2000, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(0, 0.5, len(X))
    predicted = held_out(lambda _: LinearRegression())(Split(X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]))
    expected = LinearRegression().fit(X[:n_rows], y[:n_rows]).predict(X[n_rows:])
    np.testing.assert_allclose(predicted.mean, expected)
    assert scores(predicted, y[n_rows:], unit=1.0)["z2"] == pytest.approx(1.0, abs=0.3)


def waves(n_rows):
    """The first rows to train, 200 to test; the inputs have a scale of their own."""
    rng = np.random.default_rng(0)
    X = rng.normal(5, 3, size=(n_rows + 200, 2))
    y = 40 + 10 * np.sin(X[:, 0] / 3) + rng.normal(0, 1, len(X))
    return Split(X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:])


def test_the_spread_of_mercer_is_what_the_model_says(monkeypatch):
    split, model = waves(80), ExactRegressor(noise=0.1)
    monkeypatch.setattr(regression, "AutoRegressor", lambda random_state: model)
    predicted = regression.METHODS["mercer"](split)
    found = scores(predicted, split.y_test, unit=1.0)
    assert found["log_density"] == pytest.approx(np.mean(model.log_density(split.X_test, split.y_test)))
    np.testing.assert_array_equal([predicted.lower, predicted.upper], model.predict_interval(split.X_test))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name != "mercer"])
def test_peers_predict_waves(name):
    split = waves(150).standardised(targets=True)
    found = scores(regression.METHODS[name](split), split.y_test, unit=1.0)
    assert found["error"] < (1.0 if name == "linear" else 0.5)
    assert 0.5 < found["z2"] < 2
    assert found["coverage"] > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in classification.METHODS if name != "mercer"])
def test_peers_tell_classes(name):
    split = waves(150).standardised(targets=False)
    split = replace(split, y=np.digitize(split.y, [36, 44]), y_test=np.digitize(split.y_test, [36, 44]))
    found = class_scores(classification.METHODS[name](split), split.y_test)
    assert found["wrong"] < 0.45
    assert found["log_loss"] < np.log(3)


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"regression/wine\.csv\.gz is not here: put it into \$MERCER_DATA"):
        read("wine")
    with pytest.raises(FileNotFoundError, match=r"classification/a9a_train\.svmlight\.gz is not here"):
        read("a9a")
    with pytest.raises(ValueError, match="there is no set 'beer'; choose from autompg"):
        read("beer")


def test_the_fold_is_the_first_column_and_the_target_the_last(tmp_path, monkeypatch):
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    (tmp_path / "regression").mkdir()
    with gzip.open(tmp_path / "regression" / "wine.csv.gz", "wt") as file:
        file.write("fold,x0,x1,y\n1,2,3,4\n0,5,6,7\n")
    data = read("wine")
    assert data.folds == [0, 1]
    np.testing.assert_array_equal(data.split(1).X, [[5, 6]])
    np.testing.assert_array_equal(data.split(1).y_test, [4])


def test_a_run_is_resumed(tmp_path, monkeypatch):
    calls = []

    def method(split):
        calls.append(len(split.y))
        mean = np.zeros(len(split.y_test))
        return Predicted(mean, mean + 1, mean - 2, mean + 2, TOOK)

    X = np.arange(30.0)[:, np.newaxis]
    monkeypatch.setitem(sets.SETS, "toy", lambda name: Set(name, X, X[:, 0], random_folds(30)))
    monkeypatch.setitem(regression.METHODS, "linear", method)
    given = {"methods": ["linear"], "sets": ["toy"]}
    run(tmp_path, **given, folds=[2])
    run(tmp_path, **given)
    assert calls == [27] * 10
    run(tmp_path, **given, folds=[2], again=True)
    assert len(calls) == 11
    results = load(tmp_path)
    assert sorted(results) == [Key("toy", fold, "linear") for fold in range(10)]
    # targets are standardised, so the error of predicting 0 is about 1
    assert results["toy", 2, "linear"]["error"] == pytest.approx(1.0, abs=0.6)
    line = json.loads((tmp_path / "linear.jsonl").read_text().splitlines()[0])
    assert (line["set"], line["fold"], line["method"], line["n_train"]) == ("toy", 2, "linear", 27)


RECORD = {"error": 0.25, "log_density": 0.1, "z2": 1.0, "coverage": 0.95, "width": 1.0, "processor": 1.0, "n_train": 9}


def test_the_last_result_counts(tmp_path):
    for error in (0.5, 0.25):
        store(tmp_path, Key("wine", 0, "gp"), {**RECORD, "error": error})
    assert load(tmp_path)["wine", 0, "gp"]["error"] == 0.25


def test_a_table_has_means_and_standard_errors():
    results = {Key("wine", fold, "gp"): {**RECORD, "error": error} for fold, error in enumerate((0.2, 0.3, 0.4))}
    results[Key("wine", 0, "svm")] = {**RECORD, "error": 0.5}
    assert table(results, ["wine", "gas"], "error").splitlines()[2:] == [
        "wine     9      3  0.300 ± 0.06  0.500 (1)"
    ]  # fmt: skip
    assert [rounded(x) for x in (123.456, 1.0, 0.012345, 0.00001, 0.0)] == ["123", "1.00", "0.0123", "0.000010", "0"]


def test_pages_are_filled(tmp_path):
    for i, method in enumerate(METHODS):
        for each in (*sets.RANKED, "abalone", "boston"):
            error = 0.1 + 0.1 * ((i + (each == "wine") * 5) % 6)  # the first boosting wins on wine
            store(tmp_path / "results", Key(each, 0, method), {**RECORD, "error": error})
    for page in PAGES:
        (tmp_path / page).write_text("before\n<!-- begin words -->\nold\n<!-- end -->\nafter\n")
    write(tmp_path / "results", tmp_path)
    text = (tmp_path / PAGES[0]).read_text()
    assert text.startswith("before\n<!-- begin words -->\nmercer's error is less than that of the 1000 trees on 9 of")
    assert "both boostings on 9. Trees win on wine (0.100; mercer 0.600).\n<!-- end -->\nafter\n" in text
    with pytest.raises(FileNotFoundError, match="holds no results"):
        write(tmp_path / "nothing", tmp_path)


def test_the_section_of_all_benchmarks_runs_as_many_folds_as_rounds(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "run", lambda folder, folds: asked.append((folder, list(folds))))
    assert "No method has been run on all ten sets yet" in pages.report(2)
    assert asked == [(tmp_path, [0, 1])]


def test_the_pages_that_there_are_can_be_filled():
    made = parts({Key("wine", 0, "gp"): RECORD})
    for page in PAGES:
        text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
        assert len(MARKED.findall(text)) == text.count("<!-- begin") == text.count("<!-- end") > 0
        assert fill(text, dict.fromkeys(made, "nothing")).count("nothing\n<!-- end") == text.count("<!-- begin")
