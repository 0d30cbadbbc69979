"""The one door to Numba.

Functions decorated here are compiled on their first call, never at import, without the GIL, and the machine code is
kept on disk where a cache directory can be written.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic, overload

__all__ = [
    "array_at",
    "bits_to_float",
    "call_fortran",
    "callback",
    "float_to_bits",
    "inlined",
    "jit",
    "jit_sum",
    "overload",
    "wide_vectors",
]

# In a callback: the array of a shape at an address.
array_at: Any = numba.carray  # type: ignore[attr-defined]

Function = TypeVar("Function", bound=Callable[..., Any])

_ROOT = Path(__file__).parent

# Inside compiled code an intrinsic takes one argument less than its definition: Python's types cannot say so.
_intrinsic: Any = intrinsic
_place: Any = cgutils.alloca_once_value

_FLOAT_BITS: dict[Any, tuple[Any, Any, Any]] = {
    types.float64: (types.int64, ir.DoubleType(), ir.IntType(64)),
    types.float32: (types.int32, ir.FloatType(), ir.IntType(32)),
}


def _compile(function: Function, *, fastmath: set[str]) -> Function:
    # Divisions that would have to raise keep loops from being vectorised: they give inf, as NumPy's do.
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        compiled = numba.njit(function, cache=True, **options)
        _stamp(compiled, Path(function.__code__.co_filename))
    except RuntimeError:  # no directory for the cache can be written: compile in every process
        compiled = numba.njit(function, **options)
    return cast(Function, compiled)


def _stamp(compiled: Any, path: Path) -> None:
    """Have compiled code on disk notice every change that may be compiled into it.

    Numba looks at the time and size of a function's own file, but constants and other functions come from files beside
    it and above it, and installed files may all have the same time.
    """
    index: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, _digest(path.parent))


@cache
def _digest(folder: Path) -> str:
    """Of the source files in a folder of the package, and in those above it."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    if folder != _ROOT and _ROOT in folder.parents:
        digest.update(_digest(folder.parent).encode())
    return digest.hexdigest()


_PLAIN = {"contract"}
_SUMS = {"contract", "reassoc", "nsz"}


def jit(function: Function) -> Function:
    """Compile for the CPU; multiply-add may contract, nothing else may change the order of operations."""
    return _compile(function, fastmath=_PLAIN)


def jit_sum(function: Function) -> Function:
    """Compile a function that sums: sums may be reordered, so that they vectorise."""
    return _compile(function, fastmath=_SUMS)


def inlined(function: Function) -> Function:
    """Compile a scalar function that vanishes into the loop that calls it."""
    compiled = numba.njit(function, nogil=True, fastmath={"contract"}, inline="always")
    return cast(Function, compiled)


@cache
def callback(function: Callable[..., None], kinds: str) -> int:
    """Compile a function for ``call_fortran`` and return its address; ``kinds`` has a letter for each argument.

    They are addresses: of numbers "f" (float64), or of one integer "i" (32 bits).
    """
    pointer: Any = types.CPointer
    pointers = [pointer(types.float64 if kind == "f" else types.int32) for kind in kinds]
    compiled: Any = CFunc(function, (tuple(pointers), types.void), {}, {"error_model": "numpy", "fastmath": _PLAIN})
    with suppress(RuntimeError):  # no directory for the cache can be written
        compiled.enable_caching()
        _stamp(compiled, Path(function.__code__.co_filename))
    compiled.compile()
    _KEPT.append(compiled)
    return int(compiled.address)


_KEPT: list[Any] = []  # compiled callbacks, which are gone with their objects


@_intrinsic  # type: ignore[untyped-decorator]
def float_to_bits(_context: Any, number: Any) -> Any:
    """Reinterpret a float as the integer with the same bits."""
    integer, _, llvm_integer = _FLOAT_BITS[number]

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], llvm_integer)

    return integer(number), generate


@_intrinsic  # type: ignore[untyped-decorator]
def bits_to_float(_context: Any, bits: Any) -> Any:
    """Reinterpret an integer as the float with the same bits."""
    number: Any = types.float64 if bits.bitwidth == 64 else types.float32
    llvm_float = _FLOAT_BITS[number][1]

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], llvm_float)

    return number(bits), generate


@_intrinsic  # type: ignore[untyped-decorator]
def call_fortran(_context: Any, _address: Any, arguments: Any) -> Any:
    """Call the Fortran subroutine at an address with a tuple of arguments, each by reference.

    Arrays are passed as they lie, integers as 32 bits, a letter as its number in ``uint8``. The address is an argument
    and not a constant, so that compiled code can be kept on disk.
    """

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        places = []
        for i, kind in enumerate(arguments.types):
            value = builder.extract_value(values[1], i)
            if isinstance(kind, types.Array):
                place = context.make_array(kind)(context, builder, value).data
            else:
                wide = getattr(kind, "bitwidth", 0) == 64 and isinstance(kind, types.Integer)
                place = _place(builder, builder.trunc(value, ir.IntType(32)) if wide else value)
            places.append(builder.bitcast(place, pointer))
        subroutine = ir.FunctionType(ir.VoidType(), [pointer] * len(places))
        builder.call(builder.inttoptr(values[0], subroutine.as_pointer()), places)
        return context.get_dummy_value()

    return types.void(_address, arguments), generate


@_intrinsic  # type: ignore[untyped-decorator]
def wide_vectors(_context: Any) -> Any:
    """Have the loops of the function that calls this use vectors of 512 bits, where the machine has them.

    LLVM avoids them on machines that become slower by them; next to BLAS, which uses them anyway, nothing is lost.
    """
    return types.void(), _attribute('"prefer-vector-width"="512"')


def _attribute(text: str) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
        attributes = builder.function.attributes
        if isinstance(attributes, set):  # whose own method knows a few names only
            set.add(attributes, text)
        return context.get_dummy_value()

    return generate
