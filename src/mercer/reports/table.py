"""Plain-text tables."""

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Align columns: text to the left, numbers to the right.

    Examples
    --------
    >>> from mercer.reports.table import format_table
    >>> print(format_table(["method", "error"], [["exact", 0.01], ["basis", 0.125]]))
    method  error
    ------  -----
    exact    0.01
    basis   0.125
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(header, *texts, strict=True)]
    numeric = [all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        columns = zip(cells, widths, numeric, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, texts)])


def _text(cell: object) -> str:
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}"
