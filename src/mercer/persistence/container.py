r"""The zip file of an archive: what is in it, and what must hold before any of it is read.

========================  ===========================================================================================
member                    content
========================  ===========================================================================================
``header.json``           format, versions, type, the list of arrays (name, dtype, shape, order, size, CRC), the model
``header.sha256``         the digest of the header, as ``sha256sum`` writes it
``array_0.npy``, ...      arrays, as ``numpy.save`` writes them (format 1.0)
========================  ===========================================================================================

Nothing is compressed, so sizes in the zip's directory cannot exceed the file's, and an archive takes as much memory as
it has bytes. Times are fixed, so that the same model is the same bytes. The header of a .npy file is not parsed: it
must be, byte for byte, what the archive's own header says.
"""

import hashlib
import json
import math
import os
import struct
import zipfile
import zlib
from typing import IO, Any

import numpy as np

from mercer._stored.checks import need, refusing
from mercer._typing import AnyArray
from mercer.persistence.decoding import as_dtype, as_shape, check_elements

_FORMAT, VERSION, _OLDEST = "mercer archive", 2, 2  # the oldest version that is read
_MAGIC = b"PK\x03\x04"

_HEADER, _DIGEST = "header.json", "header.sha256"
_LARGEST_HEADER = 2**23  # bytes; that of a usual model has some thousand, and JSON takes twenty times its bytes
_CHUNK = 2**20
_ENCRYPTED, _PATCHED, _STRONG = 0x1, 0x20, 0x40
_DESCRIBED = 0x8  # sizes follow the member, as in files that were written to a pipe
_LOCAL, _END = struct.Struct("<4s22x2H"), struct.Struct("<4s16xH")
_AFTER = (16, 24)  # bytes of those sizes
_FIELDS = {"format": str, "version": int, "mercer": str, "type": str, "arrays": list, "model": dict}
_ENTRY = {"name": str, "dtype": str, "shape": list, "order": str, "size": int, "crc32": int}


def write(file: IO[bytes], header: dict[str, Any], arrays: list[AnyArray]) -> None:
    """Write an archive; the format and the list of arrays are added to the header."""
    # Elements one after the other, in the order that an array has if it has one.
    arrays = [array if array.flags.forc else np.ascontiguousarray(array) for array in arrays]
    entries = [_entry(i, array) for i, array in enumerate(arrays)]
    header = {"format": _FORMAT, "version": VERSION, "arrays": entries} | header
    text = json.dumps(header, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()
    need(len(text) <= _LARGEST_HEADER, f"the model without its arrays takes {len(text)} bytes: more than is allowed.")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, _HEADER, text)
        _add(archive, _DIGEST, _digest(text))
        for entry, array in zip(entries, arrays, strict=True):
            _add(archive, entry["name"], _npy_header(array.dtype, array.shape, entry["order"]), _flat(array))


def _entry(number: int, array: AnyArray) -> dict[str, Any]:
    order = "C" if array.flags.c_contiguous else "F"
    head, body = _npy_header(array.dtype, array.shape, order), _flat(array)
    return {
        "name": f"array_{number}.npy",
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "order": order,
        "size": len(head) + len(body),
        "crc32": zlib.crc32(body, zlib.crc32(head)),
    }


def _flat(array: AnyArray) -> memoryview:
    if array.nbytes == 0:
        return memoryview(b"")
    row_major = array if array.flags.c_contiguous else array.T
    return row_major.reshape(-1).view(np.uint8).data


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> bytes:
    sizes = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': {order == 'F'}, 'shape': {sizes}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def _add(archive: zipfile.ZipFile, name: str, *parts: bytes | memoryview) -> None:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr = 3, 0o100644 << 16  # the same everywhere
    info.file_size = sum(map(len, parts))  # for zipfile to know whether it needs the format for large files
    with archive.open(info, "w") as member:
        for part in parts:
            for start in range(0, len(part), _CHUNK):
                member.write(part[start : start + _CHUNK])


def _digest(text: bytes) -> bytes:
    return f"{hashlib.sha256(text).hexdigest()}  {_HEADER}\n".encode()


def read(file: IO[bytes]) -> tuple[dict[str, Any], list[AnyArray]]:
    """The header and the arrays of an archive, all checked."""
    file.seek(0)
    need(file.read(len(_MAGIC)) == _MAGIC, "it is not a mercer archive: it does not begin like one.")
    with zipfile.ZipFile(file) as archive:
        header = _read_header(archive, file)
        return header, [_read(archive, entry) for entry in header["arrays"]]


