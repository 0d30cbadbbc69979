"""Data that several files of this folder learn from."""

import pytest

from tests.compression_cases import make_rows


@pytest.fixture(scope="module")
def rows():
    return make_rows(200, 0)


@pytest.fixture(scope="module")
def queries():
    return make_rows(300, 1)
