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
from typing import Any, NamedTuple, TypeVar

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
from numba.extending import intrinsic

from mercer._compiled_cache import Places, find_places, read_code, source_digest, write_code

array_at: Any = numba.carray  # type: ignore[attr-defined]  # in a callback: the array of a shape at an address
overload = numba.extending.overload
_njit: Any = numba.njit
_config: Any = numba.config

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
    return _njit(function, fastmath=_PLAIN, no_cpython_wrapper=True, **_OPTIONS)


def inlined(function: Function) -> Function:
    """Compile a scalar function that vanishes into the loop that calls it."""
    return _njit(function, nogil=True, fastmath=_PLAIN, inline="always")


def scalar(function: Function) -> Function:
    """Compile a scalar function that becomes part of the loops that call it, however long it is."""
    return _njit(function, nogil=True, fastmath=_PLAIN, error_model="numpy", forceinline=True)


def _compile(function: Function, fastmath: set[str]) -> Function:
    options = {**_OPTIONS, "fastmath": fastmath}
    compiled = _njit(function, **options)
    compiled._cache = _DiskCache(function, options)
    return compiled


@cache
def callback(function: Callable[..., None], kinds: str) -> int:
    """Address of a compiled function for ``call_fortran``; its arguments are addresses, of float64 "f" or int32 "i"."""
    pointers = [types.CPointer(types.float64 if kind == "f" else types.int32) for kind in kinds]
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
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._function, self._loaded_at = function, time.time()
        self._options = sorted((options | {"fastmath": sorted(options["fastmath"])}).items())

    @property
    def places(self) -> Places:
        return find_places(Path(self._function.__code__.co_filename).parent, _config.CACHE_DIR)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        entry = self._entry(sig, target_context.codegen())
        for code in () if entry is None else read_code(self.places, *entry):
            with suppress(Exception):  # whole files fail only if Numba itself has changed: then compile
                return CompileResult._rebuild(target_context, *pickle.loads(code))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        entry = self._entry(sig, data.codegen)
        if entry is not None and not data.library.has_dynamic_globals:
            write_code(self.places, *entry, dumps(data._reduce()))

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
        seal += dumps(tuple(cell.cell_contents for cell in cells)) if cells else b""
        short = self.name.replace("<", "").replace(">", "")[-80:]
        return f"{short}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.compiled", seal


class Compiled(NamedTuple):
    """A function that was compiled, and the seconds that it took, with the functions that it calls."""

    name: str
    seconds: float


class CompileLog(event.Listener):
    """Compilations of this process, as Numba reports them: it reports none for code that it finds on disk.

    When they have taken two seconds in all, one line on standard error says so, once in a process. A timer writes it,
    since a single function may take longer. Calls come from any thread; Numba compiles one function at a time, in which
    others may be nested.
    """

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []
        self._depth, self._started = 0, 0.0
        self._told, self._timer = False, threading.Timer(0.0, self._tell)  # never started

    def notify(self, event: Any) -> None:
        if isinstance(getattr(event.data["dispatcher"], "_cache", None), _DiskCache):  # a function of ours
            super().notify(event)

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._started = time.perf_counter()
        if not self._told:
            spent = sum(compiled.seconds for compiled in self.compiled)
            line = _ALWAYS if event.data["dispatcher"]._cache.places.write is None else _ONCE
            self._timer = threading.Timer(max(_PATIENCE - spent, 0.0), self._tell, (line,))
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._timer.cancel()
            name = event.data["dispatcher"]._cache.name
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


compile_log = CompileLog()
event.register("numba:compile", compile_log)


class _Callback(CFunc):
    """A callback whose compilation is an event, as that of other functions is."""

    def _compile_uncached(self) -> Any:
        with event.trigger_event("numba:compile", data={"dispatcher": self}):
            return super()._compile_uncached()  # type: ignore[misc]


@intrinsic
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
                place = cgutils.alloca_once_value(builder, builder.trunc(value, ir.IntType(32)) if wide else value)
            places.append(builder.bitcast(place, pointer))
        subroutine = ir.FunctionType(ir.VoidType(), [pointer] * len(places))
        builder.call(builder.inttoptr(values[0], subroutine.as_pointer()), places)
        return context.get_dummy_value()

    return types.void(_address, arguments), generate
