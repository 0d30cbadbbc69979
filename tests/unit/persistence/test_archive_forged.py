"""Archives that somebody made to look like one: each trick is refused, and the message says which it was."""

import io
import json
import pickle
import struct
import warnings
import zipfile

import numpy as np
import pytest

from mercer import NystromRegressor
from mercer.exceptions import ArchiveError
from tests.archives import (
    DIGEST,
    HEADER,
    at,
    draw,
    find,
    loaded,
    npy,
    places,
    put_together,
    replaced,
    saved,
    taken_apart,
)

SPRUNG = []


def spring(*_args):
    SPRUNG.append(True)


class Trap:
    def __reduce__(self):
        return (spring, ())


@pytest.fixture(scope="module")
def data():
    return saved(NystromRegressor(n_basis=5, random_state=0, noise=0.1, intercept=False).fit(*draw()))


@pytest.fixture
def parts(data):
    return taken_apart(data)


def refused(archive, message):
    with pytest.raises(ArchiveError, match=message):
        loaded(archive)
    assert not SPRUNG


# ------------------------------------------------------------------------------------------------------- the zip


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\3\4", b"PK\3\4" + bytes(1000), b"{}", pickle.dumps(Trap())])
def test_other_files(content):
    refused(content, "the file (is not|cannot be loaded: it is not) a mercer archive")


def test_other_zips():
    refused(_zip({"a": b"1"}), "there is no header.json in it")
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3), b=np.array([Trap()], dtype=object))
    refused(file.getvalue(), "there is no header.json in it")


def test_truncated_files(data):
    for stop in range(0, len(data), 97):
        refused(data[:stop], "not a mercer archive")


def test_something_before_the_archive(data):
    refused(b"#!/bin/sh\n" + data, "it does not begin like one")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "C:\\x", "array_99.npy", "sub/array_0.npy", "é"])
def test_members_that_do_not_belong(parts, name):
    header, members = parts
    refused(put_together(header, members | {name: b"1"}), "which does not belong to it")


def _zip(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, content)
    return file.getvalue()


def _members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_members_twice(data, which):
    members = _members(data)
    refused(_zip([*members, members[which]]), "a member is there twice")


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_members(data, compression):
    refused(_zip(_members(data), compression), "is compressed, which no member is")


def test_bombs(parts):
    """A gigabyte of zeros in a megabyte: refused by the directory, before any of it is read."""
    header, members = parts
    zeros = bytes(2**24)
    entry = header["arrays"][0] | {"dtype": "|u1", "shape": [2**24 - 128], "size": 2**24}
    bomb = put_together(
        header | {"arrays": [entry, *header["arrays"][1:]]},
        members | {"array_0.npy": zeros},
        compression=zipfile.ZIP_DEFLATED,
    )
    assert len(bomb) < 2**20
    refused(bomb, "is compressed, which no member is")


def _patched(data, signature, offset, form, value, which=0):
    """The archive with a number of a directory entry changed."""
    place = -1
    for _ in range(which + 1):
        place = data.index(signature, place + 1)
    damaged = bytearray(data)
    struct.pack_into(form, damaged, place + offset, value)
    return bytes(damaged)


CENTRAL = b"PK\1\2"


def test_encrypted_members(data):
    refused(_patched(data, CENTRAL, 8, "<H", 1, which=2), "is encrypted or a patch")
    refused(_patched(data, CENTRAL, 8, "<H", 0x20, which=2), "is encrypted or a patch")


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_directories_that_lie(data, which):
    refused(_patched(data, CENTRAL, 16, "<I", 0, which), "the file")  # CRC
    refused(_patched(data, CENTRAL, 20, "<I", 10, which), "has two sizes")
    refused(_patched(data, CENTRAL, 24, "<I", 10, which), "has two sizes")
    refused(_patched(data, CENTRAL, 42, "<I", 7, which), "bytes in it that belong to no member")  # where it begins
    longer = _patched(_patched(data, CENTRAL, 20, "<I", 2**31, which), CENTRAL, 24, "<I", 2**31, which)
    refused(longer, "bytes in it that belong to no member")


def test_members_that_overlap(data):
    """Two names for the same bytes: their sizes add up to more than there is, or their names do not match."""
    members = _members(data)
    names = [name for name, _ in members]
    second, third = names.index("array_0.npy"), names.index("array_1.npy")
    start = struct.unpack_from("<I", data, _offset(data, second) + 42)[0]
    refused(_patched(data, CENTRAL, 42, "<I", start, third), "the file")


def _offset(data, which):
    place = -1
    for _ in range(which + 1):
        place = data.index(CENTRAL, place + 1)
    return place