def _read_header(archive: zipfile.ZipFile, file: IO[bytes]) -> dict[str, Any]:
    members = _members(archive, file)
    need(_HEADER in members and _DIGEST in members, f"there is no {_HEADER} in it.")
    need(members[_HEADER].file_size <= _LARGEST_HEADER, f"{_HEADER} is larger than {_LARGEST_HEADER} bytes.")
    need(members[_DIGEST].file_size == len(_digest(b"")), f"{_DIGEST} is no digest.")
    text = archive.read(members[_HEADER])
    header = _parsed(text)
    need(header.get("format") == _FORMAT, f"{_HEADER} is not that of a mercer archive.")
    version: Any = header.get("version")
    need(type(version) is int and version >= 1, "the format has no version.")
    writer = f"it was written by mercer {str(header.get('mercer'))[:40]} in version {version} of the format"
    reader = f"and this mercer reads {VERSION}"
    need(version <= VERSION, f"{writer}, {reader}: upgrade mercer.")
    need(version >= _OLDEST, f"{writer}, {reader}: load it with the mercer that wrote it, or fit the model again.")
    need(archive.read(members[_DIGEST]) == _digest(text), f"{_HEADER} does not match its digest: it was changed.")
    _check_fields(header, _FIELDS, _HEADER)
    _check_entries(header["arrays"], members)
    return header


def _members(archive: zipfile.ZipFile, file: IO[bytes]) -> dict[str, zipfile.ZipInfo]:
    """Members by name; bytes before, between and after them, which ``zipfile`` passes over, are refused."""
    file.seek(-_END.size, os.SEEK_END)
    need(_END.unpack(file.read(_END.size)) == (b"PK\5\6", 0), "something follows the archive.")
    stray = "there are bytes in it that belong to no member."
    members: dict[str, zipfile.ZipInfo] = {}
    begins = {0}  # where a member, or the directory, may begin
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        name = info.filename[:40]
        need(info.filename not in members, "a member is there twice.")
        need(not info.flag_bits & (_ENCRYPTED | _PATCHED | _STRONG), f"{name!r} is encrypted or a patch.")
        need(info.compress_type == zipfile.ZIP_STORED, f"{name!r} is compressed, which no member is.")
        need(info.file_size == info.compress_size, f"{name!r} has two sizes.")
        need(info.header_offset in begins, stray)
        file.seek(info.header_offset)
        _, *lengths = _LOCAL.unpack(file.read(_LOCAL.size))
        stop = info.header_offset + _LOCAL.size + sum(lengths) + info.compress_size
        begins = {stop + more for more in (_AFTER if info.flag_bits & _DESCRIBED else (0,))}
        members[info.filename] = info
    need(archive.start_dir in begins, stray)
    return members


def _parsed(text: bytes) -> dict[str, Any]:
    with refusing(f"{_HEADER} is not JSON"):
        header = json.loads(text.decode(), object_pairs_hook=_unique)
    need(isinstance(header, dict), f"{_HEADER} is no JSON object.")
    return dict(header)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    need(len(result) == len(pairs), f"a key of {_HEADER} is there twice.")
    return result


def _check_fields(given: Any, fields: dict[str, type], where: str) -> None:
    need(isinstance(given, dict) and given.keys() == fields.keys(), f"{where} does not have the fields {[*fields]}.")
    for name, kind in fields.items():
        need(type(given[name]) is kind, f"{name!r} of {where} is not of type {kind.__name__}.")


def _check_entries(entries: list[Any], members: dict[str, zipfile.ZipInfo]) -> None:
    for i, entry in enumerate(entries):
        name = f"array_{i}.npy"
        _check_fields(entry, _ENTRY, name)
        need(entry["name"] == name, f"array {i} is called {entry['name'][:40]!r}, not {name!r}.")
        need(name in members, f"{name} is missing.")
        shape, dtype = as_shape(entry["shape"], name), as_dtype(entry["dtype"])
        need(entry["order"] in ("C", "F"), f"{name} has no shape in order C or F.")
        size = len(_npy_header(dtype, shape, entry["order"])) + math.prod(shape) * dtype.itemsize
        need(size == entry["size"], f"{name} does not have the size of its shape, {shape}.")
        need(members[name].file_size == size, f"{name} has {members[name].file_size} bytes, not {size}.")
        need(entry["crc32"] == members[name].CRC, f"{name} is not the array that was saved: its checksum differs.")
    extra = members.keys() - {_HEADER, _DIGEST} - {entry["name"] for entry in entries}
    need(not extra, f"there is a member {min(extra, default='')[:40]!r}, which does not belong to it.")


def _read(archive: zipfile.ZipFile, entry: dict[str, Any]) -> AnyArray:
    dtype, shape = as_dtype(entry["dtype"]), tuple(entry["shape"])
    array = np.empty(shape, dtype=dtype, order=entry["order"])
    head, body = _npy_header(dtype, shape, entry["order"]), _flat(array)
    with archive.open(entry["name"]) as member:
        need(member.read(len(head)) == head, f"{entry['name']} does not have the dtype and shape of the header.")
        for start in range(0, len(body), _CHUNK):
            part = body[start : start + _CHUNK]
            content = member.read(len(part))
            need(len(content) == len(part), f"{entry['name']} ends too early.")
            part[:] = content
        need(not member.read(1), f"{entry['name']} is too long.")
    check_elements(array)
    return array
