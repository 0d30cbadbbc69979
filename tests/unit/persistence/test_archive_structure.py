"""Archives whose parts do not fit each other: sizes, indices and types are checked before a model is returned."""

import json

import numpy as np
import pytest

from mercer import CommitteeRegressor, CompactRegressor, ExactClassifier, NystromRegressor, OnlineRegressor
from mercer.kernels import Gaussian, Wendland
from tests.archives import array_in, draw, find, put_together, refused, saved, taken_apart, with_array


def models():
    X, y = draw()
    labels = np.digitize(y, [-0.5, 0.5])
    return {
        "nystrom": NystromRegressor(n_basis=5, random_state=0, noise=0.1, intercept=False).fit(X, y),
        "online": OnlineRegressor(Gaussian(), max_basis=6).fit(X, y),
        "compact": CompactRegressor(Wendland(3.0)).fit(X, y),
        "incomplete": CompactRegressor(Wendland(3.0), solver="cg", preconditioner="incomplete").fit(X, y),
        "committee": CommitteeRegressor(n_basis=5, block_size=7).fit(X, y),
        "classifier": ExactClassifier(noise=0.1, intercept=False).fit(X, labels),
    }


@pytest.fixture(scope="module")
def forgeable():
    return {name: taken_apart(saved(model)) for name, model in models().items()}


def number(tree, name, attribute):
    return find(tree, name)[attribute]["array"]


def first_row_more(array):
    return np.concatenate([array, array[:1]])


def shorter(array):
    return array[:-1].copy()


def wider(array):
    return np.concatenate([array, array[..., :1]], axis=-1)


