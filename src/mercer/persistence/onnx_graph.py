r"""Models as ONNX graphs.

A stationary kernel is one matrix product and some elementwise nodes. With :math:`\tilde x = (x - c)\cdot s`,

.. math:: |\tilde x - \tilde z|^2 = [\tilde x,\ |\tilde x|^2]\cdot[-2\tilde z,\ 1] + |\tilde z|^2,

so that the norms ride along in the product; c, the median of the vectors, keeps the cancellation small. Only standard
operators are used, all of them in opset 18 or before. NaN among the inputs comes out as NaN.
"""

from __future__ import annotations

import json
from functools import partial, reduce
from importlib.metadata import version
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.kernels.closed_form import Form, OfDistance, OfInnerProduct, is_product
from mercer.model import OneVsOne, OneVsRest
from mercer.persistence.exported import (
    Exported,
    centre,
    factors_of_power,
    in_dtype,
    on_circles,
    read_model,
    warn_of_rounding,
)

if TYPE_CHECKING:
    import onnx


# The newest that the oldest supported onnxruntime (1.20) runs, with the file format of its time.
_OPSET, _IR_VERSION = 21, 10
# Inputs are clipped at so many length scales: their squares would overflow, and ∞ - ∞ is NaN. Kernels are zero there.
_FARTHEST: dict[np.dtype[Any], float] = {np.dtype(np.float32): 1e17, np.dtype(np.float64): 1e150}
_COLUMNS = np.array([1], dtype=np.int64)  # the axis


