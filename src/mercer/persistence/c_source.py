"""Models as C99 source: one header, nothing else."""

import re
import textwrap
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.model import OneVsOne, OneVsRest
from mercer.persistence.c_kernels import BLOCK, Dialect, KernelWriter, enclosed, loop
from mercer.persistence.exported import Exported, read_model, warn_of_rounding


def to_c(
    model: Any,
    *,
    name: str = "model",
    dtype: Literal["float", "double"] = "float",
    path: str | PathLike[str] | None = None,
) -> str:
    """Write a model as one C99 header, for machines that have only a C compiler.

    No memory is allocated and no state is kept, so that the functions may be called from anywhere. Of the C library
    only ``expf``, ``sqrtf`` or ``powf`` (``exp``, ``sqrt``, ``pow``) are used. The header is valid C++, too.

    Cost of a call: m kernel values of d operations each. Memory: the vectors and their coefficients as constants; on
    the stack the outputs and a few numbers more.

    Parameters
    ----------
    model : KernelExpansion or fitted model with ``expansion_``
    name : str, default="model"
        Prefix of the names of all functions.
    dtype : {"float", "double"}, default="float"
        Type of inputs, outputs, constants and arithmetic.
    path : path, optional
        Where to write the source, too.

    Returns
    -------
    str
        Source with ``void <name>_predict(const float *x, float *out)``; or, for a classifier (a model with
        ``classes_``), ``void <name>_decision(const float *x, float *out)``, ``int <name>_predict(const float *x)``, the
        index of the class, and ``<name>_label(int index)``, the class itself, an integer, a number or a string. The
        constants ``<name>_n_features``, ``<name>_n_outputs`` and ``<name>_n_classes`` are the lengths.

    Warns
    -----
    UserWarning
        If arithmetic in float, tried on the model's vectors, is wrong by more than 1e-3 of the function's size.

    Raises
    ------
    TypeError
        For a kernel without a formula (``Function``, ``Precomputed``), or what is not a model.

    See Also
    --------
    mercer.persistence.to_onnx : The same as a graph.

    Examples
    --------
    >>> from mercer import ExactRegressor
    >>> from mercer.persistence import to_c
    >>> model = ExactRegressor(noise=0.1).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])
    >>> source = to_c(model, name="bump")
    >>> [line for line in source.splitlines() if line.startswith("static")]
    ['static inline void bump_predict(const float *x, float *out) {']
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*", name):
        raise ValueError(
            f"name must be an identifier of C and C++: ASCII letters, digits, single underscores within; got {name!r}."
        )
    if dtype not in ("float", "double"):
        raise ValueError(f"dtype must be 'float' or 'double', got {dtype!r}.")
    exported = read_model(model)
    if dtype == "float":
        warn_of_rounding(exported, arithmetic=np.float32, products=False, remedy="Pass dtype='double'.")
    source = _Header(exported, name, Dialect(dtype)).source()
    if path is not None:
        Path(path).write_text(source, encoding="ascii", newline="\n")
    return source


class _Header:
    def __init__(self, model: Exported, name: str, dialect: Dialect) -> None:
        self._model, self._name, self._dialect, self._type = model, name, dialect, dialect.type_name
        mapping, width = model.mapping, model.points.shape[1]
        self._n_features, self._n_outputs = width if mapping is None else len(mapping.centre), len(model.intercept)
        self._kernel = KernelWriter(dialect, width)
        self._statements, factor = self._kernel.write(model.form)
        # (blocks, d, BLOCK) and (blocks, p, BLOCK); vectors that fill the last block up have coefficients of zero
        self._tables = {
            "vectors": _blocks(model.points, fill="edge"),
            "coefficients": _blocks(model.coefficients * factor, fill="constant"),
            "intercept": model.intercept,
        } | self._kernel.tables
        if mapping is not None:
            self._tables |= {"centre": mapping.centre, "map": mapping.matrix.T}

    def source(self) -> str:
        guard = f"MERCER_{self._name}_H"
        sizes, functions = {"n_features": self._n_features, "n_outputs": self._n_outputs}, [self._values()]
        decision = self._model.decision
        if decision is not None:
            sizes["n_classes"] = len(decision.classes)
            functions += [self._predict(decision), self._label(decision.classes)]
        constants = ", ".join(f"{self._name}_{key} = {value}" for key, value in sizes.items())
        parts = [
            self._comment(),
            f"#ifndef {guard}\n#define {guard}\n\n#include <math.h>\n#include <stddef.h>{_FAST_MATH}",
            f"enum {{ {constants} }};",
            *("\n".join(lines) for lines in functions),
            f"#endif /* {guard} */\n",
        ]
        return "\n\n".join(parts)

    def _values(self) -> list[str]:
        kind, p, d = self._type, self._n_outputs, self._model.points.shape[1]
        add = [
            f"{kind} part = w[o * {BLOCK}] * k0[0];",
            *loop("j", BLOCK, [f"part += w[o * {BLOCK} + j] * k0[j];"], start=1),
            "sum[o] += part;",
        ]
        block = [
            f"const {kind} *z = vectors + block * {d * BLOCK};",
            f"const {kind} *w = coefficients + block * {p * BLOCK};",
            f"{kind} {', '.join(f'k{i}[{BLOCK}]' for i in range(self._kernel.n_arrays))};",
            *self._statements,
            *loop("o", p, add),
        ]
        body = [
            *(line for name, values in self._tables.items() for line in self._table(name, values)),
            *self._nan_guard(),
            *self._mapped(),
            f"{kind} sum[{p}];",
            *loop("o", p, ["sum[o] = intercept[o];"]),
            *loop("block", len(self._tables["vectors"]), block),
            *loop("o", p, ["out[o] = sum[o];"]),
        ]
        name = f"{self._name}_{'predict' if self._model.decision is None else 'decision'}"
        return enclosed(f"static inline void {name}(const {kind} *{self._input}, {kind} *out) {{", body)

    @property
    def _input(self) -> str:
        """Name of the inputs: x, unless that is what they are mapped to."""
        return "x" if self._model.mapping is None else "inputs"

    def _mapped(self) -> list[str]:
        """x_j = Σ_i A_ij (inputs_i - centre_i), where there is a metric."""
        if self._model.mapping is None:
            return []
        n, d = self._model.points.shape[1], self._n_features
        add = [f"x[j] += map[j * {d} + i] * (inputs[i] - centre[i]);"]
        body = [f"x[j] = {self._dialect.number(0.0)};", *loop("i", d, add)]
        return [f"{self._type} x[{n}];", *loop("j", n, body)]

    def _nan_guard(self) -> list[str]:
        """Where the compiler was told that there is no NaN (-ffast-math), tell by the bits, and hand it on."""
        bits = 8 * self._dialect.dtype.itemsize
        infinity = int(np.array(np.inf, self._dialect.dtype).view(f"u{bits // 8}"))
        is_nan = f"(input.bits & UINT{bits}_C({(1 << (bits - 1)) - 1:#x})) > UINT{bits}_C({infinity:#x})"
        check = [
            f"union {{ {self._type} number; uint{bits}_t bits; }} input;",
            f"input.number = {self._input}[i];",
            *enclosed(f"if ({is_nan}) {{", [*loop("o", self._n_outputs, [f"out[o] = {self._input}[i];"]), "return;"]),
        ]
        return ["#ifdef MERCER_NO_NAN", *loop("i", self._n_features, check), "#endif"]

    def _table(self, name: str, values: FloatArray) -> list[str]:
        numbers = self._dialect.numbers(values)
        rows = [", ".join(numbers[start : start + BLOCK]) for start in range(0, len(numbers), BLOCK)]
        return _array(f"const {self._type} {name}[{len(numbers)}]", rows)

    def _predict(self, decision: OneVsRest | OneVsOne) -> list[str]:
        n_classes, zero = len(decision.classes), self._dialect.number(0.0)
        body = [f"{self._type} values[{self._n_outputs}];", f"{self._name}_decision(x, values);"]
        if decision.rule == "threshold":
            body.append(f"return values[0] > {zero} ? 1 : 0;")
        else:
            counted = "values"
            if decision.rule == "pairs":
                counted, vote = "votes", [f"++votes[values[pair++] > {zero} ? first : second];"]
                pairs = loop("second", n_classes, vote, start="first + 1", kind="int")
                body += [f"int votes[{n_classes}] = {{0}};", "size_t pair = 0;"]
                body += loop("first", n_classes, pairs, kind="int")
            larger = enclosed(f"if ({counted}[i] > {counted}[best]) {{", ["best = i;"])
            body += ["int best = 0;", *loop("i", n_classes, larger, start=1, kind="int"), "return best;"]
        return enclosed(f"static inline int {self._name}_predict(const {self._type} *x) {{", body)

    def _label(self, classes: AnyArray) -> list[str]:
        kind, labels = _labels(classes)
        element = "const char *const " if classes.dtype.kind == "U" else f"const {kind}"
        body = [*_array(f"{element}labels[{len(labels)}]", labels), "return labels[index];"]
        return enclosed(f"static inline {kind}{self._name}_label(int index) {{", body)

    def _comment(self) -> str:
        model, functions = self._model, " and ".join(sorted(self._kernel.functions))
        size = sum(table.size for table in self._tables.values()) * self._dialect.dtype.itemsize
        outputs = f"{self._n_outputs} output{'s' if self._n_outputs > 1 else ''}"
        needs = f"Calls {functions}: link with -lm." if functions else "Calls nothing."
        kernel = model.kernel.encode("ascii", "replace").decode().replace("*/", "* /")
        paragraphs = [
            f"{self._name}: a {model.kind} as C99 source, written by mercer {version('mercer')}.",
            f"{len(model.points)} vectors, {self._n_features} features, {outputs}; {size} bytes of constants.",
            f"{needs} Allocates nothing. Inputs are not checked: NaN comes out as NaN.",
            f"Kernel: {kernel}",
            *([] if model.decision is None else [f"Decision values: {_DECISIONS[model.decision.rule]}."]),
        ]
        lines = [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, 100)]
        return "/*\n" + "\n".join(f" * {line}".rstrip() for line in [*lines, "", *self._example()]) + "\n */"

    def _example(self) -> list[str]:
        name, kind = self._name, self._type
        if self._model.decision is None:
            return [f"    {kind} x[{name}_n_features], y[{name}_n_outputs];", f"    {name}_predict(x, y);"]
        kind_of_label, _ = _labels(self._model.decision.classes)
        return [
            f"    {kind} x[{name}_n_features], values[{name}_n_outputs];",
            f"    {kind_of_label}label = {name}_label({name}_predict(x));",
            f"    {name}_decision(x, values);",
        ]


_INT, _LONG = 2**15 - 1, 2**31 - 1  # what the C standard promises of int and long
# GCC and Clang define the first and the last, which is 0 or 1; Visual C the second.
_FAST_MATH = """
#if defined(__FAST_MATH__) || defined(_M_FP_FAST) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#define MERCER_NO_NAN
#include <stdint.h>
#endif"""
_DECISIONS = {
    "threshold": "above zero for the second class",
    "largest": "one per class, the largest (the first of equal ones) decides",
    "pairs": "one per pair of classes (0, 1), (0, 2), ..., (1, 2), ..., above zero a vote for the first of the pair",
}


