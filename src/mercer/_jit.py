"""The one door to Numba.

Functions decorated here are compiled on their first call, never at import, without the GIL, and the machine code is
kept on disk where a cache directory can be written. A line on standard error says so to a user who waits for it.
"""

import hashlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, event
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import intrinsic, overload

from mercer._compiled_cache import Places, find_places, read_code, source_digest, write_code

__all__ = [
    "Compiled",
    "array_at",
    "bits_to_float",
    "call_fortran",
    "callback",
    "compile_log",
    "float_to_bits",
    "inlined",
    "jit",
    "jit_inner",
    "jit_sum",
    "overload",
    "scalar",
]

# Parts of Numba without types. Inside compiled code an intrinsic takes one argument less than its definition.
array_at: Any = numba.carray  # type: ignore[attr-defined]  # in a callback: the array of a shape at an address
_intrinsic: Any = intrinsic
_place: Any = cgutils.alloca_once_value
_config: Any = numba.config
_dumps: Any = dumps
_rebuild: Any = CompileResult._rebuild
_register: Any = event.register
_trigger: Any = event.trigger_event

Function = TypeVar("Function", bound=Callable[..., Any])

_PLAIN = {"contract"}
_SUMS = {"contract", "reassoc", "nsz"}
# Divisions that would have to raise keep loops from being vectorised: they give inf, as NumPy's do. Nobody calls our
# functions from C, and what C would need takes a tenth of the time to compile. They make no arrays, so references to
# arrays are not counted, which would take tens of nanoseconds for each array in each call.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_VERSIONS = (numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag, sys.version)

_PATIENCE = 2.0  # seconds of compiling after which a line is printed
_ONCE = "mercer: compiling for this machine, once (`python -m mercer warmup` does it ahead of use)"
_ALWAYS = "mercer: compiling, again in every process: no cache folder is writable (set NUMBA_CACHE_DIR to one that is)"


def jit(function: Function) -> Function:
    """Compile for the CPU; multiply-add may contract, nothing else may change the order of operations."""
    return _compile(function, _PLAIN)


def jit_sum(function: Function) -> Function:
    """Compile a function that sums: sums may be reordered, so that they vectorise."""
    return _compile(function, _SUMS)


def jit_inner(function: Function) -> Function:
    """Compile as ``jit`` does a function that compiled functions alone call: it has no way in from Python."""
    options: dict[str, Any] = {**_OPTIONS, "fastmath": _PLAIN, "no_cpython_wrapper": True}
    return cast(Function, numba.njit(function, **options))


def inlined(function: Function) -> Function:
    """Compile a scalar function that vanishes into the loop that calls it."""
    return cast(Function, numba.njit(function, nogil=True, fastmath=_PLAIN, inline="always"))


def scalar(function: Function) -> Function:
    """Compile a scalar function that becomes part of the loops that call it, however long it is."""
    options: dict[str, Any] = {"nogil": True, "fastmath": _PLAIN, "error_model": "numpy", "forceinline": True}
    return cast(Function, numba.njit(function, **options))


def _compile(function: Function, fastmath: set[str]) -> Function:
    options: dict[str, Any] = {**_OPTIONS, "fastmath": fastmath}
    compiled: Any = numba.njit(function, **options)
    compiled._cache = _DiskCache(function, options)
    return cast(Function, compiled)


@cache
def callback(function: Callable[..., None], kinds: str) -> int:
    """Compile a function for ``call_fortran`` and return its address; ``kinds`` has a letter for each argument.

    They are addresses: of numbers "f" (float64), or of one integer "i" (32 bits).
    """
    pointer: Any = types.CPointer
    pointers = [pointer(types.float64 if kind == "f" else types.int32) for kind in kinds]
    options = {"error_model": "numpy", "fastmath": _PLAIN}
    compiled: Any = _Callback(function, (tuple(pointers), types.void), {}, options)
    compiled._cache = _DiskCache(function, {**options, "kinds": kinds})
    compiled.compile()
    _KEPT.append(compiled)
    return int(compiled.address)


_KEPT: list[Any] = []  # compiled callbacks, which are gone with their objects


