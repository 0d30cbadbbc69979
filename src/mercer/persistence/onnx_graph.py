r"""Models as ONNX graphs.

A stationary kernel is one matrix product and some elementwise nodes. With :math:`\tilde x = (x - c)\cdot s`,

.. math:: |\tilde x - \tilde z|^2 = [\tilde x,\ |\tilde x|^2]\cdot[-2\tilde z,\ 1] + |\tilde z|^2,

so that the norms ride along in the product; c, the median of the vectors, keeps the cancellation small. Only standard
operators are used, all of them in opset 18 or before. NaN among the inputs comes out as NaN.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.persistence.closed_form import Form, OfDistance, OfInnerProduct, is_product
from mercer.persistence.exported import Exported, read_model
from mercer.persistence.rounding import centre, in_dtype, warn_of_rounding

if TYPE_CHECKING:
    import onnx

__all__ = ["to_onnx"]

# The newest that the oldest supported onnxruntime (1.20) runs, with the file format of its time.
_OPSET, _IR_VERSION = 21, 10
# Length scales at which inputs stop, lest their squares overflow and ∞ - ∞ be NaN: kernels are zero long before.
_FARTHEST: dict[np.dtype[Any], float] = {np.dtype(np.float32): 1e17, np.dtype(np.float64): 1e150}
_REMEDIES: dict[np.dtype[Any], str] = {
    np.dtype(np.float32): "Pass arithmetic=np.float64, which leaves inputs and outputs float32, or dtype=np.float64.",
    np.dtype(np.float64): "Pass dtype=np.float64.",
}


def to_onnx(
    model: Any,
    *,
    dtype: Any = np.float32,
    arithmetic: Any = None,
    path: str | PathLike[str] | None = None,
    name: str = "mercer",
) -> onnx.ModelProto:
    """Write a model as an ONNX graph.

    Cost of a run: n·m kernel values, and memory for some matrices of that size; batch long tables.

    Parameters
    ----------
    model : KernelExpansion or fitted model with ``expansion_``
        With ``classes_`` it is a classifier: see Returns.
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
        also for targets of one dimension. A classifier has ``label`` (n,), of int64, double or string as its classes
        are, and ``decision`` (n, outputs): one for two classes, else one per class, or one per pair of classes in
        libsvm's order. The variance is not exported.

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
    _need_onnx()
    outside = _float_type(dtype, "dtype")
    inside = outside if arithmetic is None else _float_type(arithmetic, "arithmetic")
    exported = read_model(model)
    if outside == np.float32:
        warn_of_rounding(exported, arithmetic=inside, products=True, remedy=_REMEDIES[inside])
    proto = _Graph(exported, outside, inside).build(name)
    if path is not None:
        import onnx

        onnx.save(proto, fspath(path))
    return proto


