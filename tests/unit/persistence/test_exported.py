from contextlib import nullcontext

import numpy as np
import pytest

from mercer.kernels import CompactGaussian, Gaussian, Linear, Matern, Polynomial
from mercer.kernels.closed_form import closed_form, is_product
from mercer.model import KernelExpansion
from mercer.persistence.exported import evaluate, float32_error, in_dtype, read_model
from tests.export_cases import KINK_TOLERANCE, every_formula, has_kink, rows_of
from tests.kernel_cases import TOLERANCE


@pytest.mark.parametrize("products", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_formula
def test_formulas_are_the_kernels(case, dtype, products):
    rows = rows_of(case)
    points = rows[:7]
    found = evaluate(closed_form(case.kernel, 3), rows, points, dtype=dtype, products=products)
    exact_distances = not products and dtype == np.float32  # of differences, in float64
    tolerance = KINK_TOLERANCE if has_kink(case.kernel) and not exact_distances else TOLERANCE
    assert found.dtype == dtype
    assert np.all(np.abs(found - case.define(rows, points)) <= tolerance[dtype] * case.size(rows, points))


def interpolant(kernel, n=12):
    x = np.linspace(0, 1, n)[:, np.newaxis]
    coefficients = np.linalg.lstsq(kernel(x), np.sin(6 * x), rcond=1e-14)[0]
    return KernelExpansion(kernel, x, coefficients, np.zeros(1))


def test_what_is_predicted_of_a_float32_graph_is_what_it_does():
    pytest.importorskip("onnx", reason="onnx is not installed (the extra 'onnx')")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (the extra 'onnx')")
    from mercer.persistence import to_onnx

    x = np.linspace(0, 1, 200)[:, np.newaxis]
    for length_scale in (0.05, 0.1, 0.2, 0.3):
        expansion = interpolant(Gaussian(length_scale))
        predicted = float32_error(read_model(expansion), products=True)
        with pytest.warns(UserWarning, match="in float32") if predicted > 1e-3 else nullcontext():
            graph = to_onnx(expansion)
        session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        exact = expansion.evaluate(x)
        error = np.max(np.abs(session.run(None, {"X": x.astype(np.float32)})[0] - exact)) / np.max(np.abs(exact))
        assert predicted / 10 <= error <= 10 * predicted


def test_coefficients_magnify_rounding():
    errors = [float32_error(read_model(interpolant(Gaussian(scale))), products=False) for scale in (0.05, 0.2, 0.4)]
    assert errors[0] < 1e-6
    assert errors[1] > 10 * errors[0]
    assert errors[2] > 1e-2


def test_products_lose_what_differences_keep():
    points = np.array([[0.0], [1000.1], [1000.7], [-1000.3]])  # rounding them alone costs 3e-5
    model = read_model(KernelExpansion(Gaussian(), points, np.ones((4, 1)), np.zeros(1)))
    assert float32_error(model, products=False) < 1e-4
    assert float32_error(model, products=True) > 1e-3
    assert float32_error(model, products=True, arithmetic=np.float64) < 1e-4


def test_an_intercept_beside_which_the_function_is_small():
    expansion = KernelExpansion(Matern(), np.zeros((1, 1)), np.ones((1, 1)), np.full(1, 1e5))
    assert float32_error(read_model(expansion), products=False) == pytest.approx(0, abs=1e-2)
    off_grid = KernelExpansion(Matern(), np.zeros((1, 1)), np.ones((1, 1)), np.full(1, 1e5 + 1e-3))
    assert float32_error(read_model(off_grid), products=False) == pytest.approx(1e-3, rel=0.1)


def test_a_function_that_is_zero_has_no_error():
    expansion = KernelExpansion(Linear(), np.zeros((3, 2)), np.ones((3, 1)), np.ones(1))
    assert float32_error(read_model(expansion), products=True) == 0.0


def test_overflow_is_an_infinite_error():
    expansion = KernelExpansion(Polynomial(degree=9), np.full((2, 1), 1e5), np.ones((2, 1)), np.zeros(1))
    assert float32_error(read_model(expansion), products=True) == np.inf


def test_in_dtype_names_what_it_refuses():
    with pytest.raises(ValueError, match="weights of the model exceed what float32"):
        in_dtype([1.0, 1e39], np.float32, "weights")
    assert in_dtype([1.0, 1e39], np.float64, "weights").dtype == np.float64


def test_large_powers_are_left_to_a_function():
    assert [power for power in (0, 1, 127, 128, 2.5, -1) if is_product(power)] == [0, 1, 127]
    form = closed_form(CompactGaussian(), 200)
    assert form.power == 201


def test_an_open_length_scale_is_refused():
    with pytest.raises(ValueError, match="length_scale='median' is a number only for given rows"):
        closed_form(Gaussian("median"), 2)
