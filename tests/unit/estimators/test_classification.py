"""What all classifiers share: labels are checked, and encoded by the classes of the first call."""

import numpy as np
import pytest

from mercer.estimators.classification import Labels
from mercer.model import OneVsRest


def test_the_first_labels_tell_the_classes():
    encode = Labels()
    codes, coding = encode(["b", "a", "b"], 3)
    assert codes.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(coding.columns(codes), [[1.0], [-1.0], [1.0]])
    assert encode.classes.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=r"not among the classes.*'c'"):
        encode(["a", "c"], 2)


def test_classes_may_be_given():
    encode = Labels(OneVsRest(np.array([0, 1, 2])))
    assert encode.codes([1, 1], 2).tolist() == [1, 1]
    assert encode.classes.tolist() == [0, 1, 2]


def test_one_class_is_refused():
    with pytest.raises(ValueError, match=r"only one class is present: found \[1\]"):
        Labels()([1, 1], 2)


def test_classes_are_unknown_before_the_first_labels():
    with pytest.raises(ValueError, match="no labels were encoded yet"):
        _ = Labels().classes


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
        Labels()(labels, 2)
