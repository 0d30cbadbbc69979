"""What kernels of compact support refuse."""

import numpy as np
import pytest

from mercer.kernels import CompactGaussian, Linear, Wendland
from mercer.kernels.compact import Compact


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(40, 3))


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "wide"])
@pytest.mark.parametrize("name", ["cutoff", "exponent", "amplitude"])
def test_numbers_of_a_compact_gaussian_must_be_positive(name, value, rows):
    kernel = CompactGaussian(**{name: value})
    with pytest.raises(ValueError, match=f"{name} must be a finite number above zero"):
        kernel.check()
    for use in (kernel, kernel.resolve, lambda rows: kernel.points_gradient(rows, rows, np.ones((40, 40)))):
        with pytest.raises(ValueError, match=f"{name} must be a finite number above zero"):
            use(rows)


@pytest.mark.parametrize("smoothness", [-1, 3, 0.5, None, "1"])
def test_smoothness_is_one_of_three(smoothness, rows):
    with pytest.raises(ValueError, match="smoothness must be 0, 1 or 2"):
        Wendland(smoothness=smoothness)(rows)


@pytest.mark.parametrize("dimension", [0, -1, 2.5, 3.0, np.nan, "3", True])
def test_a_dimension_is_an_integer_above_zero(dimension, rows):
    with pytest.raises(ValueError, match="dimension must be an integer above zero"):
        Wendland(dimension=dimension)(rows)


@pytest.mark.parametrize("kernel_class", [CompactGaussian, Wendland])
def test_length_scales_must_be_positive_and_fit_the_features(kernel_class, rows):
    for length_scale in (0.0, [1.0, -1.0, 1.0], "mean"):
        with pytest.raises(ValueError, match="length_scale must be"):
            kernel_class(length_scale).check()
    for use in (lambda kernel: kernel(rows), lambda kernel: kernel.support(3)):
        with pytest.raises(ValueError, match="length_scale has 2 values, but the rows have 3 features"):
            use(kernel_class([1.0, 2.0]))
    with pytest.raises(ValueError, match="resolve"):
        kernel_class("median")(rows)


def test_compact_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Compact()
    assert not isinstance(Linear(), Compact)


@pytest.mark.parametrize("kernel", [Wendland("auto"), CompactGaussian("auto")], ids=str)
def test_auto_is_for_estimators_that_count_neighbours(kernel):
    kernel.check(3)
    assert kernel.needs_data
    with pytest.raises(ValueError, match="'auto' is for CompactRegressor and CompactClassifier"):
        kernel.resolve(np.ones((4, 3)))
    with pytest.raises(ValueError, match="'auto' is a number only for given rows"):
        kernel(np.ones((4, 3)))


def test_auto_chooses_the_cutoff():
    with pytest.raises(ValueError, match="leave cutoff=None"):
        CompactGaussian("auto", cutoff=3.0).check(3)