class _Graph:
    """Nodes and constants in the making; methods return the names of what they compute."""

    def __init__(self, model: Exported, outside: np.dtype[Any], inside: np.dtype[Any]) -> None:
        self._model, self._outside, self._inside = model, outside, inside
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}  # by value: equal ones are stored once
        self._tensors: list[Any] = []
        self._shared: dict[bytes, tuple[str, FloatArray]] = {}

    def build(self, name: str) -> onnx.ModelProto:
        from onnx import checker, helper

        model = self._model
        self._x = self._cast("X", self._inside) if self._inside != self._outside else "X"
        kernel, factor = self._kernel(model.form)
        name_of_values = "prediction" if model.classes is None else "decision"
        values = self._sum_up(kernel, factor, name_of_values)
        outputs = [helper.make_tensor_value_info(name_of_values, _code(self._outside), ["n", model.n_outputs])]
        if model.classes is not None:
            outputs.insert(0, self._label(values, model.classes))
        inputs = [helper.make_tensor_value_info("X", _code(self._outside), ["n", model.points.shape[1]])]
        graph = helper.make_graph(self._nodes, name, inputs, outputs, self._tensors)
        proto = helper.make_model(
            graph, producer_name="mercer", producer_version=version("mercer"), ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
        )  # fmt: skip
        helper.set_model_props(proto, _properties(model))
        checker.check_model(proto, full_check=True)
        return proto

    # ------------------------------------------------------------------------------------------------ kernels

    def _kernel(self, form: Form) -> tuple[str, float]:
        """A node of kernel values, and the number that they are to be multiplied by."""
        if isinstance(form, OfDistance):
            return self._of_distance(form), form.amplitude
        if isinstance(form, OfInnerProduct):
            columns = in_dtype(form.scale * self._model.points.T, self._inside, "vectors")
            inner = self._node("Gemm", self._x, self._constant(columns), self._number(form.offset))
            return self._power(inner, form.degree), form.amplitude
        (left, left_factor), (right, right_factor) = self._kernel(form.left), self._kernel(form.right)
        if form.operation == "product":
            return self._node("Mul", left, right), left_factor * right_factor
        return self._node("Add", self._times(left, left_factor), self._times(right, right_factor)), 1.0

    def _of_distance(self, form: OfDistance) -> str:
        if not form.needs_root:
            return self._node("Exp", self._node("Min", self._squares(form, -0.5), self._number(0.0)))
        squares = self._node("Max", self._squares(form, 1.0), self._number(0.0))  # rounding may leave them negative
        distance = self._node("Sqrt", squares)
        factors = []
        if np.isfinite(form.radius):
            inside = self._node("Sub", self._number(1.0), self._times(distance, 1.0 / form.radius))
            factors.append(self._power(self._node("Max", inside, self._number(0.0)), form.power))
        if len(form.polynomial) > 1:
            factors.append(self._polynomial(distance, form.polynomial))
        if form.decay != "none":
            exponent = self._times(squares, -0.5) if form.decay == "squared" else self._node("Neg", distance)
            factors.append(self._node("Exp", exponent))
        return self._product(factors)

    def _squares(self, form: OfDistance, factor: float) -> str:
        """|x̃ - z̃|² times a factor that is a power of two, so that it rounds nothing."""
        folded, z = self._folded(form.inverse_scale)
        norms = np.sum(z.astype(np.float64) ** 2, axis=1)
        columns = np.vstack([-2.0 * z.T, np.ones(len(z))]) * factor
        product = (
            in_dtype(columns, self._inside, "scaled vectors"),
            in_dtype(norms * factor, self._inside, "their norms"),
        )
        return self._node("Gemm", folded, *(self._constant(array) for array in product))

    def _folded(self, inverse_scale: FloatArray) -> tuple[str, FloatArray]:
        """The node [x̃, |x̃|²], shared by kernels of the same length scales, and z̃."""
        key = inverse_scale.tobytes()
        if key not in self._shared:
            shift = centre(self._model.points, self._inside)
            z = in_dtype((self._model.points - shift) * inverse_scale, self._inside, "scaled vectors")
            scales = self._constant(in_dtype(inverse_scale, self._inside, "length scales"))
            x = self._node("Mul", self._node("Sub", self._x, self._constant(shift)), scales)
            farthest = _FARTHEST[self._inside]
            x = self._node("Clip", x, self._number(-farthest), self._number(farthest))
            norms = self._node("ReduceSumSquare", x, self._constant(np.array([1])), keepdims=1)
            self._shared[key] = self._node("Concat", x, norms, axis=1), z
        return self._shared[key]

    def _power(self, base: str, power: float) -> str:
        if not is_product(power):
            return self._node("Pow", base, self._number(power))
        factors, square, remaining = [], base, int(power)
        while remaining:
            if remaining & 1:
                factors.append(square)
            remaining >>= 1
            if remaining:
                square = self._node("Mul", square, square)
        return self._product(factors)

    def _polynomial(self, r: str, coefficients: Sequence[float]) -> str:
        value = self._number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self._node("Add", self._node("Mul", r, value), self._number(coefficient))
        return value

    # ---------------------------------------------------------------------------------------- after the kernel

    def _sum_up(self, kernel: str, factor: float, output: str) -> str:
        """The outputs, cast under that name; returns them as they were computed."""
        coefficients = in_dtype(self._model.coefficients * factor, self._inside, "coefficients")
        intercept = in_dtype(self._model.intercept, self._inside, "intercept")
        constants = self._constant(coefficients), self._constant(intercept)
        if self._inside == self._outside:
            return self._node("Gemm", kernel, *constants, output=output)
        values = self._node("Gemm", kernel, *constants)
        self._node("Cast", values, output=output, to=_code(self._outside))
        return values

    def _label(self, values: str, classes: AnyArray) -> Any:
        from onnx import helper

        table = helper.make_tensor(
            "classes", _code(classes.dtype), classes.shape,
            [label.encode() for label in classes.tolist()] if classes.dtype.kind == "U" else classes,
        )  # fmt: skip
        self._tensors.append(table)
        self._node("Gather", "classes", self._class_index(values, len(classes)), output="label")
        return helper.make_tensor_value_info("label", _code(classes.dtype), ["n"])

    def _class_index(self, values: str, n_classes: int) -> str:
        if self._model.rule == "largest":
            return self._node("ArgMax", values, axis=1, keepdims=0)  # the first of equal ones
        positive = self._node("Greater", values, self._number(0.0))
        if self._model.rule == "threshold":
            return self._node("Squeeze", self._cast(positive, np.dtype(np.int64)), self._constant(np.array([1])))
        first, second = np.triu_indices(n_classes, 1)
        # Each pair votes for its first class where it is positive, else for its second.
        unit = np.eye(n_classes)
        votes = self._constant((unit[first] - unit[second]).astype(np.float32))
        without = self._constant(np.sum(unit[second], axis=0).astype(np.float32))
        total = self._node("Gemm", self._cast(positive, np.dtype(np.float32)), votes, without)
        return self._node("ArgMax", total, axis=1, keepdims=0)

    # --------------------------------------------------------------------------------------- nodes, constants

    def _node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        from onnx import helper

        output = output or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def _constant(self, array: AnyArray) -> str:
        from onnx import numpy_helper

        array = np.ascontiguousarray(array)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = f"constant_{len(self._constants)}"
            self._tensors.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def _number(self, value: float) -> str:
        return self._constant(in_dtype(value, self._inside, "parameters of the kernel"))

    def _cast(self, values: str, dtype: np.dtype[Any]) -> str:
        return self._node("Cast", values, to=_code(dtype))

    def _times(self, values: str, factor: float) -> str:
        return values if factor == 1.0 else self._node("Mul", values, self._number(factor))

    def _product(self, factors: Sequence[str]) -> str:
        result = factors[0]
        for factor in factors[1:]:
            result = self._node("Mul", result, factor)
        return result


def _properties(model: Exported) -> dict[str, str]:
    properties = {"model": model.kind, "kernel": model.kernel, "n_vectors": str(len(model.points))}
    if model.classes is not None and model.rule is not None:
        properties |= {"classes": json.dumps(model.classes.tolist()), "decision_rule": model.rule}
    return properties


def _code(dtype: np.dtype[Any]) -> int:
    from onnx import TensorProto, helper

    return TensorProto.STRING if dtype.kind == "U" else helper.np_dtype_to_tensor_dtype(dtype)


def _float_type(dtype: Any, argument: str) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(object if dtype is None else dtype)
    except TypeError:
        found = np.dtype(object)
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        msg = f"{argument} must be float32 or float64, got {dtype!r}."
        raise ValueError(msg)
    return found


def _need_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        msg = "to_onnx needs the package onnx: pip install mercer[onnx]"
        raise ImportError(msg) from error
