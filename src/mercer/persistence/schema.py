"""What is stored of an object, of which type, and how it is put together again.

``mercer._stored`` says what a class declares; here the declaration is read. Types are checked when an archive is
written as when it is read, so that a model that can be saved can be loaded.
"""

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from mercer._stored import SOMETIMES, Declaration, declaration_of
from mercer._stored.checks import LARGEST_INT, need, refusing
from mercer._typing import AnyArray
from mercer.exceptions import ArchiveError, warn

# What scikit-learn's conventions let an estimator tell of its fit besides, which nothing depends on.
_TOLD = re.compile(r"[a-zA-Z]\w*[a-zA-Z0-9]_", re.ASCII)


class _Layout(NamedTuple):
    """Types of the attributes of a class."""

    always: dict[str, Any]
    fitted: dict[str, Any]  # which an estimator has after ``fit``
    sometimes: dict[str, Any]


def state_of(member: Any, declaration: Declaration) -> dict[str, Any]:
    """The attributes of an object that an archive keeps."""
    if isinstance(member, tuple):
        return dict(member._asdict())  # type: ignore[attr-defined]
    if isinstance(member, BaseEstimator):
        return _without_foreign(dict(vars(member)))
    layout, state = _layout(declaration), dict(member.__getstate__() or {})
    for name in declaration.also:
        with suppress(ValueError):  # what cannot be computed is not there, as prediction will tell
            state[name] = getattr(member, name)
    return {name: state[name] for name in [*layout.always, *layout.sometimes] if name in state}


def _without_foreign(state: dict[str, Any]) -> dict[str, Any]:
    """A compressed model does not need the estimator that was compressed, unless it is to be fitted again."""
    estimator = state.get("estimator")
    if estimator is None or declaration_of(type(estimator)) is not None:
        return state
    warn(
        f"estimator is {type(estimator).__name__}, of another library, which an archive does not hold: the model that "
        "is loaded predicts the same, but has estimator=None and cannot be fitted again. (set_params(estimator=None) "
        "avoids this warning.)",
        UserWarning,
    )
    return state | {"estimator": None}


def build(declaration: Declaration, state: Mapping[str, Any]) -> Any:
    """An object of a class, by no more code than its own, of attributes that were checked."""
    cls, state = declaration.cls, dict(state)
    member: Any
    if issubclass(cls, tuple):
        member = cls(**state)
    elif is_dataclass(cls) and not issubclass(cls, BaseEstimator):
        member = cls(**{field.name: state.pop(field.name) for field in fields(cls) if field.name in state})
        vars(member).update(state)
    else:
        member = object.__new__(cls)
        own = hasattr(cls, "__setstate__") and not issubclass(cls, BaseEstimator)
        (member.__setstate__ if own else vars(member).update)(state)
    check_parts(member, declaration)
    if hasattr(cls, "rebuild_stored") and _is_complete(member, declaration):
        member.rebuild_stored()
    return member


def check_parts(member: Any, declaration: Declaration) -> None:
    """Raise ``ArchiveError`` unless the parts of an object fit together, by its own ``check_stored``."""
    if not _is_complete(member, declaration):
        return
    with np.errstate(all="ignore"), refusing(f"the parts of {declaration.name} do not fit together"):
        if hasattr(member, "_parameter_constraints"):  # of estimators, which would fail only when they are used
            member._validate_params()
        if hasattr(member, "check_stored"):
            member.check_stored()


def _is_complete(member: Any, declaration: Declaration) -> bool:
    """Whether it is no estimator, or a fitted one."""
    return not isinstance(member, BaseEstimator) or bool(vars(member).keys() - _layout(declaration).always.keys())


