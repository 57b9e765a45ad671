"""The base of all results, and the checks they share."""

import html
import math
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from optimbench import _format
from optimbench.errors import InvalidArgumentError

# A stored median may differ from that of the stored blocks by rounding in the encoding, no more.
_ROUNDING = 1e-9

# On a page, more notes than this (and one) are folded away under their number.
_NOTES_SHOWN = 3


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The base of all result types: one table, its caption and notes, shown in four ways.

    ``repr`` names the fields, ``str`` is an aligned table, a notebook shows HTML, and `msgspec.json.encode` writes the
    fields under their own names, with the type's name under "type".

    Example:
        >>> import msgspec
        >>> import optimbench as ob
        >>> result = ob.Table(name="Rates", columns=("step", "lr"), cells=((1, 0.1),))
        >>> print(result)
        Rates
        <BLANKLINE>
          step    lr
        ------  ----
             1   0.1
        >>> msgspec.json.decode(msgspec.json.encode(result))["type"]
        'table'
    """

    caption: ClassVar[str] = ""

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """The table that every view shows: column headers, and rows of text."""
        # This class holds no data of its own to show; every result type has its own table.
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Sentences that belong below the table: warnings, limits, what could not be measured."""
        return []

    def title(self) -> str:
        """The caption of the table."""
        return self.caption

    def __str__(self) -> str:
        lines = [self.title(), "", _format.text_table(*self.headers_and_rows())]
        return "\n".join([*lines, *[f"* {note}" for note in self.notes()]])

    def _repr_html_(self) -> str:
        headers, rows = self.headers_and_rows()
        notes = [f"<li>{html.escape(note)}</li>" for note in self.notes()]
        shown, folded = notes[:_NOTES_SHOWN], notes[_NOTES_SHOWN:]
        if len(folded) > 1:
            summary = f"<summary>{len(folded)} more notes</summary>"
            rest = f'<details class="ob-log">{summary}<ul>{"".join(folded)}</ul></details>'
        else:
            shown, rest = notes, ""
        listed = f"<ul>{''.join(shown)}</ul>" if shown else ""
        table = _format.html_table(headers, rows, self.title())
        return f'<div class="ob-result">{table}{listed}{rest}</div>'


def check_times(field: str, values: Sequence[float], *, positive: bool = False) -> None:
    """Refuse times that are not finite, negative, or zero where none can be.

    Raises:
        InvalidArgumentError: The field and the value.
    """
    for index, value in enumerate(values):
        if not math.isfinite(value) or value < 0 or (positive and value == 0):
            where = f"{field}[{index}]" if len(values) > 1 else field
            expected = "a positive" if positive else "a non-negative"
            raise InvalidArgumentError(f"{where} is {value} (expected {expected} finite number)")


def check_summary(field: str, stored: float, computed: float) -> None:
    """Refuse a stored summary that is not that of the stored blocks.

    Raises:
        InvalidArgumentError: The field and both values.
    """
    if not math.isclose(stored, computed, rel_tol=_ROUNDING, abs_tol=1e-15):
        raise InvalidArgumentError(f"{field} is {stored}, but the blocks give {computed}")
