"""Archives that earlier versions wrote: each is read with the answers it gave then, or refused by name."""

import re
from pathlib import Path

import numpy as np
import pytest

import mercer
from mercer.exceptions import ArchiveError
from mercer.persistence import container
from tests.golden.make import HERE, answers

FORMATS = sorted(HERE.glob("format_*"))
FILES = sorted(HERE.glob("format_*/*.mercer"))
# Formats that this version reads; the others it refuses. One that is given up is taken out here, on purpose.
READ = {"format_2"}
TOLERANCE = 1e-9  # machines round differently


def test_there_are_golden_files():
    assert {path.name for path in FORMATS} >= {"format_1", f"format_{container.VERSION}"}
    assert sum(path.stat().st_size for path in HERE.rglob("*") if path.suffix in (".mercer", ".npz")) < 400_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_files_are_read_with_the_same_answers_or_refused_by_name(path):
    if path.parent.name not in READ:
        number = path.parent.name.removeprefix("format_")
        words = rf"written by mercer \S+ in version {number} of the format, .*load it with the mercer that wrote it"
        with pytest.raises(ArchiveError, match=words):
            mercer.load(path)
        return
    _assert_same_answers(path, answers(mercer.load(path)))


def _assert_same_answers(path: Path, found):
    with np.load(path.parent / "answers.npz", allow_pickle=False) as recorded:
        expected = {re.sub(r"^.*\.", "", key): recorded[key] for key in recorded if key.startswith(f"{path.stem}.")}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype.kind == "f":
            # all outputs shared one standard deviation when it was saved
            shared = values[:, np.newaxis] if found[name].ndim > values.ndim else values
            same = np.broadcast_to(shared, found[name].shape)
            np.testing.assert_allclose(found[name], same, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        else:
            np.testing.assert_array_equal(found[name], values)


def test_every_class_that_can_be_saved_by_itself_has_a_golden_file_of_this_format():
    estimators = {name for name in mercer.__all__ if hasattr(getattr(mercer, name), "get_params")}
    stems = {path.stem.replace("_", "") for path in FILES if path.parent.name == f"format_{container.VERSION}"}
    assert all(any(stem.startswith(name.lower()) for stem in stems) for name in estimators)
