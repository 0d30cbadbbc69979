"""C sources are compiled, all of a test module at once, and called."""

import ctypes
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification

from mercer import ExactClassifier, NystromRegressor
from mercer.kernels import Gaussian, Matern, Periodic, Polynomial, Wendland
from mercer.model import KernelExpansion
from mercer.persistence import to_c
from mercer.persistence.c_kernels import Dialect
from tests.export_cases import (
    CLASSIFIERS,
    FORMULAS,
    TOLERANCE,
    every_classifier,
    every_formula,
    expansion_of,
    expected_values,
    rows_of,
)
from tests.kernel_cases import is_stationary
from tests.strategies import examples

COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
COMPILER_CPP = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc, clang or $CC) was found")
needs_compiler_cpp = pytest.mark.skipif(COMPILER_CPP is None, reason="no C++ compiler (c++, g++ or $CXX) was found")

STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wsign-conversion", "-Wdouble-promotion"]
STRICT += ["-Wshadow", "-Wundef", "-Wfloat-equal", "-Wcast-qual"]
DTYPES = {"float": np.float32, "double": np.float64}
both = pytest.mark.parametrize("kind", ["float", "double"])


def compiled(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Library:
    """Headers in a folder, compiled into one library, with a loop over rows around each function."""

    def __init__(self, folder):
        self.folder, self._names, self._loops = folder, [], []

    def add(self, model, kind):
        """Write the header of a model; returns its name."""
        name = f"m{len(self._names)}"
        to_c(model, name=name, dtype=kind, path=self.folder / f"{name}.h")
        self._names.append(name)
        if hasattr(model, "classes_"):
            result = re.search(rf"static inline (.*?){name}_label", (self.folder / f"{name}.h").read_text())[1]
            self._loops += [
                f"{result} {name}_label_of(int index);\n"
                f"{result} {name}_label_of(int index) {{ return {name}_label(index); }}",
                f"int {name}_predict_of(const {kind} *x);\n"
                f"int {name}_predict_of(const {kind} *x) {{ return {name}_predict(x); }}",
            ]
        values = "decision" if hasattr(model, "classes_") else "predict"
        head = f"void {name}_rows(const {kind} *x, {kind} *out, size_t n)"
        self._loops.append(
            f"{head};\n{head} {{ for (size_t i = 0; i < n; ++i) "
            f"{name}_{values}(x + i * {name}_n_features, out + i * {name}_n_outputs); }}"
        )
        return name

    def compile(self, *options):
        """Two translation units with the same headers, included twice in one of them."""
        headers = "".join(f'#include "{name}.h"\n' for name in self._names)
        (self.folder / "loops.c").write_text(headers + headers + "\n".join(self._loops) + "\n")
        (self.folder / "other.c").write_text(f"{headers}\nint other(void);\nint other(void) {{ return 1; }}\n")
        flags = ["-std=c99", "-O2", *STRICT, "-Wmissing-prototypes", "-fPIC", *options]
        compiled([COMPILER, *flags, "-c", "loops.c", "other.c"], self.folder)
        # Linked without the options: -ffast-math would switch subnormal numbers off in the whole process.
        compiled([COMPILER, "-shared", "loops.o", "other.o", "-o", "library.so", "-lm"], self.folder)
        self._library = ctypes.CDLL(str(self.folder / "library.so"))
        return self

    def values(self, name, rows, n_outputs, kind):
        x = np.ascontiguousarray(rows, dtype=DTYPES[kind])
        out = np.full((len(x), n_outputs), np.nan, dtype=DTYPES[kind])
        function = getattr(self._library, f"{name}_rows")
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        function.restype = None
        function(x.ctypes.data, out.ctypes.data, len(x))
        return out

    def predict(self, name, rows, kind):
        x = np.ascontiguousarray(rows, dtype=DTYPES[kind])
        function = getattr(self._library, f"{name}_predict_of")
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
        return np.array([function(row.ctypes.data) for row in x])

    def labels(self, name, n_classes, restype):
        function = getattr(self._library, f"{name}_label_of")
        function.argtypes, function.restype = [ctypes.c_int], restype
        return [function(index) for index in range(n_classes)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Every kernel and every classifier in both types, in one library; names by case and type."""
    library = Library(tmp_path_factory.mktemp("c"))
    names = {}
    for kind in DTYPES:
        names |= {(case, kind): library.add(expansion_of(case), kind) for case in FORMULAS}
        names |= {(id(classifier), kind): library.add(classifier, kind) for classifier in CLASSIFIERS}
    return library.compile(), names


# ---------------------------------------------------------------------------------------------------- values


@needs_compiler
@both
@every_formula
def test_every_kernel_as_it_is_defined(shared, case, kind):
    library, names = shared
    expansion, rows = expansion_of(case), rows_of(case)
    expected, bound = expected_values(case, expansion, rows)
    found = library.values(names[case, kind], rows, 2, kind)
    assert np.all(np.abs(found - expected) <= TOLERANCE[DTYPES[kind]] * bound)


@needs_compiler
@settings(max_examples=examples(30))
@given(row=st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3))
def test_any_row(shared, row):
    library, names = shared
    rows = np.array([row])
    for case in FORMULAS[::4]:
        expansion = expansion_of(case)
        expected, bound = expected_values(case, expansion, rows)
        found = library.values(names[case, "double"], rows, 2, "double")
        assert np.all(np.abs(found - expected) <= TOLERANCE[np.float64] * bound), case


@needs_compiler
@both
@every_formula
def test_nan_is_not_hidden_and_the_far_away_is_finite(shared, case, kind):
    library, names = shared
    name = names[case, kind]
    rows = np.zeros((2, 3))
    rows[1, 1] = np.nan
    assert np.isnan(library.values(name, rows, 2, kind)).tolist() == [[False, False], [True, True]]
    if is_stationary(case.kernel):  # else values grow with the input
        far = np.full((1, 3), np.finfo(DTYPES[kind]).max)
        values = library.values(name, far, 2, kind)
        assert np.all(np.isfinite(values))
        if not isinstance(case.kernel, Periodic):
            np.testing.assert_allclose(values, [[0.5, -2.0]])


@needs_compiler
@pytest.mark.parametrize("option", ["-ffast-math", pytest.param("-ffinite-math-only", marks=pytest.mark.slow)])
def test_nan_is_not_lost_where_the_compiler_is_told_that_there_is_none(tmp_path, option):
    library = Library(tmp_path)
    names = {(case, kind): library.add(expansion_of(case), kind) for kind in DTYPES for case in FORMULAS}
    library.compile("-O3", option)
    rows, lost = np.zeros((2, 3)), []
    rows[1, 1] = np.nan
    for (case, kind), name in names.items():
        found = np.isnan(library.values(name, rows, 2, kind)).tolist()
        if found != [[False, False], [True, True]]:
            lost.append(f"{case}, {kind}: {found}")
    assert not lost


@needs_compiler
def test_input_and_output_may_be_one_array(shared):
    library, names = shared
    case = FORMULAS[0]
    rows = rows_of(case)[:1]
    expected = library.values(names[case, "double"], rows, 2, "double")
    both_in_one = np.array(rows[0])
    function = getattr(library._library, f"{names[case, 'double']}_rows")
    function(both_in_one.ctypes.data, both_in_one.ctypes.data, 1)
    np.testing.assert_array_equal(both_in_one[:2], expected[0])


@needs_compiler
def test_numbers_of_vectors_features_and_outputs(tmp_path):
    library, cases = Library(tmp_path), []
    for m, d, p in (1, 1, 1), (7, 2, 3), (8, 17, 1), (9, 1, 9), (129, 3, 2):
        rng = np.random.default_rng(m)
        # A power above 127, which is not written as products, among them
        kernel = Matern(rng.uniform(1, 2, size=d), nu=2.5) + Polynomial(degree=128 + m % 2, scale=0.05, offset=0.5)
        arrays = rng.normal(size=(m, d)), rng.normal(size=(m, p)), rng.normal(size=p)
        expansion = KernelExpansion(kernel, *arrays)
        cases.append((expansion, library.add(expansion, "double"), rng.normal(size=(5, d))))
    library.compile()
    for expansion, name, rows in cases:
        expected = expansion.evaluate(rows)
        found = library.values(name, rows, expected.shape[1], "double")
        np.testing.assert_allclose(found, expected, atol=1e-12 * np.max(np.abs(expected)))


# ---------------------------------------------------------------------------------------------------- classes


@needs_compiler
@both
@every_classifier
def test_every_rule_and_every_tie(shared, classifier, kind):
    library, names = shared
    rows, name = classifier.every_sign(), names[id(classifier), kind]
    np.testing.assert_array_equal(library.values(name, rows, classifier.n_outputs, kind), rows)
    np.testing.assert_array_equal(library.predict(name, rows, kind), classifier.expected(rows))


@needs_compiler
@every_classifier
def test_labels(shared, classifier):
    library, names = shared
    classes = classifier.classes_.tolist()
    header = (library.folder / f"{names[id(classifier), 'float']}.h").read_text()
    declared = re.search(r"static inline (.*?)\w+_label", header)[1].strip()
    restype = {"int": ctypes.c_int, "long": ctypes.c_long, "long long": ctypes.c_longlong, "double": ctypes.c_double}
    found = library.labels(names[id(classifier), "float"], len(classes), restype.get(declared, ctypes.c_char_p))
    assert [label.decode() if isinstance(label, bytes) else label for label in found] == classes


@needs_compiler
def test_fitted_models(tmp_path):
    X, y = make_classification(150, n_informative=4, n_classes=4, n_clusters_per_class=1, random_state=0)
    classifier = ExactClassifier(noise=0.1, intercept=False).fit(X, y)
    two = ExactClassifier(noise=0.1, intercept=False).fit(X, np.where(y > 1, "many", "few"))
    regressor = NystromRegressor(n_basis=20, random_state=0, noise=0.1, intercept=False).fit(X, X[:, :2] * X[:, 2:4])
    library = Library(tmp_path)
    names = [library.add(model, "double") for model in (classifier, two, regressor)]
    library.compile()
    for model, name in zip((classifier, two), names, strict=False):
        assert model.classes_[library.predict(name, X, "double")].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(library.values(names[2], X, 2, "double"), regressor.predict(X), atol=1e-10)


# ---------------------------------------------------------------------------------------------------- the source


@needs_compiler_cpp
@pytest.mark.parametrize("standard", ["c++98", "c++20"])
def test_it_is_cpp_too(tmp_path, standard):
    headers = ""
    for index, case in enumerate(FORMULAS):
        kind = ["float", "double"][index % 2]
        name = ["class", "int"][index] if index < 2 else f"m{index}"  # a prefix may be a keyword
        to_c(expansion_of(case), name=name, dtype=kind, path=tmp_path / f"{name}.h")
        headers += f'#include "{name}.h"\n'
    for index, classifier in enumerate(CLASSIFIERS):
        if np.asarray(classifier.classes_).dtype != np.int64 or np.max(classifier.classes_) < 2**31:  # no long long
            to_c(classifier, name=f"c{index}", path=tmp_path / f"c{index}.h")
            headers += f'#include "c{index}.h"\n'
    (tmp_path / "all.cpp").write_text(f"{headers}\nint main() {{ return 0; }}\n")
    flags = [f"-std={standard}", *STRICT, "-Wold-style-cast", "-fsyntax-only"]
    for options in ([], ["-ffast-math"]):
        compiled([COMPILER_CPP, *flags, *options, "all.cpp"], tmp_path)


@needs_compiler
def test_the_example_in_the_comment_compiles(tmp_path):
    for index, model in enumerate([expansion_of(FORMULAS[0]), *CLASSIFIERS]):
        source = to_c(model, path=tmp_path / "model.h")
        example = re.search(r"/\*.*?\n((?: \*     .*\n)+) \*/", source, re.DOTALL)[1].replace(" *     ", "    ")
        body = example.replace("];\n", "];\n    x[0] = 0;\n", 1)
        (tmp_path / f"{index}.c").write_text(f'#include "model.h"\nint main(void) {{\n{body}    return 0;\n}}\n')
        compiled([COMPILER, "-std=c99", "-fsyntax-only", f"{index}.c"], tmp_path)


def test_what_the_source_says_of_itself(tmp_path):
    rng = np.random.default_rng(0)
    expansion = KernelExpansion(Gaussian(2.0), rng.normal(size=(50, 10)), rng.normal(size=(50, 1)), np.zeros(1))
    source = to_c(expansion, name="small", path=tmp_path / "small.h")
    assert (tmp_path / "small.h").read_bytes() == source.encode("ascii")
    # 50 vectors are 7 blocks of 8: 56 · (10 + 1) + 1 numbers of 4 bytes
    assert "50 vectors, 10 features, 1 output; 2468 bytes of constants" in source
    assert "Kernel: Gaussian(length_scale=2.0)" in source
    assert set(re.findall(r"#include <(.*)>", source)) == {"math.h", "stddef.h", "stdint.h"}
    assert not re.search(r"malloc|alloca|memcpy", source)


def test_a_comment_cannot_be_closed_from_within(monkeypatch):
    monkeypatch.setattr(Gaussian, "__repr__", lambda _self: "*/ int é;")
    expansion = KernelExpansion(Gaussian(), np.ones((1, 1)), np.ones((1, 1)), np.zeros(1))
    comment = to_c(expansion).partition("#ifndef")[0]
    assert comment.count("*/") == 1
    assert comment.endswith("*/\n\n")


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back_as_they_were(value):
    text = Dialect("double").number(value)
    tiny = np.finfo(np.float64).tiny
    assert float(text) == (value if abs(value) >= tiny else 0.0)
    assert re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?", text)
    assert "." in text or "e" in text


@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_numbers_of_float_read_back_as_they_were(value):
    text = Dialect("float").number(value)
    assert text.endswith("f")
    assert np.float32(text[:-1]) == (value if abs(value) >= np.finfo(np.float32).tiny else 0.0)


# ------------------------------------------------------------------------------------------------- limits, refusals


def test_float_is_tried_before_it_is_promised():
    x = np.linspace(0, 1, 12)[:, np.newaxis]
    kernel = Gaussian(0.4)
    coefficients = np.linalg.lstsq(kernel(x), np.sin(6 * x), rcond=1e-14)[0]
    expansion = KernelExpansion(kernel, x, coefficients, np.zeros(1))
    with pytest.warns(UserWarning, match=r"in float32 .*dtype='double'") as caught:
        to_c(expansion)
    assert caught[0].filename == __file__
    to_c(expansion, dtype="double")


def test_inputs_that_float_cannot_tell_apart():
    x = 1e9 + np.arange(10.0)[:, np.newaxis]
    expansion = KernelExpansion(Wendland(2.0), x, np.ones((10, 1)), np.zeros(1))
    with pytest.warns(UserWarning, match="in float32"):
        to_c(expansion)