def out_of_range(array):
    array = array.copy()
    array[array.size // 2] = 10**6
    return array


def negative(array):
    array = array.copy()
    array[array.size // 2] = -5
    return array


def by_rows(array):
    return np.ascontiguousarray(array)


def single(array):
    return array.astype(np.float32)


def swapped_bytes(array):
    return array.astype(array.dtype.newbyteorder())


def huge(array):
    return np.full_like(array, 1e300)


def not_numbers(array):
    return np.full_like(array, np.nan)


CHANGES = [
    ("nystrom", "KernelExpansion", "coefficients", first_row_more, "coefficients of an expansion has shape"),
    ("nystrom", "KernelExpansion", "coefficients", wider, "the intercept of an expansion has shape"),
    ("nystrom", "KernelExpansion", "intercept", first_row_more, "the intercept of an expansion has shape"),
    ("nystrom", "KernelExpansion", "points", shorter, "the file"),
    ("nystrom", "KernelExpansion", "points", np.ravel, "no table"),
    ("nystrom", "KernelExpansion", "points", wider, "a model of 2 features has 3"),
    ("nystrom", "KernelExpansion", "points", swapped_bytes, "array of >f8"),
    ("nystrom", "Variance", "lower", by_rows, "not float64, contiguous in order F"),
    ("nystrom", "Variance", "lower", single, "not float64, contiguous in order F"),
    ("nystrom", "Variance", "lower", shorter, "the file"),
    ("nystrom", "Variance", "root", wider, "root of a variance does not fit"),
    ("nystrom", "Variance", "offset", shorter, "offset of a variance has shape"),
    ("nystrom", "Basis", "index", shorter, "index of a basis has shape"),
    ("nystrom", "NormalStatistics", "sums", shorter, "sums has shape"),
    ("nystrom", "Summary", "target_shift", first_row_more, "sums are not those of 2 outputs"),
    ("online", "BlockRecursion", "P_inverse", shorter, "P_inverse has shape"),
    ("online", "BlockRecursion", "K_inverse", single, "K_inverse is not float64"),
    ("online", "BlockRecursion", "coefficients", shorter, "the file"),
    ("online", "BlockRecursion", "P_inverse", not_numbers, "P_inverse of a recursion has NaN or infinity"),
    ("online", "BlockRecursion", "K_inverse", not_numbers, "K_inverse of a recursion has NaN or infinity"),
    ("online", "BlockRecursion", "births", shorter, "the file"),
    ("online", "BlockRecursion", "births", out_of_range, "births goes beyond"),
    ("online", "SequentialLearner", "points", first_row_more, "the file"),
    ("online", "BlockRecursion", "gram", shorter, "kernel matrix of the dictionary has shape"),
    ("compact", "Cells", "starts", out_of_range, "cells overlap"),
    ("compact", "Cells", "starts", negative, "cells overlap"),
    ("compact", "Cells", "starts", shorter, "starts of cells has shape"),
    ("compact", "Cells", "shape", negative, "cells are fewer than one"),
    ("compact", "Cells", "shape", out_of_range, "starts of cells has shape"),
    ("compact", "Cells", "low", not_numbers, "geometry of cells"),
    ("compact", "Cells", "side", not_numbers, "geometry of cells"),
    ("compact", "Cells", "points", shorter, "the file"),
    ("compact", "Cells", "points", wider, "the file"),
    ("compact", "Cells", "along", wider, "the file"),
    ("compact", "Cells", "along", not_numbers, "too far away"),
    ("compact", "Grid", "order", out_of_range, "the order of a grid goes beyond"),
    ("compact", "Grid", "order", np.zeros_like, "no permutation"),
    ("compact", "Grid", "_columns", out_of_range, "columns of a grid goes beyond"),
    ("compact", "Grid", "_columns", shorter, "no permutation"),
    ("compact", "Grid", "_axes", huge, "axes of a grid are too long"),
    ("compact", "Grid", "_axes", not_numbers, "axes of a grid are too long"),
    ("compact", "Grid", "_centre", shorter, "the centre of a grid has shape"),
    ("compact", "SparseKernel", "_centre", shorter, "the grid of a sparse kernel has other features"),
    ("compact", "SparseGram", "index", out_of_range, "a sparse matrix goes beyond"),
    ("compact", "SparseGram", "index", negative, "a sparse matrix goes beyond"),
    ("compact", "SparseGram", "starts", out_of_range, "rows of a sparse matrix overlap"),
    ("compact", "SparseGram", "values", shorter, "one number for each index"),
    ("compact", "SparseFactor", "order", out_of_range, "the order of a factor goes beyond"),
    ("compact", "SparseFactor", "parent", np.zeros_like, "the tree of a factor has a cycle"),
    ("compact", "SparseFactor", "parent", out_of_range, "the tree of a factor goes beyond"),
    ("compact", "SparseFactor", "pivots", shorter, "the file"),
    ("compact", "CompactSystem", "diagonal", shorter, "noises has shape"),
    ("compact", "CompactRegressor", "_eta", shorter, "the solution for the intercept has other points"),
    ("incomplete", "Incomplete", "pivots", shorter, "a factor has not as many pivots as columns"),
    ("committee", "ArrayTable", "labels", shorter, "kept targets has shape"),
    ("committee", "ArrayRows", "_array", shorter, "kept targets has shape"),
    ("committee", "ArrayRows", "_array", np.ravel, "kept rows are no table of numbers"),
    ("committee", "ArrayRows", "_array", not_numbers, "kept rows have NaN or infinity"),
    ("classifier", "ExactClassifier", "classes_", shorter, "a model of 2 classes has 3 outputs"),
    ("classifier", "ExactClassifier", "_index", out_of_range, "row numbers goes beyond"),
]


@pytest.mark.parametrize(("model", "name", "attribute", "change", "message"), CHANGES)
def test_arrays_that_do_not_fit_the_others(forgeable, model, name, attribute, change, message):
    header, members = forgeable[model]
    which = number(header["model"], name, attribute)
    content = array_in(members, which)
    refused(with_array(header, members, which, change(content)), message)


@pytest.mark.parametrize("layout", ["SparseFactor", "Incomplete"])
@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (3, out_of_range, "a sparse matrix goes beyond"),
        (3, negative, "a sparse matrix goes beyond"),
        (3, np.zeros_like, "a factor has no diagonal"),
        (4, out_of_range, "rows of a sparse matrix overlap"),
        (4, np.zeros_like, "rows of a sparse matrix overlap"),
        (4, shorter, "not as many rows as it says"),
        (2, shorter, "one number for each index"),
        (2, lambda a: a.astype(np.int64), "one number for each index"),
    ],
)
def test_factors_that_are_none(forgeable, layout, part, change, message):
    header, members = forgeable["compact" if layout == "SparseFactor" else "incomplete"]
    which = find(header["model"], layout)["lower"]["sparse"][part]
    content = array_in(members, which)
    refused(with_array(header, members, which, change(content)), message)