def check_attributes(declaration: Declaration, state: Mapping[str, Any]) -> None:
    """Raise ``ArchiveError`` unless these are the attributes of a class, each of its type."""
    name, (always, fitted, sometimes) = declaration.name, _layout(declaration)
    hints = always | fitted | sometimes
    if issubclass(declaration.cls, BaseEstimator):
        told = {each for each in state.keys() - hints.keys() if _TOLD.fullmatch(each)}
        hints |= {each: Any for each in told if not hasattr(declaration.cls, each)}
    unknown = state.keys() - hints.keys()
    need(not unknown, f"{name} has an attribute {min(unknown, default='')!r}, which an archive does not know.")
    missing = (_needed(always) | (fitted.keys() if state.keys() - always.keys() else set())) - state.keys()
    need(not missing, f"{name} lacks the attribute {min(missing, default='')!r}.")
    for attribute, value in state.items():
        hint = hints[attribute]
        if not _fits(value, hint):
            kind = "None" if value is None else f"of type {type(value).__name__}"
            kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else kind
            expected = hint.__name__ if inspect.isclass(hint) else re.sub(r"\w+\.", "", str(hint))
            raise ArchiveError(f"{name}.{attribute} is {kind}, where an archive has {expected}.")


@cache
def _layout(declaration: Declaration) -> _Layout:
    cls = declaration.cls
    if issubclass(cls, BaseEstimator):
        return _layout_of_estimator(cls)
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else list(cls.__annotations__)
    given = {name: hints[name] for name in names if get_origin(hints[name]) is not ClassVar}
    sometimes = {name: hint for name, hint in given.items() if SOMETIMES in get_args(hint)[1:]}
    always = {name: hint for name, hint in given.items() if name not in sometimes}
    for name in declaration.also:
        member = inspect.getattr_static(cls, name)
        if isinstance(member, cached_property):
            sometimes[name] = get_type_hints(member.func)["return"]
        else:
            always[name] = get_type_hints(member.fget)["return"]
    return _Layout(always, {}, sometimes)


def _layout_of_estimator(cls: Any) -> _Layout:
    """Parameters, which may be anything; and, if it can be fitted, what it annotates, and scikit-learn's own."""
    hints = get_type_hints(cls, include_extras=True)
    parameters = dict.fromkeys(cls._get_param_names(), Any)
    later = [name for name in parameters if SOMETIMES in get_args(hints.get(name))[1:]]
    layout = _Layout(parameters | dict.fromkeys(later, Annotated[Any, SOMETIMES]), {}, {})
    if not hasattr(cls, "fit"):
        return layout
    layout.fitted.update({"n_features_in_": int} | ({"classes_": AnyArray} if issubclass(cls, ClassifierMixin) else {}))
    layout.sometimes["feature_names_in_"] = AnyArray
    for name, hint in hints.items():
        if name not in layout.always and get_origin(hint) is not ClassVar:
            (layout.sometimes if SOMETIMES in get_args(hint)[1:] else layout.fitted)[name] = hint
    return layout


def _needed(parameters: Mapping[str, Any]) -> set[str]:
    """Names without those that files of earlier versions lack, which then have their default."""
    return {name for name, hint in parameters.items() if SOMETIMES not in get_args(hint)[1:]}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type."""
    if hint is Any:
        return True
    if get_origin(hint) is not None:
        return _fits_generic(value, get_origin(hint), get_args(hint))
    if hint in (float, int):
        if isinstance(value, (int, np.integer)):  # and such as compiled code can take
            return not isinstance(value, bool) and abs(int(value)) < LARGEST_INT
        return hint is float and isinstance(value, (float, np.floating))
    return isinstance(value, (bool, np.bool_) if hint is bool else hint)


def _fits_generic(value: Any, origin: Any, given: tuple[Any, ...]) -> bool:  # noqa: PLR0911  one line per kind of type
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in given)
    if origin is Annotated:
        return _fits(value, given[0])
    if origin is Literal:
        return isinstance(value, str) and value in given
    if origin is np.ndarray:  # numpy.ndarray[shape, numpy.dtype[number]]
        kind = get_args(given[1])[0]
        number = get_origin(kind) or kind
        if number is Any or not isinstance(value, np.ndarray):
            return isinstance(value, np.ndarray)
        return issubclass(value.dtype.type, number) and value.dtype.isnative
    if origin is list:
        return isinstance(value, list) and all(_fits(each, given[0]) for each in value)
    if origin is tuple:
        given = given[:1] * len(value) if given[1:] == (...,) and isinstance(value, tuple) else given
        return isinstance(value, tuple) and len(value) == len(given) and all(map(_fits, value, given))
    return isinstance(value, origin)
