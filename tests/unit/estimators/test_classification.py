"""What all classifiers share: labels are checked, and encoded by the classes of the first call."""

import numpy as np
import pytest

from mercer import NystromClassifier


def read(labels, *, model=None, classes=None, first=True):
    """The table of rows with these labels, which come first or later."""
    rows = np.arange(float(len(labels) if labels is not None else 2))[:, np.newaxis]
    return (model or NystromClassifier(noise=0.1, intercept=False))._read(
        rows, labels, None, first=first, classes=classes
    )


def test_the_first_labels_tell_the_classes():
    model = NystromClassifier(noise=0.1, intercept=False)
    table = read(["b", "a", "b"], model=model)
    assert table.labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(table.targets, [[1.0], [-1.0], [1.0]])
    assert model.classes_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=r"not among the classes.*'c'"):
        read(["a", "c"], model=model, first=False)


def test_classes_may_be_given():
    model = NystromClassifier(noise=0.1, intercept=False)
    assert read([1, 1], model=model, classes=[0, 1, 2]).labels.tolist() == [1, 1]
    assert model.classes_.tolist() == [0, 1, 2]
    assert read([2, 2], model=model, classes=[2, 1, 0], first=False).labels.tolist() == [2, 2]
    with pytest.raises(ValueError, match="differ from those of the first call"):
        read([1, 1], model=model, classes=[0, 1], first=False)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match=r"only one class is present: found \[1\]"):
        read([1, 1])


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
        NystromClassifier(noise=0.1, intercept=False)._read(np.zeros((2, 1)), labels, None, first=True)