SCALARS = [
    ("nystrom", "NormalStatistics", "n_features", 50, "do not have 50 features"),
    ("nystrom", "NormalStatistics", "n_features", -1, "do not have -1 features"),
    ("nystrom", "NormalStatistics", "n_rows", 1.5, "n_rows is of type float"),
    ("nystrom", "NystromRegressor", "n_features_in_", 3, "a model of 3 features has 2"),
    ("nystrom", "NystromRegressor", "_flat", 1, "_flat is of type int"),
    ("nystrom", "NystromRegressor", "_summary", None, "_summary is None, where an archive has Summary"),
    ("nystrom", "KernelExpansion", "kernel", None, "KernelExpansion.kernel is None"),
    ("nystrom", "KernelExpansion", "variance", 1.0, "KernelExpansion.variance is of type float"),
    ("nystrom", "Gaussian", "length_scale", "median", "the kernel of a fitted model has no length scale"),
    ("nystrom", "Gaussian", "length_scale", [1.0, 2.0, 3.0], "length_scale has 3 values, but the rows have 2"),
    ("nystrom", "Gaussian", "length_scale", -1.0, "the kernel does not fit: length_scale must be"),
    ("nystrom", "Gaussian", "length_scale", {"dict": []}, "the kernel does not fit"),
    ("nystrom", "Frame", "dtype", {"dtype": "<i8"}, "a basis is neither float32 nor float64"),
    ("online", "Rules", "hidden", 1, "all outputs of a recursion are hidden"),
    ("online", "Rules", "max_basis", 1, "more functions than its rules allow"),
    ("online", "Rules", "noise", 0.0, "out of range"),
    ("online", "Rules", "forgetting", {"float": "nan"}, "out of range"),
    ("online", "BlockRecursion", "_state", None, "BlockRecursion has an attribute '_state'"),
    ("online", "BlockRecursion", "n_seen", 0, "the file"),
    ("online", "SequentialLearner", "_values", 1, "SequentialLearner has an attribute '_values'"),
    ("online", "OnlineState", "history", [1], "history is of type list"),
    ("compact", "Cells", "reach", {"float": "nan"}, "the reach of cells is out of range"),
    ("compact", "Cells", "reach", 1e300, "the reach of cells is out of range"),
    ("compact", "SparseKernel", "_n_features", 3, "SparseKernel has an attribute '_n_features'"),
    ("compact", "SparseKernel", "_unit", 3, "SparseKernel has an attribute '_unit'"),
    ("compact", "SparseKernel", "_dtype", {"dtype": "<i4"}, "neither float32 nor float64"),
    ("compact", "Wendland", "smoothness", 7, "smoothness must be 0, 1 or 2"),
]


@pytest.mark.parametrize(("model", "name", "attribute", "value", "message"), SCALARS)
def test_values_that_do_not_fit_the_others(forgeable, model, name, attribute, value, message):
    header, members = forgeable[model]
    changed = json.loads(json.dumps(header))
    find(changed["model"], name)[attribute] = value
    refused(put_together(changed, members), message)


def test_batches_that_are_none(forgeable):
    header, members = forgeable["committee"]
    model = json.loads(json.dumps(header["model"]))
    batch = model["object"][1]["_batches"]["tuple"][0]
    name, attributes = batch["object"]
    without_blocks = {"object": [name, attributes | {"blocks": None}]}  # whose arrays would be named twice
    for other in ("batch", {"tuple": [without_blocks]}):
        model["object"][1]["_batches"]["tuple"] = [batch, other]
        refused(put_together(header | {"model": model}, members), r"_batches is of type tuple.* has tuple\[Batch, ...")


def test_blocks_beyond_the_rows(forgeable):
    header, members = forgeable["committee"]
    joined, _ = find(header["model"], "Batch")["blocks"]["ragged"]
    content = array_in(members, joined)
    refused(with_array(header, members, joined, out_of_range(content)), "a block goes beyond")
    refused(with_array(header, members, joined, shorter(content)), "not as long as its parts")
