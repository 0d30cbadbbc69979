"""What is exported of a model: an expansion as a formula, what its columns mean, and what float32 does to it.

Coefficients that are large and alternate in sign, as interpolation gives them, turn roundings of 1e-7 into errors as
large as the function. That depends on the model alone, so it is measured on the model: the formula is evaluated as it
will be outside, in float32 and in float64, at the vectors and halfway between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted
from mercer.exceptions import warn
from mercer.kernels import Kernel, Metric, Stationary
from mercer.kernels.closed_form import Form, OfDistance, OfInnerProduct, closed_form
from mercer.model import KernelExpansion, OneVsOne, OneVsRest, read_outputs

_LARGEST_LABEL = 2**63 - 1
# The share of the function's size that is reported: the one from which on the engine leaves float32 by itself.
_TOLERATED = 1e-3
_SAMPLE = 128  # vectors, and as many places between them


@dataclass(frozen=True)
class Exported:
    """An expansion as arrays of float64 and a formula."""

    kind: str  # name of the model's class, and
    kernel: str  # the kernel in words, for comments
    form: Form
    points: FloatArray  # (m, d)
    coefficients: FloatArray  # (m, p)
    intercept: FloatArray  # (p,)
    decision: OneVsRest | OneVsOne | None  # of a classifier, with classes of int64, float64 or str
    mapping: Mapping | None = None  # of inputs to what the formula and the points are of


@dataclass(frozen=True)
class Mapping:
    """Inputs x become (x - centre) A."""

    centre: FloatArray  # (d,)
    matrix: FloatArray  # A, (d, r)


def read_model(model: Any) -> Exported:
    """Read an expansion, or any fitted model that has one."""
    expansion = _expansion_of(model)
    points = np.array(expansion.points, dtype=np.float64)
    if points.size == 0:
        raise ValueError(f"model must have at least one vector and one feature, got points of shape {points.shape}.")
    coefficients = np.array(expansion.coefficients, dtype=np.float64)
    intercept = np.array(expansion.intercept, dtype=np.float64)
    if not all(np.all(np.isfinite(array)) for array in (points, coefficients, intercept)):
        raise ValueError("model must consist of finite numbers to be exported; it has NaN or infinity among them.")
    decision, outputs = None, None if model is expansion else read_outputs(model, coefficients.shape[1])
    if isinstance(outputs, (OneVsRest, OneVsOne)):
        decision = replace(outputs, classes=_plain_labels(outputs.classes))
    form = closed_form(expansion.kernel, points.shape[1])
    kernel = " ".join(repr(expansion.kernel).split())
    mapping, metric = None, _metric_of(expansion.kernel)
    if metric is not None:  # the points are mapped here, once
        mapping = Mapping(np.median(points, axis=0), metric.matrix)
        points = np.asarray(metric.apply(points, mapping.centre), dtype=np.float64)
    return Exported(type(model).__name__, kernel, form, points, coefficients, intercept, decision, mapping)


def _metric_of(kernel: Kernel) -> Metric | None:
    """The metric that is folded into the points; one inside a sum or a product is refused."""
    if isinstance(kernel, Stationary):
        return kernel.metric
    if any(isinstance(each, Stationary) and each.metric is not None for each in kernel.get_params().values()):
        raise TypeError("a kernel with a metric inside a sum or a product cannot be exported: use it alone.")
    return None


def _expansion_of(model: Any) -> KernelExpansion:
    if isinstance(model, KernelExpansion):
        return model
    if hasattr(model, "fit"):
        check_is_fitted(model)
    try:
        expansion = model.expansion_
    except AttributeError as error:
        name = type(model).__name__
        if hasattr(type(model), "expansion_"):  # it has one, but not now, and says why
            raise TypeError(f"this {name} cannot be exported: {error}") from error
        raise TypeError(
            f"model must be a fitted model of mercer, or a KernelExpansion; got a {name}. For models of scikit-learn, "
            "and pipelines of them, see compress and as_expansion of mercer.compression."
        ) from error
    if not isinstance(expansion, KernelExpansion):
        raise TypeError(f"expansion_ of the model must be a KernelExpansion, got a {type(expansion).__name__}.")
    return expansion


def _plain_labels(classes: AnyArray) -> AnyArray:
    """Classes as types that ONNX and C know: int64, float64 or str."""
    values = np.asarray(classes).tolist()
    if all(isinstance(value, str) for value in values):
        return np.array(values, dtype=np.str_)
    if all(isinstance(value, int) and abs(value) <= _LARGEST_LABEL for value in values):  # True and False among them
        return np.array(values, dtype=np.int64)
    if all(isinstance(value, float) for value in values):
        return np.array(values, dtype=np.float64)
    raise TypeError(f"classes of a model must all be integers, all floats, or all strings; got {values}.")


def factors_of_power(base: str, power: int, square: Callable[[str], str]) -> list[str]:
    """Which of base, base², base⁴, ... make a whole power; ``square`` writes the square of one of them."""
    names = [base]
    for _ in range(1, power.bit_length()):
        names.append(square(names[-1]))
    return [name for i, name in enumerate(names) if power >> i & 1]


def centre(points: FloatArray, dtype: Any) -> FloatArray:
    """The shift that keeps cancellation small: the median, which one outlier does not move."""
    return in_dtype(np.median(points, axis=0), dtype, "vectors")


def in_dtype(values: Any, dtype: Any, what: str) -> FloatArray:
    """Values in that dtype, refused if it cannot hold them."""
    with np.errstate(over="ignore"):
        converted = np.asarray(values, dtype=np.float64).astype(dtype)
    if not np.all(np.isfinite(converted)):
        raise ValueError(f"{what} of the model exceed what {np.dtype(dtype)} can hold; export it in float64.")
    return converted


def warn_of_rounding(model: Exported, *, arithmetic: Any, products: bool, remedy: str) -> None:
    """Warn if float32 changes predictions visibly; see ``float32_error``."""
    error = float32_error(model, arithmetic=arithmetic, products=products)
    if error > _TOLERATED:
        warn(
            f"in float32 the predictions of this model are wrong by up to {error:.2g} times their size, as measured at "
            "its vectors and between them: large coefficients magnify rounding, or inputs differ by too little, or by "
            f"too much, in units of their own size and of the length scale. {remedy}",
            UserWarning,
        )


def float32_error(model: Exported, *, arithmetic: Any = np.float32, products: bool) -> float:
    """Largest error by inputs and outputs in float32, relative to the size of the function less its intercept.

    With ``products`` squared distances are expanded into inner products, in that arithmetic; else they are sums of
    squared differences between inputs and vectors, both rounded, and as precise as that.
    """
    vectors = model.points[:: max(1, len(model.points) // _SAMPLE)]
    rows = np.concatenate([vectors, (vectors[1:] + vectors[:-1]) / 2])
    exact = evaluate(model.form, rows, model.points, dtype=np.float64) @ model.coefficients
    points = model.points if products else in_dtype(model.points, np.float32, "vectors")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        values = evaluate(model.form, rows.astype(np.float32), points, dtype=arithmetic, products=products)
        values = values @ model.coefficients.astype(arithmetic) + model.intercept.astype(arithmetic)
        errors = np.max(np.abs(values.astype(np.float32) - (exact + model.intercept)), axis=0)
    sizes = np.max(np.abs(exact), axis=0)
    shares = np.divide(errors, sizes, out=np.zeros_like(errors), where=sizes > 0)
    return float(np.max(np.where(np.isnan(shares), np.inf, shares)))


def evaluate(form: Form, rows: FloatArray, points: FloatArray, *, dtype: Any, products: bool = True) -> FloatArray:
    """Kernel values k(rows, points), shape (n, m), by the formula and in the dtype of an exported model."""
    t = np.dtype(dtype).type
    if isinstance(form, OfDistance):
        squares = _squares(form, rows, points, t if products else np.float64).astype(t)
        values = t(form.amplitude) * np.polynomial.Polynomial(np.array(form.polynomial, dtype=t))(np.sqrt(squares))
        if np.isfinite(form.radius):
            values = values * np.maximum(1 - np.sqrt(squares) / t(form.radius), 0) ** t(form.power)
        with np.errstate(under="ignore"):
            if form.decay == "rational":
                return np.asarray(values * (1 + squares) ** t(-form.shape), dtype=t)
            exponents = {"none": 0 * squares, "squared": -squares / 2, "plain": -np.sqrt(squares)}[form.decay]
            return np.asarray(values * np.exp(exponents), dtype=t)
    if isinstance(form, OfInnerProduct):
        inner = rows.astype(t) @ (form.scale * points).astype(t).T
        return np.asarray(t(form.amplitude) * (inner + t(form.offset)) ** form.degree, dtype=t)
    left = evaluate(form.left, rows, points, dtype=dtype, products=products)
    right = evaluate(form.right, rows, points, dtype=dtype, products=products)
    return left + right if form.operation == "sum" else left * right


def on_circles(angles: FloatArray, waves: FloatArray) -> FloatArray:
    """[a cos 2t, a sin 2t]/2, (n, 2d): the squared distances of such rows are those of a sin(t - t')."""
    return np.concatenate([np.cos(2 * angles) * (waves / 2), np.sin(2 * angles) * (waves / 2)], axis=1)


def _squares(form: OfDistance, rows: FloatArray, points: FloatArray, dtype: Any) -> FloatArray:
    shift, inverse = centre(points, dtype), form.inverse_scale.astype(dtype)
    x: FloatArray = rows.astype(dtype) - shift
    z: FloatArray = points - shift
    if form.waves is not None:
        x, z = np.fmod(x, form.period.astype(dtype)), np.fmod(z, form.period)
    x, z = x * inverse, (z * form.inverse_scale).astype(dtype)
    if form.waves is not None:
        x, z = on_circles(x, form.waves.astype(dtype)), on_circles(z, form.waves.astype(dtype))
    squares = np.sum(x**2, axis=1)[:, np.newaxis] - 2 * (x @ z.T) + np.sum(z**2, axis=1)
    return np.asarray(np.maximum(squares, 0))
