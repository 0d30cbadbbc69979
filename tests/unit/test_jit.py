"""Compiled code on disk is used when nothing it was made from has changed, and only then."""

import os
import subprocess
import sys
import textwrap

import pytest

from mercer._compiled_cache import reached_modules

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from package.loop import answer
print(answer(1.0), sum(answer.stats.cache_hits.values()))
"""
LOOP = """
from typing import TYPE_CHECKING
from mercer._jit import jit
from package.constants import LIMIT
if TYPE_CHECKING:
    from package.types_only import Number

@jit
def answer(x):
    return x + LIMIT
"""
AT_ONCE = 3


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    for name, text in {
        "__init__": "",
        "constants": "from package import deeper\nLIMIT = 2.0 * deeper.HALF_LIMIT / 2.0\n",
        "deeper": "HALF_LIMIT = 2.0\n",
        "loop": LOOP,
        "types_only": "Number = float\n",
        "unrelated": "X = 1\n",
    }.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def start(package, code=CODE, **options):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(package.parent)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def run(package, code=CODE, **options):
    process = start(package, code, **options)
    out, error = process.communicate()
    assert process.returncode == 0, error
    return out.split()


def test_constants_of_files_that_are_reached_count_and_other_files_do_not(package):
    assert run(package) == ["3.0", "0"]
    for name in ("unrelated", "types_only", "__init__", "new"):
        with (package / f"{name}.py").open("a") as file:
            file.write("X = 2\n")
    assert run(package) == ["3.0", "1"]
    (package / "deeper.py").write_text("HALF_LIMIT = 60.0\n")
    assert run(package) == ["61.0", "0"]
    (package / "constants.py").write_text("LIMIT = 30.0\n")
    assert run(package) == ["31.0", "0"]


def test_a_file_edited_after_import_does_not_pass_for_what_is_in_memory(package):
    edit = "(__import__('pathlib').Path(sys.argv[1]) / 'package/constants.py').write_text('LIMIT = 30.0')\nprint("
    assert run(package, CODE.replace("print(", edit)) == ["3.0", "0"]
    assert run(package) == ["31.0", "0"]  # and not the 3.0 that was compiled before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of files are a matter of Unix")
def test_a_full_disk_is_no_error(package):
    full = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sys.dont_write_bytecode = True
        import mercer._jit
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    """
    code = CODE.replace("import sys\n", "import sys\n" + textwrap.dedent(full))
    assert run(package, code) == ["3.0", "0"]
    assert run(package, code) == ["3.0", "0"]
    assert not list(package.rglob("*.tmp"))


@pytest.mark.slow
def test_processes_that_compile_at_once(package):
    processes = [start(package) for _ in range(AT_ONCE)]
    answers = [process.communicate() for process in processes]
    assert [out.split()[0] for out, _ in answers] == ["3.0"] * AT_ONCE, answers
    assert run(package) == ["3.0", "1"]


def test_modules_that_compiled_code_can_reach():
    import mercer.estimators.compact
    import mercer.solvers.recursive  # noqa: F401

    reached = reached_modules("mercer.engine.neighbours")
    assert {"mercer.engine.neighbours", "mercer.engine.all_pairs", "mercer._jit", "mercer._typing"} <= reached
    assert not {"mercer", "mercer.engine", "mercer.engine.sparse_kernel", "mercer.engine.statistics"} & reached
    # Loops over sparse matrices stand apart from the classes that use them, which import half of the package.
    assert len(reached_modules("mercer.engine.sparse_loops")) < 6
    assert "mercer.solvers.dense" in reached_modules("mercer.solvers.compiled_blas")