# ---------------------------------------------------------------------------------------------------- the header


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "not that of a mercer archive"),
        (
            {"version": 3},
            r"it was written by mercer 0\..* in version 3 of the format, and this mercer reads 2: upgrade mercer",
        ),
        (
            {"version": 1},
            r"written by mercer 0\..* in version 1 of the format, and this mercer reads 2: load it with the mercer",
        ),
        ({"version": 0}, "the format has no version"),
        ({"version": "1"}, "the format has no version"),
        ({"version": True}, "the format has no version"),
        ({"mercer": 1}, "'mercer' of header.json is not of type str"),
        ({"type": ["NystromRegressor"]}, "'type' of header.json is not of type str"),
        ({"type": "ExactRegressor"}, "said to be 'ExactRegressor', which it is not"),
        ({"arrays": {}}, "'arrays' of header.json is not of type list"),
        ({"arrays": []}, "there is a member 'array_0.npy'"),
        ({"model": []}, "'model' of header.json is not of type dict"),
        ({"model": {"object": ["Variance", {}]}}, "Variance lacks the attribute"),
        ({"model": {"object": ["Gaussian", {"length_scale": 1.0, "amplitude": 1.0}]}}, "belongs to nothing"),
        ({"more": 1}, "does not have the fields"),
    ],
)
def test_fields_of_the_header(parts, changes, message):
    header, members = parts
    refused(put_together(header | changes, members), message)


def test_a_header_without_a_field(parts):
    header, members = parts
    for name in header:
        less = {key: value for key, value in header.items() if key != name}
        refused(put_together(less, members), "cannot be loaded")


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
        (b'{"format": NaN}', "not that of a mercer archive"),
        (b'{"format": Infinity}', "not that of a mercer archive"),
        (b'{"format": 1, "format": 1}', "there twice"),
        (b'{"format": ' + b"9" * 5000 + b"}", "not JSON"),
        (DEEP, "not JSON"),
        (b'{"model": ' + DEEP + b"}", "not JSON"),
        (b" " * (2**23 + 1), "larger than 8388608 bytes"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_headers_that_are_no_json_or_too_much_of_it(text, message):
    refused(put_together(None, {}, text=text), message)


def test_headers_that_do_not_match_their_digest(data):
    members = dict(_members(data))
    header = json.loads(members[HEADER])
    header["model"] = replaced(header["model"], ("object", 1, "noise"), 0.2)
    refused(_zip(members | {HEADER: json.dumps(header).encode()}), "does not match its digest: it was changed")
    refused(_zip(members | {DIGEST: members[DIGEST].upper()}), "does not match its digest")
    refused(_zip(members | {DIGEST: b""}), "no digest")
    del members[DIGEST]
    refused(_zip(members), "there is no header.json in it")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../array_0.npy"}, "array 0 is called '../array_0.npy', not 'array_0.npy'"),
        ({"name": "array_1.npy"}, "array 0 is called"),
        ({"dtype": "|O"}, "no dtype '|O' in an archive"),
        ({"dtype": "O"}, "no dtype 'O' in an archive"),
        ({"dtype": "<f8,<f8"}, "no dtype"),
        ({"dtype": "<c16"}, "no dtype"),
        ({"dtype": "|V8"}, "no dtype"),
        ({"dtype": "=f8"}, "no dtype"),
        ({"dtype": "<M8[xx]"}, "no dtype"),
        ({"dtype": "<f4"}, "does not have the size of its shape"),
        ({"shape": [2**31, 2**31]}, "does not have the size of its shape"),
        ({"shape": [2**63]}, "has no shape"),
        ({"shape": [-1, -10]}, "has no shape"),
        ({"shape": [1.0]}, "has no shape"),
        ({"shape": [1] * 40}, "has no shape"),
        ({"order": "K"}, "has no shape"),
        ({"size": 2**40}, "does not have the size of its shape"),
        ({"crc": 1}, "does not have the fields"),
        ({"crc32": 1.0, "name": "array_00.npy"}, "is not of type int"),
    ],
)
def test_entries_of_arrays(parts, changes, message):
    header, members = parts
    entries = [header["arrays"][0] | changes, *header["arrays"][1:]]
    refused(put_together(header | {"arrays": entries}, members), message)


def test_checksums_are_in_the_header_too(data):
    """So that an array cannot be exchanged for another one of its shape without a new digest."""
    members = dict(_members(data))
    content = bytearray(members["array_0.npy"])
    content[-1] ^= 1
    refused(_zip(members | {"array_0.npy": bytes(content)}), "its checksum differs")


def test_npy_headers_are_compared_not_parsed(parts):
    header, members = parts
    content = members["array_0.npy"]
    for old, new in [(b"<i8", b">i8"), (b"False", b"True "), (b"\x01\x00", b"\x02\x00"), (b"'descr'", b"'other'")]:
        assert old in content
        refused(put_together(header, members | {"array_0.npy": content.replace(old, new, 1)}), "dtype and shape of the")


