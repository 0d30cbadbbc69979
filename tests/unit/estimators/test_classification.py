"""Labels to ±1 and back."""

import numpy as np
import pytest

from mercer.estimators.classification import OneVsRest, decide, flat_decision


def test_two_classes_have_one_column_positive_for_the_second():
    encode = OneVsRest()
    targets, flat = encode(["b", "a", "b"], 3)
    assert flat
    np.testing.assert_array_equal(targets, [[1.0], [-1.0], [1.0]])
    assert encode.classes.tolist() == ["a", "b"]


def test_three_classes_have_a_column_each():
    encode = OneVsRest()
    targets, _ = encode([7, 3, 5], 3)
    assert encode.classes.tolist() == [3, 5, 7]
    np.testing.assert_array_equal(targets, [[-1, -1, 1], [1, -1, -1], [-1, 1, -1]])


def test_classes_given_are_sorted_and_need_not_all_occur():
    encode = OneVsRest([2, 0, 1, 1])
    targets, _ = encode([1, 1], 2)
    assert encode.classes.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(targets, [[-1, 1, -1]] * 2)


def test_labels_outside_the_classes_are_named():
    with pytest.raises(ValueError, match=r"y contains labels that are not among the classes \[0, 1\]: \[2, 5\]"):
        OneVsRest([0, 1])([0, 5, 2], 3)


def test_labels_outside_the_classes_of_the_first_call_are_named():
    encode = OneVsRest()
    encode(["a", "b"], 2)
    with pytest.raises(ValueError, match=r"not among the classes.*'c'"):
        encode(["a", "c"], 2)


@pytest.mark.parametrize("build", [lambda: OneVsRest([1]), lambda: OneVsRest()([1, 1], 2)])
def test_one_class_is_refused(build):
    with pytest.raises(ValueError, match=r"only one class is present: found \[1\]"):
        build()


def test_classes_are_unknown_before_the_first_labels():
    with pytest.raises(ValueError, match="no labels were encoded yet"):
        _ = OneVsRest().classes


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1.5], "Unknown label type"),
        ([0.0, np.nan], "Input y contains NaN"),
        ([0.0, np.inf], "Input y contains infinity"),
        ([[0, 1], [1, 0]], "1d array"),
        (None, "y"),
        ([0, 1, 1], "inconsistent numbers of samples"),
    ],
    ids=["continuous", "nan", "infinity", "indicator", "none", "length"],
)
def test_what_is_no_label_is_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        OneVsRest()(labels, 2)


def test_decisions_of_two_classes_go_by_sign():
    values = np.array([[-1.0], [0.0], [0.1]])
    assert decide(values, np.array(["a", "b"])).tolist() == ["a", "a", "b"]
    np.testing.assert_array_equal(flat_decision(values), [-1.0, 0.0, 0.1])


def test_decisions_of_three_classes_go_by_the_greatest():
    values = np.array([[-1.0, -0.5, -2.0], [3.0, 1.0, 2.0]])
    assert decide(values, np.array([10, 20, 30])).tolist() == [20, 10]
    assert flat_decision(values) is values
