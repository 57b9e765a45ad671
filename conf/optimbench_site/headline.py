"""The picture of the home page: one step of Adam by recipe, against what memory allows, from a stored recording.

The same picture stands in the README; `conf/readme.py` draws it there.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from optimbench import Comparison, Measurement, Recording, Table, _format
from optimbench_site.pictures import save_picture, themed_images
from optimbench_site.shown_results import note_results
from optimbench_site.stored import stored_recordings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The tutorial whose results are shown, and where they are in its recording.
SCRIPT = "plot_05_how_far_from_the_memory_limit"
# The recipes shown and what they are called here. The others are on the page of all results; the for-loop, which is
# not the default on a GPU, would leave the rest no room.
NAMES = {
    "foreach": "eager, default",
    "fused": "fused",
    "compiled": "compiled",
    "fused_cudagraph": "fused, CUDA graph",
    "flat_compiled": "compiled, flat buffers",
    "compiled_cudagraph": "compiled, CUDA graph",
}
SIZE_IN = (6.0, 3.4)
CARD_SIZE_IN = (12.0, 6.3)  # 1200 x 630 pixels, which most services show whole.


class Headline(NamedTuple):
    """What the picture shows."""

    label: str
    # From the slowest to the fastest.
    rows: tuple[Measurement, ...]
    # Seconds that memory needs for what one step reads and writes.
    floor_s: float

    def words(self) -> str:
        """The picture's finding, for readers who cannot see it."""
        times = "; ".join(
            f"{NAMES[row.name]} {_format.seconds(row.median_s)}"
            + ("" if row.kernel_time_s is None else f" (kernels {_format.seconds(row.kernel_time_s)})")
            for row in self.rows
        )
        worst, *_, best = self.rows
        return (
            f"Time of one Adam step on ten tensors of a million numbers, {self.label}: {times}."
            f" Memory allows {_format.seconds(self.floor_s)}: {NAMES[best.name]} takes"
            f" {best.median_s / self.floor_s:.2f} times that, {NAMES[worst.name]} {worst.median_s / self.floor_s:.2f}."
        )


def headline(recording: Recording) -> Headline:
    """The picture's values.

    Raises:
        LookupError: The recording does not hold them.
    """
    comparison = recording.result(SCRIPT, "comparison") if SCRIPT in recording.results else None
    shares = recording.result(SCRIPT, "shares") if SCRIPT in recording.results else None
    if not isinstance(comparison, Comparison) or not isinstance(shares, Table):
        raise LookupError(f"no comparison and shares of {SCRIPT} in {recording.device!r}")  # noqa: TRY004 - not there.
    rows = sorted((row for row in comparison.rows if row.name in NAMES), key=lambda row: -row.median_s)
    column = shares.columns.index("share of wall time")
    share = {cells[0]: cells[column] for cells in shares.cells}
    # The share is the limit divided by the wall time; the recording does not hold the limit itself.
    floors_s = [row.median_s * value for row in rows if isinstance(value := share.get(row.name), float)]
    if not floors_s:
        raise LookupError(f"the recording of {recording.device!r} has no share of the memory limit")
    return Headline(recording.label, tuple(rows), floors_s[0])


def draw(shown: Headline, ax: "Axes", title: str = "") -> None:
    """Bars for the wall time, a mark for the part of it in which kernels run, and a line at the limit."""
    from optimbench.figures import COLOURS

    size_s, unit = _format.time_unit([row.median_s for row in shown.rows])
    for place, row in enumerate(shown.rows):
        time = row.median_s / size_s
        ax.barh(place, time, 0.62, color=COLOURS[0], label="wall time" if place == 0 else None)
        if row.kernel_time_s is not None:
            kernels = row.kernel_time_s / size_s
            label = "kernels' own time" if place == 0 else None
            ax.plot([kernels] * 2, [place - 0.31, place + 0.31], color=COLOURS[1], linewidth=2.5, label=label)
        said = f"{_format.seconds(row.median_s)}  ({row.median_s / shown.floor_s:.2f} × limit)"  # noqa: RUF001
        ax.annotate(said, (time, place), (6, 0), textcoords="offset points", va="center")
    limit = shown.floor_s / size_s
    ax.axvline(limit, color=COLOURS[3], linestyle="--", linewidth=1.5, label=f"memory limit, {limit:.3g} {unit}")
    ax.set_yticks(range(len(shown.rows)), [NAMES[row.name] for row in shown.rows])
    ax.set_ylim(len(shown.rows) - 0.5, -0.5)
    # The labels stand behind the bars.
    ax.set_xlim(0, 1.6 * max(row.median_s for row in shown.rows) / size_s)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel(f"time of one Adam step, {shown.label} [{unit}]")
    ax.figure.legend(frameon=False, loc="outside upper center", ncols=3, title=title or None, title_fontsize="large")


def save(
    shown: Headline, path: Path, theme: str = "light", size_in: tuple[float, float] = SIZE_IN, title: str = ""
) -> None:
    """Save the picture; the themes' own background is transparent, that of a card is white."""
    is_card = bool(title)
    save_picture(
        lambda figure: draw(shown, figure.add_subplot(), title),
        path,
        theme=theme,
        size_in=size_in,
        background="white" if is_card else "none",
        font_size=18 if is_card else 10,
    )


class HeadlineFigure(SphinxDirective):
    """`.. headline-figure:: DEVICE` shows the picture of that device's recording."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make two images.

        Raises:
            ExtensionError: There is no such recording, or it lacks the values.
        """
        note_results(self.env)
        source, line = self.get_source_info()
        try:
            shown = headline_of(self.env.srcdir, self.arguments[0])
        except LookupError as error:
            if self.config.optimbench_recording:
                return []
            raise ExtensionError(f"{source}:{line}: headline-figure: {error.args[0]}") from error
        content = msgspec.json.encode(shown) + Path(__file__).read_bytes()
        return themed_images(
            self.env, "headline", shown.words(), content, lambda theme, path: save(shown, path, theme=theme)
        )


def headline_of(srcdir: Path, device: str) -> Headline:
    """The values of the recording of a device.

    Raises:
        LookupError: There is no such recording, or it lacks them.
    """
    for recording in stored_recordings(srcdir):
        if recording.device == device:
            return headline(recording)
    raise LookupError(f"no recording of {device!r}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("headline-figure", HeadlineFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
