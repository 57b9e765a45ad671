"""Thumbnails that show what a tutorial found: sphinx-gallery takes a page's first figure, and a page may have none.

The results of such a page are then its picture: a comparison or a log as it is drawn elsewhere, a table as its first
rows.
"""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from optimbench import Comparison, RecompileLog, Result, Table, _format
from optimbench_site.pictures import save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# As large as the gallery shows it on a screen with two pixels a dot: 480 x 336 pixels.
_SIZE_IN, _DPI = (3.2, 2.24), 150
# What is still legible there.
_MAX_ROWS, _MAX_COLUMNS, _MAX_CHARACTERS = 5, 2, 16


def write_thumbnail(results: Iterable[Result], path: Path) -> bool:
    """Draw the result that says most; whether there was one.

    Comparisons come first, then logs of something that was compiled, then tables.
    """
    ranked = [(rank, result) for result in results if (rank := _rank(result)) is not None]
    if not ranked:
        return False
    _, chosen = min(ranked, key=lambda each: each[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    save_picture(
        lambda figure: _draw(chosen, figure),
        path,
        theme="light",
        size_in=_SIZE_IN,
        dpi=_DPI,
        background="white",
        font_size=9,
    )
    return True


def _rank(result: Result) -> int | None:
    if isinstance(result, Comparison):
        return 0
    if isinstance(result, RecompileLog) and result.n_compiles:
        return 1
    return 2 if isinstance(result, Table) and result.cells else None


def _draw(result: Result, figure: "Figure") -> None:
    from optimbench import figures

    ax = figure.add_subplot()
    if isinstance(result, Comparison):
        # One bar a step: with three, none could be read at this size.
        size_s, unit = _format.time_unit([row.median_s for row in result.rows])
        for place, row in enumerate(result.rows):
            ax.barh(place, row.median_s / size_s, 0.7, color=figures.COLOURS[int(row.name != result.baseline)])
        ax.set_yticks(range(len(result.rows)), [_short(row.name) for row in result.rows])
        ax.set_ylim(len(result.rows) - 0.5, -0.5)
        ax.set_xlabel(f"time of one step [{unit}]")
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
    elif isinstance(result, Table):
        ax.set_axis_off()
        rows = [[_short(value) for value in row[:_MAX_COLUMNS]] for row in result.cells[:_MAX_ROWS]]
        headers = [_short(name) for name in result.columns[:_MAX_COLUMNS]]
        shown = ax.table(cellText=rows, colLabels=headers, loc="center", cellLoc="left", edges="horizontal")
        shown.auto_set_font_size(False)
        shown.set_fontsize(10)
        shown.scale(1, 1.7)
    else:
        figures.draw(result, ax)


def _short(value: object) -> str:
    shown = f"{value:.3g}" if isinstance(value, float) else " ".join(str(value).split())
    # A dollar sign would start a formula.
    return textwrap.shorten(shown, _MAX_CHARACTERS, placeholder="…").replace("$", r"\$") or shown[:_MAX_CHARACTERS]
