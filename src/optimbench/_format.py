"""The only place where stored seconds and bytes become text, and where rows become tables."""

import html
import math
import re
from collections.abc import Sequence

from tabulate import tabulate

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))

MISSING = "–"  # noqa: RUF001 - an en dash is what a reader expects in an empty cell.


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent: 0.0123, 1.23, 123, 12 345."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace(",", " ")


def time_unit(values_s: Sequence[float]) -> tuple[float, str]:
    """Seconds in one unit, and its name, chosen so that a column's smallest value is at least 1."""
    smallest = min((abs(value) for value in values_s if value), default=1.0)
    for size_s, name in _TIME_UNITS:
        if smallest >= size_s:
            return size_s, name
    return _TIME_UNITS[-1]


def seconds(value_s: float, digits: int = 3) -> str:
    """Seconds in the unit that suits them, for example 72.4 µs."""
    size_s, name = time_unit([value_s])
    return f"{significant(value_s / size_s, digits)} {name}"


def byte_count(value: float, digits: int = 3) -> str:
    """Bytes in the binary unit that suits them, for example 40.0 MiB."""
    size, name = next(((size, name) for size, name in _BYTE_UNITS if abs(value) >= size), _BYTE_UNITS[-1])
    return f"{significant(value / size, digits) if size > 1 else f'{value:.0f}'} {name}"


def time_column(title: str, values_s: Sequence[float | None]) -> tuple[str, list[str]]:
    """A column of times in one unit: its header with the unit, and its cells."""
    size_s, name = time_unit([value for value in values_s if value is not None])
    cells = [MISSING if value is None else significant(value / size_s) for value in values_s]
    return f"{title} [{name}]", cells


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned text."""
    return tabulate(rows, headers, tablefmt="simple", disable_numparse=True, colalign=_alignment(rows))


def html_table(headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """The same rows as an HTML table; every cell and the caption are escaped."""
    table = tabulate(rows, headers, tablefmt="html", disable_numparse=True, colalign=_alignment(rows))
    named = f"<table>\n<caption>{html.escape(caption)}</caption>"
    # A header without words heads nothing.
    table = re.sub(r"<th[^>]*>\s*</th>", "<td></td>", str(table).replace("<table>", named, 1))
    # A wide table scrolls inside its own box, which the keyboard can reach; the page itself never does. No region: a
    # page holds many tables, and some of the same name.
    return f'<div class="ob-scroll" tabindex="0" role="group" aria-label="{html.escape(caption)}">{table}</div>'


def _alignment(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Numbers to the right, words to the left: a column is numbers if every cell starts like one or is empty.

    None without rows: tabulate 0.9 finds no columns then.
    """
    if not rows:
        return None
    columns = zip(*rows, strict=True)
    return ["right" if all(_looks_like_a_number(cell) for cell in cells) else "left" for cells in columns]


def _looks_like_a_number(cell: str) -> bool:
    return cell in ("", MISSING) or cell.lstrip("-+")[:1].isdigit()
