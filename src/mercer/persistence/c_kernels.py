"""Kernels as C statements.

The vectors come in blocks of ``BLOCK``, so that loops over them have a constant length, which compilers turn into
vector instructions. The statements fill an array of that length with kernel values between x and the block z, which is
stored feature by feature. Distances are sums of squared differences: nothing cancels. Comparisons are written so that
NaN among the inputs comes out as NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.kernels.closed_form import Form, OfDistance, OfInnerProduct, is_product
from mercer.kernels.profiles import CUTOFF
from mercer.persistence.rounding import in_dtype

__all__ = ["BLOCK", "Dialect", "KernelWriter"]

BLOCK = 8


@dataclass(frozen=True)
class Dialect:
    """Numbers and functions of one of C's types, ``float`` or ``double``."""

    type_name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name of the type."""
        return np.dtype(np.float32 if self.type_name == "float" else np.float64)

    def number(self, value: float) -> str:
        """A constant that reads back as this value exactly; subnormal ones, which are slow, become zero."""
        return self.numbers(np.array([value]))[0]

    def numbers(self, values: FloatArray) -> list[str]:
        """Constants of all values, in C's order."""
        exact = in_dtype(np.ravel(values), self.dtype, "numbers")
        exact = np.where(np.abs(exact) < np.finfo(self.dtype).tiny, 0.0, exact)
        digits, suffix = (9, "f") if self.type_name == "float" else (17, "")
        texts = [f"{value:.{digits}g}" for value in exact.tolist()]
        return [f"{text if '.' in text or 'e' in text else f'{text}.0'}{suffix}" for text in texts]

    def function(self, name: str) -> str:
        """Name of a function of <math.h>."""
        return f"{name}f" if self.type_name == "float" else name

    @property
    def lowest(self) -> float:
        """Logarithm below which exponentials count as zero, as they do in Python: subnormal numbers are slow."""
        return float(np.log(CUTOFF[self.dtype]))


@dataclass
class KernelWriter:
    """Statements of a kernel.

    Attributes
    ----------
    tables : dict
        Constant arrays that the statements read.
    functions : set
        Functions that they call.
    n_arrays : int
        They write k0, k1, ...: how many there are to declare.
    """

    dialect: Dialect
    n_features: int
    tables: dict[str, FloatArray] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    n_arrays: int = 0

    def write(self, form: Form, target: int = 0) -> tuple[list[str], float]:
        """Statements that fill k<target>, and the number that its values are to be multiplied by."""
        self.n_arrays = max(self.n_arrays, target + 1)
        if isinstance(form, OfDistance):
            return self._of_distance(form, f"k{target}"), form.amplitude
        if isinstance(form, OfInnerProduct):
            return self._of_inner_product(form, f"k{target}"), form.amplitude
        left, left_factor = self.write(form.left, target)
        right, right_factor = self.write(form.right, target + 1)
        mine, other = f"k{target}[j]", f"k{target + 1}[j]"
        if form.operation == "product":
            return [*left, *right, *_loop([f"{mine} *= {other};"])], left_factor * right_factor
        joined = f"{mine} = {self._times(mine, left_factor)} + {self._times(other, right_factor)};"
        return [*left, *right, *_loop([joined])], 1.0

    def _of_distance(self, form: OfDistance, k: str) -> list[str]:
        difference = f"x[i] - z[i * {BLOCK} + j]"
        scale = self._scale(form.inverse_scale)
        scaled = f"({difference}) * {scale}" if scale else difference
        squares = [f"const {self._type} t = {scaled};", f"{k}[j] += t * t;"]
        return [*self._accumulate(k, squares), *_loop(self._profile(form, k))]

    def _scale(self, inverse_scale: FloatArray) -> str:
        """The factor of a difference: one number, nothing if that is 1, or an entry of a table."""
        if np.all(inverse_scale == inverse_scale[0]):
            return "" if inverse_scale[0] == 1.0 else self._number(inverse_scale[0])
        table = f"scales{len(self.tables)}"
        self.tables[table] = inverse_scale
        return f"{table}[i]"

    def _profile(self, form: OfDistance, k: str) -> list[str]:
        """Replace r² by the kernel's value."""
        lines, factors, zero_if = [], [], []
        if form.needs_root:
            lines.append(f"const {self._type} r = {self._call('sqrt', f'{k}[j]')};")
        if np.isfinite(form.radius):
            lines.append(f"const {self._type} b = {self._number(1.0)} - {self._times('r', 1.0 / form.radius)};")
            zero_if.append(f"b <= {self._number(0.0)}")
            power, expression = self._power("b", form.power)
            lines += power
            factors.append(expression)
        if len(form.polynomial) > 1:
            factors.append(self._polynomial(form.polynomial))
        if form.decay != "none":
            exponent = f"{self._number(-0.5)} * {k}[j]" if form.decay == "squared" else "-r"
            lines.append(f"const {self._type} e = {exponent};")
            zero_if.append(f"e < {self._number(self.dialect.lowest)}")
            factors.append(self._call("exp", "e"))
        value = " * ".join(factors)
        return [*lines, f"{k}[j] = {' || '.join(zero_if)} ? {self._number(0.0)} : {value};"]

    def _of_inner_product(self, form: OfInnerProduct, k: str) -> list[str]:
        lines = self._accumulate(k, [f"{k}[j] += x[i] * z[i * {BLOCK} + j];"])
        base = self._times(f"{k}[j]", form.scale)
        if form.offset != 0.0:
            base = f"{base} + {self._number(form.offset)}"
        if form.degree == 1 and base == f"{k}[j]":
            return lines
        power, expression = self._power("b", form.degree)
        return [*lines, *_loop([f"const {self._type} b = {base};", *power, f"{k}[j] = {expression};"])]

    def _accumulate(self, k: str, body: list[str]) -> list[str]:
        features = f"for (size_t i = 0; i < {self.n_features}; ++i) {{"
        return [*_loop([f"{k}[j] = {self._number(0.0)};"]), features, *_indented(_loop(body)), "}"]

    def _power(self, base: str, power: float) -> tuple[list[str], str]:
        """Squares of squares as statements, and the power as a product of them."""
        if not is_product(power):
            return [], self._call("pow", f"{base}, {self._number(power)}")
        lines, used, name, remaining, exponent = [], [], base, int(power), 1
        while remaining:
            if remaining & 1:
                used.append(name)
            remaining >>= 1
            exponent *= 2
            if remaining:
                lines.append(f"const {self._type} {base}{exponent} = {name} * {name};")
                name = f"{base}{exponent}"
        return lines, " * ".join(used)

    def _polynomial(self, coefficients: tuple[float, ...]) -> str:
        text = self._number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            term = "r" if text == self._number(1.0) else f"r * {text}"
            text = f"({self._number(coefficient)} + {term})"
        return text

    def _times(self, value: str, factor: float) -> str:
        return value if factor == 1.0 else f"{self._number(factor)} * {value}"

    def _call(self, name: str, arguments: str) -> str:
        function = self.dialect.function(name)
        self.functions.add(function)
        return f"{function}({arguments})"

    def _number(self, value: float) -> str:
        return self.dialect.number(float(value))

    @property
    def _type(self) -> str:
        return self.dialect.type_name


def _loop(body: list[str]) -> list[str]:
    return [f"for (size_t j = 0; j < {BLOCK}; ++j) {{", *_indented(body), "}"]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