def test_pickled_arrays_are_never_read(parts):
    header, members = parts
    planted = npy(np.array([Trap()] * 3, dtype=object), allow_pickle=True)
    entry = header["arrays"][0] | {"dtype": "|O", "shape": [3], "size": len(planted)}
    entries = [entry, *header["arrays"][1:]]
    refused(put_together(header | {"arrays": entries}, members | {"array_0.npy": planted}), "no dtype")
    honest = header["arrays"][0]
    planted = planted + bytes(max(0, honest["size"] - len(planted)))
    refused(put_together(header, members | {"array_0.npy": planted[: honest["size"]]}), "dtype and shape of the header")


# ------------------------------------------------------------------------------------------------------ the model


@pytest.mark.parametrize(
    "value",
    [
        {"object": ["os.system", {}]},
        {"object": ["builtins:eval", {}]},
        {"object": ["Function", {"function": {"function": "unchanged"}, "amplitude": 1.0}]},
        {"object": ["Trap", {}]},
        {"object": ["mercer.kernels.gaussian:Gaussian", {}]},
        {"object": ["__import__", {}]},
        {"function": "builtins.eval"},
        {"function": ["unchanged"]},
        {"reduce": ["os.system", ["true"]]},
        {"py/object": "os.system"},
        {"__class__": "Trap"},
        {"object": ["Gaussian", {"__class__": "Trap", "length_scale": 1.0, "amplitude": 1.0}]},
        {"object": ["Gaussian", {"length_scale": 1.0, "amplitude": 1.0, "bind": 1}]},
        {"object": ["Gaussian", {"length_scale": 1.0}]},
        {"object": ["Gaussian"]},
        {"object": {}},
        {},
        {"tuple": [], "list": []},
        {"tuple": 1},
        {"array": -1},
        {"array": 10**6},
        {"array": True},
        {"float": "1e5"},
        {"int": "12"},
        {"int": "0x" + "f" * 5000},
        {"bytes": "!"},
        {"bytes": 3},
        {"dtype": "O"},
        {"scalar": ["<f8", "AAAA"]},
        {"scalar": ["|b1", "Ag=="]},
        {"scalar": ["<U1", "////fw=="]},
        {"dict": [[1]]},
        {"dict": [[[], 1]]},
        {"dict": [[1, 1], [1, 2]]},
        {"slice": [1, 2]},
        {"slice": ["a", 2, 3]},
        {"objects": [[2], ["a"]]},
        {"objects": [[-1], ["a"]]},
        {"ragged": [0, 0]},
        {"table": []},
        {"sparse": ["coo", [5, 2], 0, 0, 0]},
        {"sparse": ["csr", [5, 2], 0, 0, 0]},
        {"generator": ["os", {}]},
        {"generator": ["PCG64", {"dict": []}]},
        {"random_state": 3},
        {"random_state": {"dict": [["state", {"dict": [["pos", 10**6]]}]]}},
        1e999,
        float("nan"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_values_that_are_none(parts, value):
    header, members = parts
    text = json.dumps(replaced(header, ("model", "object", 1, "random_state"), "X"))
    text = text.replace('"X"', json.dumps(value).replace("Infinity", "1e999")).encode()
    crc = {entry["name"]: entry["crc32"] for entry in header["arrays"]}
    assert {name: zipfile.crc32(content) for name, content in members.items()} == crc
    refused(put_together(None, members, text=text), "cannot be loaded")


def test_random_states_that_would_read_beyond_their_memory():
    for state in (np.random.RandomState(0), np.random.Generator(np.random.Philox(0))):
        header, members = taken_apart(saved(NystromRegressor(random_state=state, noise=0.1, intercept=False)))
        place = next(path for path in places(header) if path and at(header, path) in ("pos", "buffer_pos"))
        for position in (-1, 625, 2**40, 0.5, None, "1", [1]):
            forged = replaced(header, (*place[:-1], 1), position)
            if position == 0.5:
                continue
            refused(put_together(forged, members), "the state of a random generator is not one")


def test_values_nested_too_deep(parts):
    header, members = parts
    value = None
    for _ in range(150):
        value = [value]
    refused(put_together(replaced(header, ("model", "object", 1, "n_jobs"), value), members), "more than 100 deep")


def test_later_versions_are_told_from_forgeries(parts):
    header, members = parts
    changed = json.loads(json.dumps(header | {"mercer": "99.0"}))
    find(changed["model"], "Summary")["more"] = 1
    refused(put_together(changed, members), r"'more', which an archive does not know. It was written by mercer 99\.0")