def _array(declaration: str, rows: list[str]) -> list[str]:
    return enclosed(f"static {declaration} = {{", [*(f"{row}," for row in rows[:-1]), rows[-1]], "};")


def _blocks(columns: FloatArray, fill: Literal["edge", "constant"]) -> FloatArray:
    """Rows (m, c) in blocks (blocks, c, BLOCK), the last filled up."""
    padded = np.pad(columns, ((0, -len(columns) % BLOCK), (0, 0)), mode=fill)
    return np.asarray(padded.reshape(-1, BLOCK, columns.shape[1]).swapaxes(1, 2))


def _labels(classes: AnyArray) -> tuple[str, list[str]]:
    """C's type of the classes, as it stands before a name, and their constants."""
    values = classes.tolist()
    if classes.dtype.kind == "U":
        return "const char *", [_string(value) for value in values]
    if classes.dtype.kind == "f":
        return "double ", [Dialect("double").number(value) for value in values]
    largest = max(abs(value) for value in values)
    kind, suffix = ("int ", "") if largest <= _INT else ("long ", "L") if largest <= _LONG else ("long long ", "LL")
    return kind, [f"{value}{suffix}" for value in values]


def _string(text: str) -> str:
    """A string constant; what is not plain ASCII, and what C gives a meaning, as octal escapes of UTF-8."""
    plain = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in text.encode()]
    return f'"{"".join(plain)}"'
