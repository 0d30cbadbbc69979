"""Which classes an archive may hold, and what of them: declared by the classes themselves.

A class that can be part of a saved model says so beside its fields::

    @stored
    @dataclass(frozen=True)
    class Jacobi:
        diagonal: FloatArray

==================  ===============================================================================================
kind of class       what is stored
==================  ===============================================================================================
dataclass           its fields, of the types that it annotates; so for named tuples
estimator, kernel   its parameters and, of a fitted one, what the class and its bases annotate (``ClassVar`` apart)
any other class     what the body of the class itself annotates
==================  ===============================================================================================

``also`` names properties that are stored besides. A cached one is stored where computing it again would round
differently on another machine; everything else that can be computed is not stored. An annotation ``Sometimes[...]``
marks what not every object has: of a dataclass, fields with a default, which files of earlier versions lack.

Two methods complete the declaration, where they are needed. ``check_stored`` raises ``ArchiveError`` unless shapes,
lengths and indices fit together (see ``mercer._stored.checks``): compiled loops and BLAS take these numbers at their
word. It is called before an object is saved and after its stored attributes are set; ``rebuild_stored`` follows, and
sets what is computed from them.

A file names a class by its short name, which is looked up among the classes declared here and nowhere else. A name
that is not known yet makes ``mercer`` import all of its public names, and one that begins with "river." its
counterparts for river, where that is installed: a file cannot choose what else is imported.
"""

from functools import partial
from importlib import import_module
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

_Value = TypeVar("_Value")

SOMETIMES = "stored where an object has it"
Sometimes: TypeAlias = Annotated[_Value, SOMETIMES]


class Declaration(NamedTuple):
    """What a class has declared."""

    cls: type[Any]
    name: str  # by which files call it: it stays the same, wherever the class moves
    also: tuple[str, ...]  # properties that are stored besides
    alone: bool  # whether it may be all that an archive holds, as everything that has parameters may


_BY_NAME: dict[str, Declaration] = {}
_BY_CLASS: dict[type[Any], Declaration] = {}


def stored(cls: Any = None, /, *, name: str | None = None, also: tuple[str, ...] = (), alone: bool = False) -> Any:
    """Declare that objects of this very class, and not of its subclasses, can be in an archive."""
    if cls is None:
        return partial(stored, name=name, also=also, alone=alone)
    given = Declaration(cls, name or cls.__name__, also, alone or hasattr(cls, "get_params"))
    homes = [f"{each.__module__}.{each.__qualname__}" for each in (_BY_NAME.get(given.name, given).cls, cls)]
    if homes[0] != homes[1]:
        raise TypeError(f"two classes would be stored as {given.name!r}, {homes[0]} and {homes[1]}: give a name.")
    _BY_NAME[given.name] = _BY_CLASS[cls] = given
    return cls


def declaration_of(cls: type[Any]) -> Declaration | None:
    """What a class has declared, or None."""
    return _BY_CLASS.get(cls)


def declaration_named(name: str) -> Declaration | None:
    """What the class of that name has declared, or None if there is none."""
    if name not in _BY_NAME:
        import_module("mercer")._import_all(river=name.startswith("river."))
    return _BY_NAME.get(name)
