"""Every Python block of the README, of CONTRIBUTING and the documentation runs, in order, one namespace per file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path):
    """The code of each block, moved down to its line so that a traceback points into the file."""
    text = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield "\n" * text[: match.start(1)].count("\n") + match[1]


WITH_CODE = [path for path in FILES if BLOCK.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", WITH_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for code in blocks(path):
        exec(compile(code, str(path), "exec"), namespace)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_code_is_shown(name):
    assert any(blocks(ROOT / name))