class _DiskCache(NullCache):
    """Numba's way to find compiled code, by ``mercer._compiled_cache``."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._loaded_at = function, time.time()
        self._options = sorted((options | {"fastmath": sorted(options["fastmath"])}).items())

    @property
    def name(self) -> str:
        """Of the function."""
        return f"{self._function.__module__}.{self._function.__qualname__}"

    @property
    def places(self) -> Places:
        """Where compiled code lies."""
        return find_places(Path(self._function.__code__.co_filename).parent, _config.CACHE_DIR)

    @property
    def cache_path(self) -> str | None:
        """The folder that is written to."""
        return None if self.places.write is None else str(self.places.write)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Code for a signature, or None if there is none that can be used."""
        target_context.refresh()
        entry = self._entry(sig, target_context.codegen())
        if entry is not None:
            for code in read_code(self.places, *entry):
                # Whole files fail only if Numba itself has changed: then compile.
                with suppress(Exception):
                    return _rebuild(target_context, *pickle.loads(code))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code for a signature."""
        entry = self._entry(sig, data.codegen)
        if entry is not None and not data.library.has_dynamic_globals:
            write_code(self.places, *entry, _dumps(data._reduce()))

    def _entry(self, sig: Any, codegen: Any) -> tuple[str, bytes] | None:
        """Name of the file for a signature on this machine, and what its checksum covers; None if it cannot be kept."""
        code, cells = self._function.__code__, self._function.__closure__ or ()
        sources = source_digest(self._function.__module__, self._loaded_at)
        kept = getattr(self._function, "is_kept", True)
        unnamed = " at 0x" in str(sig)  # an argument is a function, whose name is another in each process
        if sources is None or not kept or unnamed:
            return None
        machine = (codegen.magic_tuple(), _config.OPT, _config.BOUNDSCHECK, *_VERSIONS)
        key = repr((self.name, str(sig), self._options, machine))
        seal = repr((key, sources, code.co_firstlineno, code.co_code)).encode()
        seal += _dumps(tuple(cell.cell_contents for cell in cells)) if cells else b""
        short = self.name.replace("<", "").replace(">", "")[-80:]
        return f"{short}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.compiled", seal


class Compiled(NamedTuple):
    """A function that was compiled, and the seconds that it took, with the functions that it calls."""

    name: str
    seconds: float


class CompileLog:
    """Compilations of this process.

    When they have taken two seconds in all, one line on standard error says so, once in a process. A timer writes it,
    since a single function may take longer. Calls come from any thread; Numba compiles one function at a time, in which
    others may be nested.
    """

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []
        self._depth, self._started = 0, 0.0
        self._told, self._timer = False, threading.Timer(0.0, self._tell)  # never started

    def begin(self, *, is_kept: bool) -> None:
        """Note that a compilation begins; ``is_kept``: its result will be on disk."""
        self._depth += 1
        if self._depth > 1:
            return
        self._started = time.perf_counter()
        if not self._told:
            spent = sum(compiled.seconds for compiled in self.compiled)
            self._timer = threading.Timer(max(_PATIENCE - spent, 0.0), self._tell, (_ONCE if is_kept else _ALWAYS,))
            self._timer.daemon = True
            self._timer.start()

    def end(self, name: str) -> None:
        """Note that the compilation of a function has ended."""
        self._depth -= 1
        if self._depth == 0:
            self._timer.cancel()
            self.compiled.append(Compiled(name, time.perf_counter() - self._started))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Print no line: the user has asked for it."""
        told, self._told = self._told, True
        try:
            yield
        finally:
            self._told = told

    def _tell(self, line: str = "") -> None:
        if not self._told and sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)
        self._told = True


class _Callback(CFunc):
    """A callback whose compilation is an event, as that of other functions is."""

    def _compile_uncached(self) -> Any:
        with _trigger("numba:compile", data={"dispatcher": self}):
            return super()._compile_uncached()  # type: ignore[misc]


class _Listener(event.Listener):
    """Hears from Numba when it compiles a function, which it does not for code that it finds on disk."""

    def on_start(self, event: Any) -> None:
        """Note that a function of ours is being compiled."""
        cache = getattr(event.data["dispatcher"], "_cache", None)
        if isinstance(cache, _DiskCache):
            compile_log.begin(is_kept=cache.cache_path is not None)

    def on_end(self, event: Any) -> None:
        """Note that it has been."""
        cache = getattr(event.data["dispatcher"], "_cache", None)
        if isinstance(cache, _DiskCache):
            compile_log.end(cache.name)


compile_log = CompileLog()
_register("numba:compile", _Listener())


@_intrinsic  # type: ignore[untyped-decorator]
def float_to_bits(_context: Any, number: Any) -> Any:
    """Reinterpret a float as the integer with the same bits."""
    integer: Any = types.int64 if number.bitwidth == 64 else types.int32
    return integer(number), _cast_bits


@_intrinsic  # type: ignore[untyped-decorator]
def bits_to_float(_context: Any, bits: Any) -> Any:
    """Reinterpret an integer as the float with the same bits."""
    number: Any = types.float64 if bits.bitwidth == 64 else types.float32
    return number(bits), _cast_bits


def _cast_bits(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


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
