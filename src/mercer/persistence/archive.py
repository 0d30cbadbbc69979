"""Models in files that are safe to load: numbers and names, no pickle.

An archive is a zip file of .npy arrays and a JSON header (``container``). What a model is made of is written as JSON
values and arrays (``encoding``, ``decoding``), objects of mercer's own classes by short names, with the attributes that
these classes declare (``mercer._stored``, ``schema``); and before a model is returned, its parts must fit together. A
file cannot name anything to import or to call.
"""

import hashlib
import io
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

# Not for their names: what can be saved without an estimator is declared there, and then needs no search.
import mercer.basis
import mercer.model  # noqa: F401
from mercer._stored import declaration_of
from mercer._stored.checks import need
from mercer.exceptions import ArchiveError
from mercer.persistence import container
from mercer.persistence.decoding import decode
from mercer.persistence.encoding import encode
from mercer.persistence.replacement import replacement

Target: TypeAlias = str | os.PathLike[str] | IO[bytes]


def save(model: Any, path: Target) -> None:
    """Save an estimator, fitted or not, a kernel, a basis strategy, or an expansion.

    A file is replaced as a whole: a reader finds the old one or the new one, also after a crash. The same model gives
    the same bytes. What an archive cannot hold (functions, estimators of other libraries, subclasses of mercer's
    classes) is refused before anything is written.

    Cost: one pass over the arrays; no copy of those that are contiguous.

    Parameters
    ----------
    model : object of one of mercer's public classes
    path : str, path or binary file object
        A file object must be at its start.

    Raises
    ------
    ArchiveError
        If the model has parts that an archive cannot hold.

    See Also
    --------
    load : Loads what was saved.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> from mercer.persistence import load, save
    >>> X = np.linspace(0, 6, 200)[:, np.newaxis]
    >>> model = NystromRegressor(n_basis=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> file = io.BytesIO()
    >>> save(model, file)
    >>> bool(np.all(load(file).predict(X) == model.predict(X)))
    True
    """
    kind = type(model)
    declaration = declaration_of(kind)
    if declaration is None or not declaration.alone:
        raise ArchiveError(
            f"{kind.__module__}.{kind.__qualname__} cannot be saved: an archive holds one of mercer's own estimators, "
            "kernels, basis strategies or expansions. Loading never runs code, so functions, and classes that are not "
            "mercer's, are not stored."
        )
    tree, arrays = encode(model, declaration.name)
    header = {"mercer": version("mercer"), "type": declaration.name, "model": tree}
    if isinstance(path, (str, os.PathLike)):
        with replacement(Path(path)) as file:
            container.write(file, header, arrays)
    else:
        _check_file(path, "write")
        at_start = not path.seekable() or path.tell() == 0
        need(at_start, "the file object must be at its start: an archive is a file of its own.")
        container.write(path, header, arrays)


def load(path: Target, *, sha256: str | None = None) -> Any:
    """Load a model that ``save`` has written; no code from the file is run.

    The model predicts the same, to the bit, has the same parameters, and continues (``partial_fit``, ``merge``,
    ``forget``) like the one that was saved. Cost: the time to read the file, and memory of its size (twice that with
    ``sha256``).

    Parameters
    ----------
    path : str, path or binary file object
    sha256 : str or None, default=None
        The digest that the file must have, in hexadecimal, as ``sha256sum`` prints it: this detects any change of
        the file, also a deliberate one.

    Raises
    ------
    ArchiveError
        If the file is not an archive, is damaged, of another version, does not have that digest, or does not describe a
        valid model.

    See Also
    --------
    save : What can be saved, and an example.
    """
    if sha256 is not None and not (isinstance(sha256, str) and re.fullmatch(r"[0-9a-fA-F]{64}", sha256)):
        raise ValueError(f"sha256 must be None or 64 hexadecimal digits, got {sha256!r}.")
    if isinstance(path, (str, os.PathLike)):
        with Path(path).open("rb") as file:
            return _loaded(file, str(path), sha256)
    _check_file(path, "read")
    return _loaded(path, "the file", sha256)


def _loaded(file: IO[bytes], name: str, sha256: str | None) -> Any:
    try:
        if sha256 is not None or not file.seekable():
            if file.seekable():
                file.seek(0)
            content = file.read()
            found = hashlib.sha256(content).hexdigest()
            right = sha256 is None or found == sha256.lower()
            need(right, f"its SHA-256 digest is {found}, not {sha256}: it is another file.")
            file = io.BytesIO(content)  # in memory nobody changes it after its digest was found right
        with np.errstate(all="ignore"):  # of forged numbers, which checks refuse
            return _read(file)
    except ArchiveError as error:
        raise ArchiveError(f"{name} cannot be loaded: {error}") from error
    except Exception as error:  # whatever zipfile, JSON, NumPy or a class raises at what a broken or forged file says
        raise ArchiveError(f"{name} is not a mercer archive, or damaged: {error}") from error


def _read(file: IO[bytes]) -> Any:
    header, arrays = container.read(file)
    try:
        model = decode(header["model"], arrays)
    except ArchiveError as error:
        if header["mercer"] == version("mercer"):
            raise
        written = f"It was written by mercer {header['mercer'][:40]}, and this is {version('mercer')}."
        raise ArchiveError(f"{error} {written}") from error
    declaration = declaration_of(type(model))
    right = declaration is not None and declaration.alone and declaration.name == header["type"]
    need(right, f"its type is said to be {header['type'][:40]!r}, which it is not, or which no archive has.")
    return model


def _check_file(file: Any, method: str) -> None:
    if not hasattr(file, method) or isinstance(file, io.TextIOBase):
        raise TypeError(f"path must be a str, a path or a binary file object, got {type(file).__name__}.")
