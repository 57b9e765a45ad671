"""The page of all earlier recordings: each result over time, with the versions it was measured with."""

import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from optimbench import RecordingError, _format
from optimbench_site.history import MOST_ENTRIES, Entry, History, load_histories
from optimbench_site.pictures import save_picture, themed_images
from optimbench_site.shown_results import note_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_VERSIONS = ("torch", "cuda", "driver", "triton", "optimbench")
_SIZE_IN = (7.2, 3.6)


class Point(NamedTuple):
    """One value on one day."""

    when: datetime.datetime
    # The script's version: a line is broken where it changes.
    source: str
    wall: float
    kernel: float | None


class Series(NamedTuple):
    """The values of one result: a line for each of its steps, or for its compiles."""

    # Seconds, or a count.
    is_time: bool
    lines: dict[str, list[Point]]
    # Where torch's version changes, the day and the new version.
    changes: list[tuple[datetime.datetime, str]]


class RecordedHistory(SphinxDirective):
    """`.. recorded-history::` draws the histories beside the recordings."""

    def run(self) -> list[nodes.Node]:
        """Make a section for every device.

        Raises:
            ExtensionError: A file is damaged; the message names it and the place in it.
        """
        note_results(self.env)
        folder = Path(self.env.srcdir) / "recordings"
        for path in (folder / "history").glob("*.json"):
            self.env.note_dependency(str(path))
        try:
            histories = load_histories(folder)
        except RecordingError as error:
            raise ExtensionError(f"a stored history cannot be read: recordings/{error}") from error
        if not histories:
            return [nodes.paragraph("", "No machine has recorded anything yet.")]
        return [self._device(history) for history in histories]

    def _device(self, history: History) -> nodes.section:
        entries = history.entries
        content: list[nodes.Node] = [_table_of(entries)]
        if len(entries) < 2:
            said = "Recorded on one day so far: lines begin with the second."
            content.append(nodes.paragraph("", said))
        for script in sorted({name for entry in entries for name in entry.runs}):
            shown = [
                node
                for variable, series in series_of(entries, script).items()
                for node in self._picture(history.device, script, variable, series)
            ]
            if shown:
                content.append(self._script(history.device, script, shown))
        title = nodes.Text(entries[-1].label if entries else history.device)
        return _section(history.device, title, content)

    def _script(self, device: str, script: str, shown: list[nodes.Node]) -> nodes.section:
        words = re.sub(r"^plot_\d+[a-z]?_", "", script).replace("_", " ").capitalize()
        page = next((name for name in sorted(self.env.found_docs) if name.endswith(f"/{script}")), None)
        if page is not None:
            link = addnodes.pending_xref(
                "", refdomain="std", reftype="doc", reftarget=f"/{page}", refexplicit=False, refdoc=self.env.docname
            )
            link += nodes.inline("", page, classes=["doc"])
            shown = [nodes.paragraph("", "The tutorial: ", link), *shown]
        return _section(f"{device}-{script}", nodes.Text(words), shown)

    def _picture(self, device: str, script: str, variable: str, series: Series) -> Iterator[nodes.Node]:
        if max(len(points) for points in series.lines.values()) < 2:
            return
        name = f"history-{device}-{script}-{variable}"
        content = msgspec.json.encode(series) + Path(__file__).read_bytes()
        yield nodes.paragraph("", "", nodes.strong("", variable.replace("_", " ").capitalize()))
        yield from themed_images(
            self.env,
            name,
            in_words(series),
            content,
            lambda theme, path: save_picture(
                lambda figure: draw(series, figure), path, theme=theme, size_in=_SIZE_IN, font_size=9
            ),
        )


def series_of(entries: Sequence[Entry], script: str) -> dict[str, Series]:
    """Every result of a script over the entries, by its name."""
    found: dict[str, Series] = {}
    for entry in entries:
        run = entry.runs.get(script)
        if run is None:
            continue
        when = datetime.datetime.fromisoformat(entry.date)
        values = [(time.variable, time.row, True, time.wall_s, time.kernel_s) for time in run.times]
        values += [(count.variable, "compiles", False, float(count.compiles), None) for count in run.counts]
        for variable, row, is_time, wall, kernel in values:
            series = found.get(variable)
            # An earlier version of the script may have had something else under this name.
            if series is None or series.is_time != is_time:
                series = found[variable] = Series(is_time, {}, _changes(entries, script))
            series.lines.setdefault(row or "copy", []).append(Point(when, run.source, wall, kernel))
    return found


