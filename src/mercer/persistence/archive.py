"""Models in files that are safe to load: numbers and names, no pickle.

An archive is a zip file of .npy arrays and a JSON header (``container``). What a model is made of is written as JSON
values and arrays (``encoding``, ``decoding``), objects of mercer's own classes by short names (``registry``), with the
attributes that these classes declare (``schema``); and before a model is returned, its parts must fit together
(``checks``). A file cannot name anything to import or to call.
"""

from __future__ import annotations

import io
import os
import secrets
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, TypeAlias

from mercer.exceptions import ArchiveError
from mercer.persistence import container, registry
from mercer.persistence.decoding import Decoder
from mercer.persistence.encoding import Encoder

__all__ = ["load", "save"]

Target: TypeAlias = str | os.PathLike[str] | IO[bytes]

# What a file that is no archive, or a broken or forged one, can raise besides our own error.
_BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, EOFError, OSError, NotImplementedError, RuntimeError,
    ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError,
)  # fmt: skip


def save(model: Any, path: Target) -> None:
    """Save an estimator, fitted or not, a kernel, a basis strategy, or an expansion.

    A file is replaced as a whole: whoever reads it meanwhile, or after a crash, finds the old one or the new one. The
    same model gives the same bytes. What an archive does not hold (functions, estimators of other libraries, subclasses
    of ours) is refused before anything is written.

    Cost: one pass over the arrays; no copy of those that are contiguous.

    Parameters
    ----------
    model : object of one of mercer's public classes
    path : str, path or binary file object
        A file object, which must be at its start, is written to as it is.

    Raises
    ------
    ArchiveError
        If the model holds what an archive does not.

    See Also
    --------
    load : The way back.

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
    header, arrays = _described(model)
    if isinstance(path, (str, os.PathLike)):
        with _replaced(Path(path)) as file:
            container.write(file, header, arrays)
        return
    _check_file(path, "write")
    if path.seekable() and path.tell() != 0:
        msg = "the file object must be at its start: an archive is a file of its own."
        raise ArchiveError(msg)
    container.write(path, header, arrays)


def load(path: Target) -> Any:
    """Load what ``save`` has written; runs nothing that the file brings, whoever wrote it.

    The model predicts the same, to the bit, has the same parameters, and goes on (``partial_fit``, ``merge``,
    ``forget``) as the one that was saved. Cost: the time to read the file, and memory of its size.

    Parameters
    ----------
    path : str, path or binary file object

    Raises
    ------
    ArchiveError
        If the file is no archive, damaged, of a later version, or not what an archive of a model can be.

    See Also
    --------
    save : What can be saved, and an example.
    """
    if isinstance(path, (str, os.PathLike)):
        with Path(path).open("rb") as file:
            return _loaded(file, str(path))
    _check_file(path, "read")
    return _loaded(path if path.seekable() else io.BytesIO(path.read()), "the file")


def _described(model: Any) -> tuple[dict[str, Any], list[Any]]:
    name = registry.name_of(type(model))
    if name is None or not registry.is_model(name):
        kind = type(model)
        msg = (
            f"{kind.__module__}.{kind.__qualname__} cannot be saved: an archive holds one of mercer's own estimators, "
            "kernels, basis strategies or expansions. Loading never runs code, so functions, and classes that are not "
            "mercer's, are not stored."
        )
        raise ArchiveError(msg)
    _solve(model)
    encoder = Encoder()
    tree = encoder.encode(model, name)
    header = {"format": container.FORMAT, "version": container.VERSION, "mercer": _version(), "type": name}
    return {**header, "model": tree}, encoder.arrays


def _solve(model: Any) -> None:
    """Have what is computed on demand computed: prediction must not depend on the machine that loads the model."""
    with suppress(AttributeError, ValueError):  # not fitted, or there is no model, as prediction will tell
        expansion = getattr(model, "expansion_", model)
        _ = expansion._float32_is_safe


def _version() -> str:
    try:
        return version("mercer")
    except PackageNotFoundError:
        return "unknown"


def _loaded(file: IO[bytes], name: str) -> Any:
    try:
        return _read(file)
    except ArchiveError as error:
        msg = f"{name} cannot be loaded: {error}"
        raise ArchiveError(msg) from error
    except _BROKEN as error:
        msg = f"{name} is not a mercer archive, or damaged: {error}"
        raise ArchiveError(msg) from error


def _read(file: IO[bytes]) -> Any:
    file.seek(0, os.SEEK_END)
    size = file.tell()
    file.seek(0)
    if file.read(len(container.MAGIC)) != container.MAGIC:
        msg = "it is not a mercer archive: it does not begin like one."
        raise ArchiveError(msg)
    with zipfile.ZipFile(file) as archive:
        header = container.read_header(archive, size)
        decoder = Decoder(container.read_arrays(archive, header))
    try:
        model = decoder.decode(header["model"])
        decoder.check_all_used()
    except ArchiveError as error:
        if header["mercer"] == _version():
            raise
        msg = f"{error} It was written by mercer {header['mercer'][:40]}, and this is {_version()}."
        raise ArchiveError(msg) from error
    if registry.name_of(type(model)) != header["type"] or not registry.is_model(header["type"]):
        msg = f"its type is said to be {header['type'][:40]!r}, which it is not, or which no archive has."
        raise ArchiveError(msg)
    return model


def _check_file(file: Any, method: str) -> None:
    if not hasattr(file, method) or isinstance(file, io.TextIOBase):
        msg = f"path must be a str, a path or a binary file object, got {type(file).__name__}."
        raise TypeError(msg)


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """A file beside the path, which takes its place when all is written and on the disk, and else vanishes."""
    path = path.resolve()  # of a symbolic link, the file it points to is replaced
    if path.is_dir():
        msg = f"{path} is a directory; give the name of a file."
        raise IsADirectoryError(msg)
    if path.exists() and not path.is_file():
        msg = f"{path} is a device or a pipe, which is not to be replaced: open it, and give the file object."
        raise ArchiveError(msg)
    temporary = path.with_name(f".mercer-{secrets.token_hex(8)}.tmp")
    # Not tempfile: a new file is to have the permissions that files of this user have.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Have the new name on the disk, too, where a directory can be opened for that."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
