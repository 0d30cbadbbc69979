"""Models outside Python: a safe archive, ONNX, and C.

``save`` and ``load`` keep a fitted model in a file without pickle; ``to_onnx`` and ``to_c`` write its predictions down
for other runtimes. Names are loaded when they are first used: ONNX need not be installed to write C.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mercer.persistence.archive import load, save
    from mercer.persistence.c_source import to_c
    from mercer.persistence.onnx_graph import to_onnx

_HOMES = {
    "load": "mercer.persistence.archive",
    "save": "mercer.persistence.archive",
    "to_c": "mercer.persistence.c_source",
    "to_onnx": "mercer.persistence.onnx_graph",
}

__all__ = ["load", "save", "to_c", "to_onnx"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    msg = f"module 'mercer.persistence' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