def _changes(entries: Sequence[Entry], script: str) -> list[tuple[datetime.datetime, str]]:
    changes, last = [], None
    for entry in entries:
        version = entry.versions.get("torch")
        if script in entry.runs and version is not None:
            if last not in (None, version):
                changes.append((datetime.datetime.fromisoformat(entry.date), version))
            last = version
    return changes


def in_words(series: Series) -> str:
    """What a picture shows, for readers who cannot see it: the first and the last value of every line."""

    def shown(value: float) -> str:
        return _format.seconds(value) if series.is_time else f"{value:g}"

    what = "Wall time of one step" if series.is_time else "Number of compiles"
    lines = []
    for name, points in series.lines.items():
        first, last = points[0], points[-1]
        lines.append(f"{name} {shown(first.wall)} on {first.when:%Y-%m-%d}, {shown(last.wall)} on {last.when:%Y-%m-%d}")
    versions = "".join(f" torch {version} from {when:%Y-%m-%d}." for when, version in series.changes)
    return f"{what}: {'; '.join(lines)}.{versions}"


def draw(series: Series, figure: "Figure") -> None:
    """Draw the wall times and, where there are some, the kernels' times beside them."""
    has_kernels = any(point.kernel for points in series.lines.values() for point in points)
    panels = figure.subplots(1, 2 if has_kernels else 1, sharey=series.is_time and has_kernels, squeeze=False)[0]
    for ax, field in zip(panels, ("wall", "kernel"), strict=False):
        _draw_lines(series, field, ax)
    panels[0].set_ylabel("time of one step" if series.is_time else "compiles")
    if len(series.lines) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def _draw_lines(series: Series, field: str, ax: "Axes") -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from optimbench.figures import COLOURS, MARKERS, short_label

    for index, (name, points) in enumerate(series.lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        marker = MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]
        for number, part in enumerate(_unbroken(points)):
            values = [(point.when, value) for point in part if (value := getattr(point, field))]
            named = short_label(name) if number == 0 else None
            ax.plot(
                [_days(when) for when, _ in values],
                [value for _, value in values],
                color=colour,
                marker=marker,
                markersize=4,
                label=named,
            )
    for when, version in series.changes:
        ax.axvline(_days(when), color="gray", linewidth=1, linestyle="--")
        ax.annotate(
            f"torch {version.partition('+')[0]}",
            (_days(when), 1),
            (3, -3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize="x-small",
        )
    locator = AutoDateLocator(minticks=2, maxticks=5)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    if series.is_time:
        ax.set_title({"wall": "wall time", "kernel": "kernels' own time"}[field], fontsize="medium")
        ax.set_yscale("log")
        ax.yaxis.set_minor_formatter(NullFormatter())
        low, high = ax.get_ylim()
        ticks = [value for power in range(-12, 5) for value in (10**power, 2 * 10**power, 5 * 10**power)]
        ax.set_yticks([tick for tick in ticks if low <= tick <= high])
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _format.seconds(value, 1)))
    else:
        ax.set_ylim(bottom=0)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _days(when: datetime.datetime) -> float:
    """A moment as matplotlib counts them."""
    from matplotlib.dates import date2num

    return float(date2num(when))  # type: ignore[no-untyped-call]


def _unbroken(points: Sequence[Point]) -> Iterator[list[Point]]:
    """The points in parts between which the script has changed."""
    part: list[Point] = []
    for point in points:
        if part and part[-1].source != point.source:
            yield part
            part = []
        part.append(point)
    yield part


def _table_of(entries: Sequence[Entry]) -> nodes.Node:
    """The newest entries first, with their versions."""
    rows = [
        [entry.day, *(entry.versions.get(name, _format.MISSING) for name in _VERSIONS), str(len(entry.runs))]
        for entry in reversed(entries)
    ]
    table = _format.html_table(["date", *_VERSIONS, "scripts"], rows, f"Recordings, at most {MOST_ENTRIES} of them")
    return nodes.raw("", f'<div class="ob-result">{table}</div>', format="html")


def _section(name: str, title: nodes.Node, content: Sequence[nodes.Node]) -> nodes.section:
    return nodes.section("", nodes.title("", "", title), *content, ids=[nodes.make_id(name)], names=[name])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("recorded-history", RecordedHistory)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
