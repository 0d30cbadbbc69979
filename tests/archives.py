"""Archives taken apart and put together again, truly or falsely, and models compared by all that they are."""

import hashlib
import inspect
import io
import json
import zipfile
from functools import cached_property

import numpy as np
import pytest
from scipy import sparse

from mercer.exceptions import ArchiveError
from mercer.persistence.archive import load, save
from tests.walks import ANSWERS

HEADER, DIGEST = "header.json", "header.sha256"


def saved(model):
    file = io.BytesIO()
    save(model, file)
    return file.getvalue()


def loaded(data):
    return load(io.BytesIO(data))


def refused(data, message):
    with pytest.raises(ArchiveError, match=message):
        loaded(data)


def draw():
    """Rows and targets of small models."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    return X, np.sin(X[:, 0])


def names_in(directory):
    return [path.name for path in directory.iterdir()]


def taken_apart(data):
    """The header, and the content of the other members by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    del members[DIGEST]
    return json.loads(members.pop(HEADER)), members


def digest_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(DIGEST)


def put_together(header, members, *, text=None, digest=None, compression=zipfile.ZIP_STORED):
    """An archive whose checksums and digest (unless one is given) are right, whatever else it says."""
    header = json.loads(json.dumps(header)) if text is None else header
    if text is None:
        for entry in header["arrays"] if isinstance(header.get("arrays"), list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"] in members:
                entry["crc32"] = zipfile.crc32(members[entry["name"]])
        text = json.dumps(header).encode()
    digest = digest or f"{hashlib.sha256(text).hexdigest()}  {HEADER}\n".encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in [(HEADER, text), (DIGEST, digest), *members.items()]:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return file.getvalue()


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), **options)
    return file.getvalue()


def array_in(members, number):
    return np.lib.format.read_array(io.BytesIO(members[f"array_{number}.npy"]), allow_pickle=False)


def with_array(header, members, number, array):
    """The archive with another array in the place of one, all that is said of it being true."""
    entry = header["arrays"][number]
    members = members | {entry["name"]: npy(array)}
    order = "C" if array.flags.c_contiguous else "F"
    changed = {"dtype": array.dtype.str, "shape": list(array.shape), "order": order}
    entries = list(header["arrays"])
    entries[number] = entry | changed | {"size": len(members[entry["name"]])}
    return put_together(header | {"arrays": entries}, members)


def places(tree, path=()):
    """Where there is a value in a JSON tree."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def replaced(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


def find(tree, name):
    """The attributes of the first object of that name in a JSON tree."""
    for path in places(tree):
        value = at(tree, path)
        if path and path[-1] == "object" and value[0] == name:
            return value[1]
    raise LookupError(name)


def answers(model, X):
    """All that a model says of rows."""
    spreads = [("predict", {"return_std": True}), ("predict", {"return_cov": True})]
    found = []
    for name, options in [*((name, {}) for name in ANSWERS), *spreads]:
        method = getattr(model, name, None)
        if method is None or not set(options) <= set(inspect.signature(method).parameters):
            continue
        try:
            found.append(method(X, **options))
        except ValueError as error:  # a model without a variance says so
            found.append(str(error))
    return found


# Computed on demand, and not stored.
COMPUTED = {"_problem", "calibration", "_float32_is_safe", "log_likelihood", "mean"}


def assert_alike(mine, theirs, where="model"):
    """The same classes, attributes, dtypes, shapes and bits, all the way down; written without the archive's code."""
    assert type(mine) is type(theirs), where
    if isinstance(mine, np.ndarray):
        _assert_same_array(mine, theirs, where)
    elif isinstance(mine, (list, tuple)):
        assert len(mine) == len(theirs), where
        for i, pair in enumerate(zip(mine, theirs, strict=True)):
            assert_alike(*pair, f"{where}[{i}]")
    elif isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), where
        for key in mine:
            assert_alike(mine[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(mine, np.random.RandomState):
        assert_alike(mine.get_state(legacy=False), theirs.get_state(legacy=False), where)
    elif isinstance(mine, np.random.Generator):
        assert_alike(mine.bit_generator.state, theirs.bit_generator.state, where)
    elif sparse.issparse(mine):
        parts = ("shape", "data", "indices", "indptr")
        assert_alike([getattr(mine, part) for part in parts], [getattr(theirs, part) for part in parts], where)
    elif type(mine).__module__.startswith("mercer."):
        assert_alike(_state(mine), _state(theirs), where)
    else:
        assert mine == theirs or (mine != mine and theirs != theirs), where  # noqa: PLR0124  NaN


def _assert_same_array(mine, theirs, where):
    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), where
    if mine.dtype == object:
        assert_alike(mine.tolist(), theirs.tolist(), where)
    else:
        assert np.ascontiguousarray(mine).tobytes() == np.ascontiguousarray(theirs).tobytes(), where
        assert mine.flags.f_contiguous == theirs.flags.f_contiguous or not mine.flags.forc, where


def _state(member):
    state = dict(member.__getstate__() or {}) if hasattr(member, "__dict__") else {}
    lazy = {
        name
        for base in type(member).__mro__
        for name, value in vars(base).items()
        if isinstance(value, cached_property) and (name in COMPUTED or name == "_solution")
    }
    return {name: value for name, value in state.items() if name not in lazy | {"_calibration"}}
