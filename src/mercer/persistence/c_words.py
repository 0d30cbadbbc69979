"""Names and labels as C and C++ accept them."""

from __future__ import annotations

import re
from typing import Any

from mercer._typing import AnyArray
from mercer.persistence.c_kernels import Dialect

__all__ = ["c_labels", "check_name"]

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const const_cast
consteval constexpr constinit continue co_await co_return co_yield decltype default delete do double dynamic_cast else
enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_INT, _LONG = 2**15 - 1, 2**31 - 1  # what the C standard promises of int and long


def c_labels(classes: AnyArray) -> tuple[str, list[str]]:
    """C's type of the classes, as it stands before a name, and their constants."""
    values = classes.tolist()
    if classes.dtype.kind == "U":
        return "const char *", [_c_string(value) for value in values]
    if classes.dtype.kind == "f":
        return "double ", [Dialect("double").number(value) for value in values]
    largest = max(abs(value) for value in values)
    kind, suffix = ("int ", "") if largest <= _INT else ("long ", "L") if largest <= _LONG else ("long long ", "LL")
    return kind, [f"{value}{suffix}" for value in values]


def _c_string(text: str) -> str:
    """A string constant; what is not plain ASCII, and what C gives a meaning, as octal escapes of UTF-8."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in text.encode()
    )
    return f'"{plain}"'


def check_name(name: Any) -> None:
    """Raise ``ValueError`` for what cannot begin the names of functions."""
    valid = isinstance(name, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and "__" not in name
    if not valid or name in _KEYWORDS.split() or name.endswith("_"):
        msg = (
            "name must be an identifier of C and C++: ASCII letters, digits and single underscores within, no keyword; "
            f"got {name!r}."
        )
        raise ValueError(msg)
