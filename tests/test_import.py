"""Importing the package is quick because it loads nothing until it is used."""

import importlib.resources
import subprocess
import sys

import pytest

import mercer

HEAVY = ["sklearn", "numba", "scipy", "numpy", "joblib", "matplotlib", "dask", "pandas"]


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("statement", ["import mercer", "import mercer; dir(mercer)", "import mercer; mercer.__all__"])
def test_importing_loads_no_dependency(statement):
    assert run(f"import sys; {statement}; print(*[name for name in {HEAVY} if name in sys.modules])") == []


def test_using_a_name_loads_what_it_needs_and_importing_everything_compiles_nothing():
    code = (
        "import mercer, sys\n"
        "mercer.ExactRegressor\n"
        "print('sklearn' in sys.modules)\n"
        "from mercer import *\n"
        "print(set(mercer.__all__) <= set(dir()))\n"
        "modules = [m for name, m in sys.modules.items() if name.startswith('mercer.')]\n"
        "compiled = [v for m in modules for v in vars(m).values() if getattr(v, 'signatures', None)]\n"
        "print(len(modules) > 50, len(compiled))"
    )
    assert run(code) == ["True", "True", "True", "0"]


@pytest.mark.parametrize("name", mercer.__all__)
def test_public_names_resolve_and_are_listed(name):
    member = getattr(mercer, name)
    assert member.__name__ in {name, f"mercer.{name}"}
    assert name in dir(mercer)


def test_unknown_attributes_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'mercer' has no attribute 'Nystrom'"):
        _ = mercer.Nystrom
    assert not hasattr(mercer, "ExactRegresor")


def test_version_is_the_installed_one():
    assert mercer.__version__ == importlib.metadata.version("mercer")
    assert "__version__" in dir(mercer)


def test_type_information_is_shipped():
    assert (importlib.resources.files("mercer") / "py.typed").is_file()
