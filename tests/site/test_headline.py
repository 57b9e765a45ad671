"""The picture of the home page, the card and the thumbnails, drawn from data."""

import re
from pathlib import Path

import matplotlib.image
import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure
from site_builder import REPOSITORY, Site

from optimbench import Comparison, Recording, Result, Table, load_recording
from optimbench.comparison import compare_measurements
from optimbench.results import RecompileLog
from optimbench_site import headline, thumbnails
from optimbench_site.pictures import INK
from recording_examples import measurement

FILE = REPOSITORY / "docs" / "recordings" / "nvidia-h200.json"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_recording(FILE)


@pytest.fixture(scope="module")
def shown(recording: Recording) -> headline.Headline:
    return headline.headline(recording)


def test_values_are_those_of_the_recording(shown: headline.Headline) -> None:
    raw = msgspec.json.decode(FILE.read_bytes())["results"][headline.SCRIPT]
    recorded = {row["name"]: row["median_s"] for row in raw["comparison"]["rows"]}
    assert {row.name: row.median_s for row in shown.rows} == {name: recorded[name] for name in headline.NAMES}
    assert [row.median_s for row in shown.rows] == sorted((row.median_s for row in shown.rows), reverse=True)
    # Computed here another way: the bytes of a step, read and written at the bandwidth of a copy.
    moved_bytes = 28 * 10 * 1024 * 1024
    copied = raw["bandwidth"]
    assert shown.floor_s == pytest.approx(moved_bytes / (copied["moved_bytes"] / copied["median_s"]), rel=1e-3)


def test_the_sentence_below_the_picture_is_true_of_the_recording(shown: headline.Headline) -> None:
    text = " ".join((REPOSITORY / "docs" / "index.rst").read_text().split())
    assert "Compiling brings the *kernels* of a step close to the limit. The *wall time* follows only where" in text
    rows = {row.name: row for row in shown.rows}
    for name in ("compiled", "compiled_cudagraph", "flat_compiled"):
        kernels_s = rows[name].kernel_time_s
        assert kernels_s is not None
        assert kernels_s < 1.1 * shown.floor_s
    assert rows["compiled"].median_s > 1.5 * shown.floor_s
    for name in ("compiled_cudagraph", "flat_compiled"):
        assert rows[name].median_s < 1.25 * shown.floor_s


def test_alternative_text_states_the_finding(shown: headline.Headline) -> None:
    words = shown.words()
    assert "NVIDIA H200" in words
    assert all(f"{name} " in words for name in headline.NAMES.values())
    slowest, fastest = shown.rows[0], shown.rows[-1]
    ratio = float(re.findall(r"takes ([\d.]+) times", words)[0])
    assert ratio == pytest.approx(fastest.median_s / shown.floor_s, abs=0.005)
    assert words.endswith(f"{headline.NAMES[slowest.name]} {slowest.median_s / shown.floor_s:.2f}.")


def test_bars_and_line_are_where_the_values_are(shown: headline.Headline) -> None:
    ax = Figure().add_subplot()
    headline.draw(shown, ax)
    widths = [patch.get_width() for patch in ax.patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([row.median_s * 1e6 for row in shown.rows])
    assert any(np.allclose(line.get_xdata(), shown.floor_s * 1e6) for line in ax.lines)


def test_picture_is_the_same_again_and_differs_by_theme_only_in_ink(shown: headline.Headline, tmp_path: Path) -> None:
    drawn = {}
    for name, theme in (("a", "light"), ("b", "light"), ("c", "dark")):
        headline.save(shown, tmp_path / f"{name}.svg", theme=theme)
        drawn[name] = (tmp_path / f"{name}.svg").read_text()
    assert drawn["a"] == drawn["b"]
    # The names of markers depend on their colours.
    in_one_ink = {name: re.sub(r"\bm[0-9a-f]{10}\b", "marker", text) for name, text in drawn.items()}
    assert drawn["c"] != drawn["a"]
    assert in_one_ink["c"].replace(INK["dark"], INK["light"]) == in_one_ink["a"]
    headline.save(shown, tmp_path / "a.png")
    assert matplotlib.image.imread(tmp_path / "a.png")[0, 0, 3] == 0, "the background is not transparent"


def test_a_recording_without_the_values_is_refused(recording: Recording) -> None:
    others = {name: kept for name, kept in recording.results.items() if name != headline.SCRIPT}
    scripts = {name: kept for name, kept in recording.scripts.items() if name != headline.SCRIPT}
    with pytest.raises(LookupError, match="no comparison and shares"):
        headline.headline(msgspec.structs.replace(recording, results=others, scripts=scripts))


def test_home_page_has_one_picture_for_each_theme_and_other_sites_a_card(published_site: Site) -> None:
    assert published_site.status == 0, published_site.log
    home = published_site.page("index.html")
    images = home.select("article img.ob-figure")
    assert [str(image["class"][0]) for image in images] == ["only-light", "only-dark"]
    for image in images:
        assert (published_site.html / str(image["src"])).is_file()
        assert "Memory allows" in str(image["alt"])
    card = home.select_one("meta[property='og:image']")
    assert card is not None
    assert card["content"] == f"https://example.org/docs/{headline_card()}"
    assert matplotlib.image.imread(published_site.html / headline_card()).shape[:2] == (630, 1200)


def headline_card() -> str:
    from optimbench_site.publishing import CARD

    return CARD


def comparison() -> Comparison:
    rows = [measurement("eager", (4e-4, 4.1e-4, 4.2e-4)), measurement("compiled", (1e-4, 1.1e-4, 1.2e-4))]
    return compare_measurements(rows, baseline="eager")


TABLE = Table(name="$\\frac{1}{0$", columns=("a", "b $"), cells=(("x $y", 1.25), ("a long line of words", 2)))
NOT_COMPILED = RecompileLog(compilations=(), recompile_limit=8, not_compiled="Nothing.")


def test_a_thumbnail_shows_the_result_that_says_most(tmp_path: Path) -> None:
    pictures = {}
    cases: dict[str, list[Result]] = {
        "table": [NOT_COMPILED, TABLE],
        "comparison": [comparison()],
        "all": [TABLE, NOT_COMPILED, comparison()],
    }
    for name, results in cases.items():
        assert thumbnails.write_thumbnail(results, tmp_path / f"{name}.png")
        pictures[name] = matplotlib.image.imread(tmp_path / f"{name}.png")
        assert (pictures[name][..., :3].min(axis=2) < 0.9).mean() > 0.01, "nothing is drawn"
    assert np.array_equal(pictures["all"], pictures["comparison"])
    assert not np.array_equal(pictures["all"], pictures["table"])


def test_what_has_no_picture_gives_no_thumbnail(tmp_path: Path) -> None:
    assert not thumbnails.write_thumbnail([NOT_COMPILED], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_a_page_without_a_figure_has_no_placeholder_for_a_thumbnail(tiny_site: Site, tmp_path: Path) -> None:
    from sphinx_gallery.utils import scale_image

    placeholder = next((tiny_site.html / "_static").rglob("no_image.png"))
    thumbs = {path.stem: path for path in (tiny_site.html / "_images").glob("*_thumb.png")}
    assert len(thumbs) == 2
    size = matplotlib.image.imread(thumbs["sphx_glr_plot_01_leaves_state_behind_thumb"]).shape
    scale_image(placeholder, tmp_path / "no.png", size[1], size[0])
    for path in thumbs.values():
        assert not np.array_equal(matplotlib.image.imread(path), matplotlib.image.imread(tmp_path / "no.png")), path
