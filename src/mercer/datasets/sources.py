"""Where files of public data sets are looked for."""

import os
from pathlib import Path

__all__ = ["find_file"]


def find_file(name: str) -> Path | None:
    """Return the path of a data file in ``$MERCER_DATA`` or in ``../shared/data``, or None if it is in neither."""
    folders = [os.environ.get("MERCER_DATA"), "../shared/data"]
    for folder in folders:
        if folder and (path := Path(folder) / name).is_file():
            return path
    return None