def to_onnx(
    model: Any,
    *,
    dtype: Any = np.float32,
    arithmetic: Any = None,
    path: str | PathLike[str] | None = None,
    name: str = "mercer",
) -> onnx.ModelProto:
    """Write a model as an ONNX graph.

    Cost of a run: n·m kernel values, and memory for some matrices of that size; split long tables into batches.

    Parameters
    ----------
    model : KernelExpansion or fitted model with ``expansion_``
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        Of the input and of the outputs.
    arithmetic : {numpy.float32, numpy.float64}, optional
        In which the graph computes; by default ``dtype``. float64 inside a float32 graph costs about twice the time
        and gives what Python gives, rounded once.
    path : path, optional
        Where to write the graph, too.
    name : str, default="mercer"
        Name of the graph.

    Returns
    -------
    onnx.ModelProto
        Its input is ``X`` (n, d), of any n, zero included. A regressor has the output ``prediction`` (n, p), with p = 1
        also for targets of one dimension. A classifier (a model with ``classes_``) has ``label`` (n,), of int64, double
        or string as its classes are, and ``decision`` (n, outputs): one for two classes, else one per class, or one per
        pair of classes in libsvm's order. The variance is not exported.

    Warns
    -----
    UserWarning
        If float32, tried on the model's vectors, makes errors of more than 1e-3 of the function's size.

    Raises
    ------
    TypeError
        For a kernel without a formula (``Function``, ``Precomputed``), or what is not a model.
    ImportError
        If ONNX is not installed: ``pip install mercer[onnx]``.

    See Also
    --------
    mercer.persistence.to_c : The same as C source.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ExactRegressor
    >>> from mercer.persistence import to_onnx
    >>> model = ExactRegressor().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])
    >>> graph = to_onnx(model, dtype=np.float64)
    >>> [node.op_type for node in graph.graph.node]
    ['Sub', 'Mul', 'Clip', 'ReduceSumSquare', 'Concat', 'Gemm', 'Min', 'Exp', 'Gemm']
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError("to_onnx needs the package onnx: pip install mercer[onnx]") from error
    outside = _float_type(dtype, "dtype")
    inside = outside if arithmetic is None else _float_type(arithmetic, "arithmetic")
    exported = read_model(model)
    if outside == np.float32:
        inner = "arithmetic=np.float64, which leaves inputs and outputs float32, or " if inside == np.float32 else ""
        warn_of_rounding(exported, arithmetic=inside, products=True, remedy=f"Pass {inner}dtype=np.float64.")
    proto = _Graph(onnx, exported, outside, inside).build(name)
    if path is not None:
        onnx.save(proto, fspath(path))
    return proto


class _Graph:
    """A model as nodes; methods return the names of what they compute."""

    def __init__(self, onnx: Any, model: Exported, outside: np.dtype[Any], inside: np.dtype[Any]) -> None:
        self._onnx, self._model, self._outside, self._inside = onnx, model, outside, inside
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []
        self._names: dict[tuple[Any, ...], str] = {}  # of nodes and constants: equal ones are there once
        self._x = "X" if inside == outside else self._cast("X", inside)
        mapping = model.mapping
        if mapping is not None:
            centred = self._add("Sub", self._x, self._numbers(mapping.centre, "vectors"))
            self._x = self._add("MatMul", centred, self._numbers(mapping.matrix, "the metric"))

    def build(self, name: str) -> onnx.ModelProto:
        helper, model = self._onnx.helper, self._model
        kernel, factor = self._kernel(model.form)
        result = "prediction" if model.decision is None else "decision"
        is_cast = self._inside != self._outside
        coefficients = self._numbers(model.coefficients * factor, "coefficients")
        intercept = self._numbers(model.intercept, "intercept")
        values = self._add("Gemm", kernel, coefficients, intercept, output="" if is_cast else result)
        if is_cast:
            self._add("Cast", values, output=result, to=self._type_code(self._outside))
        outputs = [self._declared(result, self._outside, len(model.intercept))]
        if model.decision is not None:
            outputs.insert(0, self._label(values, model.decision))
        width = model.points.shape[1] if model.mapping is None else len(model.mapping.centre)
        inputs = [self._declared("X", self._outside, width)]
        graph = helper.make_graph(self._nodes, name, inputs, outputs, self._tensors)
        proto: onnx.ModelProto = helper.make_model(
            graph, producer_name="mercer", producer_version=version("mercer"), ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
        )  # fmt: skip
        properties = {"model": model.kind, "kernel": model.kernel, "n_vectors": str(len(model.points))}
        if model.decision is not None:
            properties |= {"classes": json.dumps(model.decision.classes.tolist()), "decision_rule": model.decision.rule}
        helper.set_model_props(proto, properties)
        self._onnx.checker.check_model(proto, full_check=True)
        return proto

    def _kernel(self, form: Form) -> tuple[str, float]:
        """A node of kernel values, and the number that they are to be multiplied by."""
        if isinstance(form, OfDistance):
            return self._of_distance(form), form.amplitude
        if isinstance(form, OfInnerProduct):
            columns = self._numbers(form.scale * self._model.points.T, "vectors")
            inner = self._add("Gemm", self._x, columns, self._numbers(form.offset))
            return self._power(inner, form.degree), form.amplitude
        (left, left_factor), (right, right_factor) = self._kernel(form.left), self._kernel(form.right)
        if form.operation == "product":
            return self._add("Mul", left, right), left_factor * right_factor
        return self._add("Add", self._times(left, left_factor), self._times(right, right_factor)), 1.0

    def _of_distance(self, form: OfDistance) -> str:
        if form.decay == "squared" and not form.needs_root:
            return self._add("Exp", self._add("Min", self._squares(form, -0.5), self._numbers(0.0)))
        # Rounding may leave squares negative.
        squares = self._add("Max", self._squares(form, 1.0), self._numbers(0.0))
        if form.decay == "rational":
            inverse = self._add("Reciprocal", self._add("Add", squares, self._numbers(1.0)))
            return self._power(inverse, form.shape)
        distance = self._add("Sqrt", squares)
        factors = []
        if np.isfinite(form.radius):
            inside = self._add("Sub", self._numbers(1.0), self._times(distance, 1.0 / form.radius))
            factors.append(self._power(self._add("Max", inside, self._numbers(0.0)), form.power))
        if len(form.polynomial) > 1:
            factors.append(self._polynomial(distance, form.polynomial))
        if form.decay != "none":
            exponent = self._times(squares, -0.5) if form.decay == "squared" else self._add("Neg", distance)
            factors.append(self._add("Exp", exponent))
        return self._product(factors)

    def _squares(self, form: OfDistance, factor: float) -> str:
        """|x̃ - z̃|² times a factor that is a power of two, so that it rounds nothing."""
        shift, farthest = centre(self._model.points, self._inside), _FARTHEST[self._inside]
        scales = self._numbers(form.inverse_scale, "length scales")
        x = self._add("Sub", self._x, self._constant(shift))
        z: FloatArray = self._model.points - shift
        if form.waves is None:
            x = self._add("Mul", x, scales)
            x = self._add("Clip", x, self._numbers(-farthest), self._numbers(farthest))
            z = in_dtype(z * form.inverse_scale, self._inside, "scaled vectors")
        else:
            x = self._add("Mul", self._add("Mod", x, self._numbers(form.period), fmod=1), scales)
            x = self._on_circles(x, form.waves)
            z = on_circles(np.fmod(z, form.period) * form.inverse_scale, form.waves).astype(self._inside)
        norms = self._add("ReduceSumSquare", x, self._constant(_COLUMNS), keepdims=1)
        columns = self._numbers(np.vstack([-2.0 * z.T, np.ones(len(z))]) * factor, "scaled vectors")
        constants = self._numbers(np.sum(z.astype(np.float64) ** 2, axis=1) * factor, "their norms")
        return self._add("Gemm", self._add("Concat", x, norms, axis=1), columns, constants)

    def _on_circles(self, angles: str, waves: FloatArray) -> str:
        """As the function of that name."""
        angles = self._times(angles, 2.0)
        circles = self._add("Concat", self._add("Cos", angles), self._add("Sin", angles), axis=1)
        return self._add("Mul", circles, self._numbers(np.tile(waves / 2.0, 2)))

    def _label(self, values: str, decision: OneVsRest | OneVsOne) -> Any:
        classes = decision.classes.astype(object) if decision.classes.dtype.kind == "U" else decision.classes
        self._tensors.append(self._onnx.numpy_helper.from_array(classes, "classes"))
        self._add("Gather", "classes", self._class_index(values, decision), output="label")
        return self._declared("label", classes.dtype)

    def _class_index(self, values: str, decision: OneVsRest | OneVsOne) -> str:
        if decision.rule == "largest":
            return self._add("ArgMax", values, axis=1, keepdims=0)  # the first of equal ones
        positive = self._add("Greater", values, self._numbers(0.0))
        if decision.rule == "threshold":
            return self._add("Squeeze", self._cast(positive, np.int64), self._constant(_COLUMNS))
        first, second = np.triu_indices(len(decision.classes), 1)
        # Each pair votes for its first class where it is positive, else for its second.
        unit = np.eye(len(decision.classes))
        votes = self._constant((unit[first] - unit[second]).astype(np.float32))
        without = self._constant(np.sum(unit[second], axis=0).astype(np.float32))
        total = self._add("Gemm", self._cast(positive, np.float32), votes, without)
        return self._add("ArgMax", total, axis=1, keepdims=0)

    def _add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """A node, its result named ``output`` or by itself."""
        key = operator, inputs, *attributes.items()
        if output or key not in self._names:
            self._names[key] = output or f"{operator.lower()}_{len(self._nodes)}"
            self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [self._names[key]], **attributes))
        return self._names[key]

    def _constant(self, array: AnyArray) -> str:
        array = np.array(array, order="C")
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._names:
            self._names[key] = f"constant_{len(self._tensors)}"
            self._tensors.append(self._onnx.numpy_helper.from_array(array, self._names[key]))
        return self._names[key]

    def _numbers(self, values: Any, what: str = "parameters of the kernel") -> str:
        """A number, or an array, in the dtype of the arithmetic."""
        return self._constant(in_dtype(values, self._inside, what))

    def _cast(self, values: str, dtype: Any) -> str:
        return self._add("Cast", values, to=self._type_code(np.dtype(dtype)))

    def _declared(self, name: str, dtype: np.dtype[Any], *widths: int) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, self._type_code(dtype), ["n", *widths])

    def _type_code(self, dtype: np.dtype[Any]) -> int:
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(dtype))  # of Python objects, a string's

    def _times(self, values: str, factor: float) -> str:
        return values if factor == 1.0 else self._add("Mul", values, self._numbers(factor))

    def _product(self, factors: list[str]) -> str:
        return reduce(partial(self._add, "Mul"), factors)

    def _power(self, base: str, power: float) -> str:
        """A power, by repeated squares where that is possible: ``Pow`` is slow."""
        if not is_product(power):
            return self._add("Pow", base, self._numbers(power))
        return self._product(factors_of_power(base, int(power), lambda each: self._add("Mul", each, each)))

    def _polynomial(self, base: str, coefficients: tuple[float, ...]) -> str:
        value = self._numbers(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self._add("Add", self._add("Mul", base, value), self._numbers(coefficient))
        return value


def _float_type(dtype: Any, argument: str) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(object if dtype is None else dtype)
    except TypeError:
        found = np.dtype(object)
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"{argument} must be float32 or float64, got {dtype!r}.")
    return found
