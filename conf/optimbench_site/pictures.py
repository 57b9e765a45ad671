"""Pictures of results for both themes: drawn when the site is built, and again only where the results differ."""

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.environment import BuildEnvironment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Text and lines on furo's light and dark background.
INK = {"light": "#24292f", "dark": "#d0d4d9"}
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
FIGURES = "figures"


def themed_images(
    env: BuildEnvironment, name: str, words: str, content: bytes, draw: Callable[[str, Path], None]
) -> list[nodes.Node]:
    """Two images, one for each theme, of which a page shows one.

    Args:
        env: The build.
        name: The beginning of the files' names.
        words: What the picture shows, for readers who cannot see it.
        content: What the picture depends on: a file that was drawn from the same is kept.
        draw: Called with a theme and a path where there is no such file.
    """
    folder = Path(env.doctreedir) / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    images: list[nodes.Node] = []
    for theme in INK:
        path = folder / f"{name}-{theme}-{hashlib.sha256(content).hexdigest()[:12]}.svg"
        if not path.is_file():
            draw(theme, path)
        # An address that begins with a slash starts from the source folder.
        address = f"/{os.path.relpath(path, env.srcdir)}"
        # The picture of the other theme is not fetched until it is shown.
        options = {"uri": address, "alt": words, "classes": [f"only-{theme}", "ob-figure"], "loading": "lazy"}
        images.append(nodes.image("", **options))
    return images


def save_picture(
    draw: Callable[["Figure"], object],
    path: Path,
    *,
    theme: str,
    size_in: tuple[float, float],
    dpi: int = 100,
    background: str = "none",
    font_size: float = 10.0,
) -> None:
    """Draw on a new figure and save it as the file's ending says, the same bytes each time.

    Args:
        draw: Called with the figure.
        path: Where to save it.
        theme: "light" or "dark", for the colour of text and lines.
        size_in: Width and height in inches.
        dpi: Pixels an inch, for endings that have pixels.
        background: A colour, or "none" for a transparent one.
        font_size: Of ordinary text, in points.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = dict.fromkeys(_INKED, INK[theme]) | {
        "svg.hashsalt": "optimbench",
        "legend.labelcolor": INK[theme],
        "font.size": font_size,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # A name may hold a character that the font lacks; it is then drawn as a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = Figure(figsize=size_in, layout="constrained")
        # A canvas of its own: pyplot, which a tutorial may use at the same time, hears nothing of this figure.
        is_svg = path.suffix == ".svg"
        (FigureCanvasSVG if is_svg else FigureCanvasAgg)(figure)
        draw(figure)
        colour = {"transparent": True} if background == "none" else {"facecolor": background}
        figure.savefig(path, dpi=dpi, **colour, metadata={"Date": None} if is_svg else {"Software": None})
