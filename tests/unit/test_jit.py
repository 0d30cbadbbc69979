"""Compiled code on disk is not used when a file that it was made from has changed."""

import subprocess
import sys

import pytest

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from package.loop import answer
print(answer(1.0), sum(answer.stats.cache_hits.values()))
"""
LOOP = """
from mercer._jit import jit
from package.constants import LIMIT

@jit
def answer(x):
    return x + LIMIT
"""


def run(folder):
    done = subprocess.run([sys.executable, "-c", CODE, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_constants_of_other_files_count(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "constants.py").write_text("LIMIT = 2.0\n")
    (package / "loop.py").write_text(LOOP)
    assert run(tmp_path) == ["3.0", "0"]
    assert run(tmp_path) == ["3.0", "1"]
    (package / "constants.py").write_text("LIMIT = 30.0\n")
    assert run(tmp_path) == ["31.0", "0"]


def test_the_package_itself_is_stamped():
    from mercer.solvers.recursive import rows

    index = getattr(getattr(rows.learn_rows, "_cache", None), "_cache_file", None)
    if index is None:
        pytest.skip("no directory for compiled code can be written")
    assert isinstance(index._source_stamp[1], str)
