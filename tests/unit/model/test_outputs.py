"""From labels to columns, and from columns to predictions."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import SVC

from mercer.engine import ArrayTable, as_rows
from mercer.model import Components, Novelty, OneVsOne, OneVsRest, Regression, read_outputs

# ------------------------------------------------------------------------------------------------------- regression


@pytest.mark.parametrize(("flat", "shape"), [(True, (4,)), (False, (4, 1)), (False, (4, 3))])
def test_a_regression_has_the_shape_of_its_targets(flat, shape):
    outputs, targets = Regression(flat), np.arange(float(np.prod(shape))).reshape(shape)
    columns = outputs.columns(targets)
    assert columns.shape == (4, 1 if flat else shape[1])
    assert outputs.n_columns == (1 if flat else None)
    for values in (outputs.predict(columns), outputs.decision(columns)):
        np.testing.assert_array_equal(values, targets)


def test_components_are_what_they_are():
    values = np.ones((3, 2))
    assert Components().predict(values) is values
    assert Components().n_columns is None


def test_novelty_is_one_or_minus_one():
    values = np.array([[-0.1], [0.0], [2.0]])
    outputs = Novelty(offset=0.5)
    assert outputs.predict(values).tolist() == [-1, 1, 1]
    np.testing.assert_array_equal(outputs.decision(values), [-0.1, 0.0, 2.0])
    np.testing.assert_array_equal(outputs.scores(values), [0.4, 0.5, 2.5])


# ------------------------------------------------------------------------------------------- one against the rest


def test_two_classes_have_one_column_positive_for_the_second():
    outputs = OneVsRest.from_labels(["b", "a", "b"])
    assert outputs.classes.tolist() == ["a", "b"]
    assert (outputs.n_columns, outputs.rule) == (1, "threshold")
    np.testing.assert_array_equal(outputs.columns(outputs.codes(["b", "a", "b"])), [[1.0], [-1.0], [1.0]])


def test_three_classes_have_a_column_each():
    outputs = OneVsRest.from_labels([7, 3, 5])
    codes = outputs.codes([7, 3, 5])
    assert codes.tolist() == [2, 0, 1]
    assert (outputs.n_columns, outputs.rule) == (3, "largest")
    np.testing.assert_array_equal(outputs.columns(codes), [[-1, -1, 1], [1, -1, -1], [-1, 1, -1]])


def test_classes_need_not_all_occur():
    outputs = OneVsRest.from_labels([2, 0, 1, 1])
    np.testing.assert_array_equal(outputs.columns(outputs.codes([1, 1])), [[-1, 1, -1]] * 2)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "make",
    [
        np.arange,
        lambda k: np.arange(k) > 0 if k == 2 else np.arange(k, dtype=np.uint8),
        lambda k: np.arange(k) - 1.0,
        lambda k: np.array(["ant", "b", "cc", "Grün"])[:k],
        lambda k: np.array(["x", "yy", "z", ""], dtype=object)[:k],
    ],
    ids=["int", "bool", "float", "str", "object"],
)
def test_labels_of_every_type_come_back(make, n_classes):
    labels = np.tile(make(n_classes), 3)
    outputs = OneVsRest.from_labels(labels)
    again = outputs.predict(outputs.columns(outputs.codes(labels)))
    np.testing.assert_array_equal(again, labels)
    assert again.dtype == labels.dtype


@pytest.mark.parametrize(
    ("classes", "labels", "message"),
    [
        ([0, 1], [0, 5, 2], r"not among the classes \[0, 1\]: \[2, 5\]"),
        (["a", "b"], ["a", "c"], r"not among the classes \['a', 'b'\]: \['c'\]"),
        ([0, 1], ["0", "1"], r"not among the classes \[0, 1\]: \['0', '1'\]"),
        ([1.0, 3.0], [1.0, 2.0], r"\[2.0\]"),
    ],
)
def test_labels_outside_the_classes_are_named(classes, labels, message):
    with pytest.raises(ValueError, match=message):
        OneVsRest(np.array(classes)).codes(labels)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match=r"only one class is present: found \[1\]"):
        OneVsRest.from_labels([1, 1])


def test_a_stream_that_has_shown_one_class_has_one_column_of_minus_one():
    outputs = OneVsRest(np.array(["a"]))
    np.testing.assert_array_equal(outputs.columns(outputs.codes(["a", "a"])), [[-1.0], [-1.0]])


def test_decisions_of_two_classes_go_by_sign():
    outputs, values = OneVsRest(np.array(["a", "b"])), np.array([[-1.0], [0.0], [0.1]])
    assert outputs.predict(values).tolist() == ["a", "a", "b"]
    np.testing.assert_array_equal(outputs.decision(values), [-1.0, 0.0, 0.1])


def test_decisions_of_three_classes_go_by_the_greatest():
    outputs, values = OneVsRest(np.array([10, 20, 30])), np.array([[-1.0, -0.5, -2.0], [3.0, 1.0, 2.0]])
    assert outputs.predict(values).tolist() == [20, 10]
    assert outputs.decision(values) is values


def test_a_table_of_codes_has_columns_in_its_tiles():
    labels = np.array(["b", "a", "c"] * 5)
    outputs = OneVsRest.from_labels(labels)
    codes = outputs.codes(labels)
    table = ArrayTable(as_rows(np.zeros((15, 1))), codes, coding=outputs)
    assert table.n_outputs == 3
    tiles = [tile.targets for tile in table.tiles(4)]
    assert [len(tile) for tile in tiles] == [4, 4, 4, 3]
    np.testing.assert_array_equal(np.concatenate(tiles), outputs.columns(codes))


# ------------------------------------------------------------------------------------------------ one against one


@pytest.mark.parametrize("n_classes", [3, 5])
def test_votes_are_counted(n_classes):
    rng = np.random.default_rng(0)
    outputs = OneVsOne(np.arange(n_classes))
    values = rng.integers(-1, 2, size=(50, outputs.n_columns)).astype(float)
    for row, counted in zip(values, outputs.votes(values), strict=True):
        counts, place = [0] * n_classes, iter(row)
        for i in range(n_classes):
            for j in range(i + 1, n_classes):
                counts[i if next(place) > 0 else j] += 1
        assert counted.tolist() == counts
        assert outputs.predict(row[np.newaxis])[0] == counts.index(max(counts))


@pytest.mark.parametrize(("shape", "ties"), [("ovr", False), ("ovr", True), ("ovo", False)])
def test_pairs_decide_as_libsvm_does(shape, ties):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(200, 2)), rng.integers(0, 4, size=200)
    machine = SVC(decision_function_shape=shape, break_ties=ties).fit(rows, labels)
    pairs = SVC(decision_function_shape="ovo").fit(rows, labels).decision_function(rows)
    outputs = OneVsOne(machine.classes_, shape, ties)
    np.testing.assert_array_equal(outputs.predict(pairs), machine.predict(rows))
    np.testing.assert_allclose(outputs.decision(pairs), machine.decision_function(rows), atol=1e-12)


# -------------------------------------------------------------------------------------------------- fitted models


def test_models_are_read_by_what_they_have():
    classes = np.array(["a", "b", "c"])
    own = OneVsOne(classes)
    assert read_outputs(SimpleNamespace(outputs_=own, classes_=classes), 3) is own
    assert isinstance(read_outputs(SimpleNamespace(classes_=classes), 3), OneVsRest)
    assert isinstance(read_outputs(SimpleNamespace(classes_=classes, decision_rule_="pairs"), 3), OneVsOne)
    assert read_outputs(SimpleNamespace(offset_=np.array([2.0])), 1) == Novelty(2.0)
    assert read_outputs(SimpleNamespace(transform=print), 5) == Components()
    assert read_outputs(SimpleNamespace(transform=print, predict=print), 5) == Regression(flat=False)
    assert read_outputs(SimpleNamespace(), 1) == Regression(flat=True)


@pytest.mark.parametrize("n_columns", [1, 2])
def test_classes_that_do_not_fit_the_columns_are_refused(n_columns):
    with pytest.raises(ValueError, match=f"3 classes and {n_columns} output"):
        read_outputs(SimpleNamespace(classes_=np.arange(3)), n_columns)


def test_a_model_that_has_seen_one_class_cannot_be_read():
    with pytest.raises(ValueError, match="only one class so far"):
        read_outputs(SimpleNamespace(outputs_=OneVsRest(np.array([1]))), 1)


@pytest.mark.parametrize("outputs", [Regression(True), Components(), Novelty(1.0), OneVsRest(np.arange(3))], ids=str)
def test_outputs_pickle(outputs):
    again, values = pickle.loads(pickle.dumps(outputs)), np.ones((2, 3))
    np.testing.assert_array_equal(again.predict(values), outputs.predict(values))
