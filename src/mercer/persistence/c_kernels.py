"""Kernels as C statements.

The vectors come in blocks of ``BLOCK``, so that loops over them have a constant length, which compilers turn into
vector instructions. The statements fill an array of that length with kernel values between x and the block z, which is
stored feature by feature. Distances are sums of squared differences: nothing cancels. Comparisons are written so that
NaN among the inputs comes out as NaN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.kernels.closed_form import Form, OfDistance, OfInnerProduct, is_product
from mercer.kernels.profiles import CUTOFF
from mercer.persistence.exported import factors_of_power, in_dtype

BLOCK = 8


@dataclass(frozen=True)
class Dialect:
    """Constants of one of C's types, ``float`` or ``double``."""

    type_name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name of the type."""
        return np.dtype(np.float32 if self.type_name == "float" else np.float64)

    def number(self, value: float) -> str:
        """A constant that reads back as this value exactly; subnormal ones, which are slow, become zero."""
        return self.numbers(np.array([value], dtype=np.float64))[0]

    def numbers(self, values: FloatArray) -> list[str]:
        """Constants of all values, in C's order."""
        exact = in_dtype(np.ravel(values), self.dtype, "numbers")
        exact = np.where(np.abs(exact) < np.finfo(self.dtype).tiny, 0.0, exact)
        digits, suffix = (9, "f") if self.type_name == "float" else (17, "")
        texts = [f"{value:.{digits}g}" for value in exact.tolist()]
        return [f"{text if '.' in text or 'e' in text else f'{text}.0'}{suffix}" for text in texts]


class KernelWriter:
    """Statements of a kernel, and what they need."""

    def __init__(self, dialect: Dialect, n_features: int) -> None:
        self._dtype, self._type, self._number = dialect.dtype, dialect.type_name, dialect.number
        self._n_features = n_features
        self.tables: dict[str, FloatArray] = {}  # constant arrays that the statements read
        self.functions: set[str] = set()  # that they call
        self.n_arrays = 0  # k0, k1, ... that they write

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
            return [*left, *right, *_each([f"{mine} *= {other};"])], left_factor * right_factor
        joined = f"{mine} = {self._times(mine, left_factor)} + {self._times(other, right_factor)};"
        return [*left, *right, *_each([joined])], 1.0

    def _of_distance(self, form: OfDistance, k: str) -> list[str]:
        scaled, scale = f"x[i] - z[i * {BLOCK} + j]", self._by_feature("scales", form.inverse_scale)
        if form.waves is not None:
            period, wave = self._by_feature("periods", form.period), self._by_feature("waves", form.waves)
            angle = f"{self._call('fmod', f'{scaled}, {period}')} * {scale}"
            scaled = f"{self._call('sin', angle)} * {wave}"
        elif scale != self._number(1.0):
            scaled = f"({scaled}) * {scale}"
        squares = [f"const {self._type} t = {scaled};", f"{k}[j] += t * t;"]
        return [*self._accumulate(k, squares), *_each(self._profile(form, k))]

    def _by_feature(self, name: str, values: FloatArray) -> str:
        """A number, or where features differ an entry of a table."""
        if not np.any(values != values[0]):
            return self._number(values[0])
        table = f"{name}{len(self.tables)}"
        self.tables[table] = values
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
        if form.decay == "rational":
            lines.append(f"const {self._type} q = {self._number(1.0)} / ({self._number(1.0)} + {k}[j]);")
            zero_if.append(f"q < {self._number(CUTOFF[self._dtype] ** (1.0 / form.shape))}")
            power, expression = self._power("q", form.shape)
            lines += power
            factors.append(expression)
        elif form.decay != "none":
            exponent = f"{self._number(-0.5)} * {k}[j]" if form.decay == "squared" else "-r"
            lines.append(f"const {self._type} e = {exponent};")
            # Exponentials below this count as zero, as they do in Python: subnormal numbers are slow.
            zero_if.append(f"e < {self._number(np.log(CUTOFF[self._dtype]))}")
            factors.append(self._call("exp", "e"))
        return [*lines, f"{k}[j] = {' || '.join(zero_if)} ? {self._number(0.0)} : {' * '.join(factors)};"]

    def _of_inner_product(self, form: OfInnerProduct, k: str) -> list[str]:
        lines = self._accumulate(k, [f"{k}[j] += x[i] * z[i * {BLOCK} + j];"])
        base = self._times(f"{k}[j]", form.scale)
        if form.offset != 0.0:
            base = f"{base} + {self._number(form.offset)}"
        if form.degree == 1 and base == f"{k}[j]":
            return lines
        power, expression = self._power("b", form.degree)
        return [*lines, *_each([f"const {self._type} b = {base};", *power, f"{k}[j] = {expression};"])]

    def _accumulate(self, k: str, body: list[str]) -> list[str]:
        return [*_each([f"{k}[j] = {self._number(0.0)};"]), *loop("i", self._n_features, _each(body))]

    def _power(self, base: str, power: float) -> tuple[list[str], str]:
        """Squares of squares as statements, and the power as a product of them."""
        if not is_product(power):
            return [], self._call("pow", f"{base}, {self._number(power)}")
        lines: list[str] = []

        def square(name: str) -> str:
            lines.append(f"const {self._type} {base}{2 ** (len(lines) + 1)} = {name} * {name};")
            return f"{base}{2 ** len(lines)}"

        factors = factors_of_power(base, int(power), square)
        return lines, " * ".join(factors)

    def _polynomial(self, coefficients: tuple[float, ...]) -> str:
        text = self._number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            term = "r" if text == self._number(1.0) else f"r * {text}"
            text = f"({self._number(coefficient)} + {term})"
        return text

    def _times(self, value: str, factor: float) -> str:
        return value if factor == 1.0 else f"{self._number(factor)} * {value}"

    def _call(self, name: str, arguments: str) -> str:
        function = f"{name}f" if self._type == "float" else name
        self.functions.add(function)
        return f"{function}({arguments})"


def loop(index: str, stop: int, body: list[str], *, start: int | str = 0, kind: str = "size_t") -> list[str]:
    """Lines of a loop over an index."""
    return enclosed(f"for ({kind} {index} = {start}; {index} < {stop}; ++{index}) {{", body)


def enclosed(head: str, body: list[str], end: str = "}") -> list[str]:
    """Lines of a block, indented but for directives to the preprocessor."""
    return [head, *(line if line.startswith("#") else f"    {line}" for line in body), end]


def _each(body: list[str]) -> list[str]:
    return loop("j", BLOCK, body)
