"""Nodes and constants of an ONNX graph in the making."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mercer._typing import AnyArray
from mercer.kernels.closed_form import is_product
from mercer.persistence.rounding import in_dtype

__all__ = ["Nodes", "type_code"]


class Nodes:
    """Elementwise algebra on named tensors; methods return the name of what they compute.

    Attributes
    ----------
    nodes, tensors : list
        What ``onnx.helper.make_graph`` takes. Equal constants are stored once.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self._dtype = dtype
        self._constants: dict[tuple[Any, ...], str] = {}

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """A node, its result named ``output`` or by itself."""
        from onnx import helper

        output = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def constant(self, array: AnyArray) -> str:
        """An array of numbers as it is."""
        from onnx import numpy_helper

        array = np.array(array, order="C")
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = f"constant_{len(self._constants)}"
            self.tensors.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def numbers(self, values: Any, what: str = "parameters of the kernel") -> str:
        """A number, or an array, in the dtype of the arithmetic."""
        return self.constant(in_dtype(values, self._dtype, what))

    def index(self, *values: int) -> str:
        """A list of integers."""
        return self.constant(np.array(values, dtype=np.int64))

    def cast(self, values: str, dtype: Any) -> str:
        """The values in another dtype."""
        return self.add("Cast", values, to=type_code(np.dtype(dtype)))

    def times(self, values: str, factor: float) -> str:
        """A multiple."""
        return values if factor == 1.0 else self.add("Mul", values, self.numbers(factor))

    def product(self, factors: Sequence[str]) -> str:
        """A product of one or more."""
        result = factors[0]
        for factor in factors[1:]:
            result = self.add("Mul", result, factor)
        return result

    def power(self, base: str, power: float) -> str:
        """A power, by repeated squares where that is possible: ``Pow`` is slow."""
        if not is_product(power):
            return self.add("Pow", base, self.numbers(power))
        factors, square, remaining = [], base, int(power)
        while remaining:
            if remaining & 1:
                factors.append(square)
            remaining >>= 1
            if remaining:
                square = self.add("Mul", square, square)
        return self.product(factors)

    def polynomial(self, base: str, coefficients: Sequence[float]) -> str:
        """A polynomial, the constant term first."""
        value = self.numbers(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self.add("Add", self.add("Mul", base, value), self.numbers(coefficient))
        return value


def type_code(dtype: np.dtype[Any]) -> int:
    """ONNX's number of a dtype."""
    from onnx import TensorProto, helper

    return TensorProto.STRING if dtype.kind == "U" else helper.np_dtype_to_tensor_dtype(dtype)
