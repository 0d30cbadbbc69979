"""Hypothesis profiles: the same cases on every run in CI, new ones on a developer's machine, few in the fast lane.

And the files that are not in the fast lane.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The first example of a test may pay for compilation, so there is no deadline.
settings.register_profile("local", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("check", deadline=None, max_examples=10)  # make check
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Whole files that make check leaves out.
SLOW = ("tests/papers", "tests/test_readme.py", "tests/unit/engine/test_sequential_long.py")


def pytest_collection_modifyitems(items):
    root = Path(__file__).parent.parent
    for item in items:
        if item.path.is_relative_to(root) and item.path.relative_to(root).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
