"""The page of earlier recordings, seen on small sites with generated histories."""

import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from bs4 import Tag
from matplotlib.figure import Figure
from site_builder import DATA, Site, build_site, run_sphinx

from optimbench_site.history import Count, Entry, History, Run, Time, save_history
from optimbench_site.history_page import draw, in_words, series_of

SCRIPT = "plot_01_leaves_state_behind"
FIRST = datetime.datetime(2026, 1, 5, 3, tzinfo=datetime.UTC)
HOSTILE = "<script>alert(1)</script> `x`_ {{ z }} $\\frac{1}{0$"
INDEX = "Home\n====\n\n.. toctree::\n\n   tutorials/index\n   history\n   install\n   api/index\n"
PAGE = "History\n=======\n\nAll of it.\n\n.. recorded-history::\n"


def entry(week: int, *, speed: float = 1.0, source: str = "0" * 12, **changes: Any) -> Entry:
    times = (
        Time("comparison", "eager", 4e-4, 1e-5, 2e-4),
        Time("comparison", "compiled", 2e-4 / speed, 1e-5, 7e-5 / speed),
        Time("copied", "", 5e-4),
    )
    fields: dict[str, Any] = {
        "date": (FIRST + datetime.timedelta(weeks=week)).isoformat(),
        "label": "NVIDIA H200",
        "versions": {"torch": "2.11.0+cu130" if week < 3 else "2.12.0", "driver": "580.159"},
        "runs": {SCRIPT: Run(source=source, times=times, counts=(Count("log", 8 if week < 3 else 2, 1),))},
    }
    return Entry(**fields | changes)


def entries() -> list[Entry]:
    """Six weeks: faster and with another torch from the fourth, with another script in the sixth."""
    return [entry(week, speed=1 if week < 3 else 2, source=("f" if week == 5 else "0") * 12) for week in range(6)]


def test_a_series_has_every_value_with_its_day_and_version() -> None:
    found = series_of(entries(), SCRIPT)
    assert list(found) == ["comparison", "copied", "log"]
    assert list(found["comparison"].lines) == ["eager", "compiled"]
    compiled = found["comparison"].lines["compiled"]
    assert [point.wall for point in compiled] == [2e-4] * 3 + [1e-4] * 3
    assert [point.kernel for point in compiled] == [7e-5] * 3 + [3.5e-5] * 3
    assert [point.when for point in compiled] == [FIRST + datetime.timedelta(weeks=week) for week in range(6)]
    assert found["comparison"].changes == [(FIRST + datetime.timedelta(weeks=3), "2.12.0")]
    assert [point.wall for point in found["log"].lines["compiles"]] == [8, 8, 8, 2, 2, 2]
    assert series_of(entries(), "plot_99_other") == {}


def test_a_name_that_meant_something_else_before_begins_anew() -> None:
    before = entry(0, runs={SCRIPT: Run(source="0" * 12, counts=(Count("comparison", 8, 7),))})
    (series,) = [found for name, found in series_of([before, entry(1)], SCRIPT).items() if name == "comparison"]
    assert series.is_time
    assert [len(points) for points in series.lines.values()] == [1, 1]


def test_the_picture_in_words() -> None:
    said = in_words(series_of(entries(), SCRIPT)["comparison"])
    assert said.startswith(
        "Wall time of one step: eager 400 µs on 2026-01-05, 400 µs on 2026-02-09; compiled 200 µs on"
    )
    assert said.endswith("compiled 200 µs on 2026-01-05, 100 µs on 2026-02-09. torch 2.12.0 from 2026-01-26.")
    assert in_words(series_of(entries(), SCRIPT)["log"]).startswith(
        "Number of compiles: compiles 8 on 2026-01-05, 2 on"
    )


def test_a_line_is_broken_where_the_script_changes() -> None:
    figure = Figure()
    draw(series_of(entries(), SCRIPT)["comparison"], figure)
    wall, kernel = figure.axes
    assert [wall.get_title(), kernel.get_title()] == ["wall time", "kernels' own time"]
    lines = [line for line in wall.get_lines() if line.get_linestyle() == "-"]
    heights = [np.asarray(line.get_ydata()).tolist() for line in lines]
    assert [len(values) for values in heights] == [5, 1, 5, 1]
    assert heights[2:] == [[2e-4] * 3 + [1e-4] * 2, [1e-4]]
    assert [text.get_text() for text in wall.texts] == ["torch 2.12.0"]
    assert len([line for line in wall.get_lines() if line.get_linestyle() == "--"]) == 1


def test_counts_and_times_of_a_cpu_have_one_panel() -> None:
    found = series_of(entries(), SCRIPT)
    for name in ("log", "copied"):
        figure = Figure()
        draw(found[name], figure)
        assert len(figure.axes) == 1


def write(folder: Path, device: str, *found: Entry) -> None:
    save_history(History(device=device, entries=tuple(found)), folder / f"{device}.json")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = tmp_path_factory.mktemp("history")
    files = root / "files"
    write(files, "nvidia-h200", *entries())
    write(files, "once", entry(0, label="Once GPU"))
    runs = {"plot_99_gone": Run(source="0" * 12, times=(Time("hostile", HOSTILE, 1e-3),))}
    fields: dict[str, Any] = {"label": f"Abacus {HOSTILE}", "versions": {"torch": HOSTILE}, "runs": runs}
    write(files, "abacus", *[entry(week, **fields) for week in range(2)])
    pages = {"index.rst": INDEX, "history.rst": PAGE}
    pages |= {f"recordings/history/{path.name}": path.read_text() for path in files.iterdir()}
    return build_site(root / "site", DATA, pages)


def section(site: Site, name: str) -> Tag:
    found = site.page("history.html").find(id=name)
    assert isinstance(found, Tag)
    return found


def test_every_result_has_a_picture_for_each_theme(site: Site) -> None:
    assert site.status == 0, site.log
    found = section(site, f"nvidia-h200-{SCRIPT}".replace("_", "-"))
    images = found.select("img")
    assert len(images) == 2 * 3
    for image in images:
        assert (site.html / str(image["src"])).is_file()
    assert "compiled 200 µs on 2026-01-05, 100 µs on 2026-02-09. torch 2.12.0 from" in str(images[0]["alt"])
    assert found.select_one(f"a[href*='{SCRIPT}']") is not None
    rows = [
        [cell.get_text(strip=True) for cell in row.select("td")]
        for row in section(site, "nvidia-h200").select("tbody tr")
    ]
    assert [row[0] for row in rows] == [f"2026-0{day}" for day in ("2-09", "2-02", "1-26", "1-19", "1-12", "1-05")]
    assert [row[1] for row in rows] == ["2.12.0"] * 3 + ["2.11.0+cu130"] * 3
    assert rows[0][2:] == ["–", "580.159", "–", "–", "1"]  # noqa: RUF001 - what an empty cell shows.


def test_one_entry_has_no_picture_and_says_so(site: Site) -> None:
    once = section(site, "once")
    assert "Recorded on one day so far: lines begin with the second." in once.get_text()
    assert not once.select("img")
    assert "one day so far" not in section(site, "nvidia-h200").get_text()


def test_nothing_in_a_history_becomes_markup(site: Site) -> None:
    page = site.page("history.html")
    assert not [tag for tag in page.select("script") if "alert" in tag.get_text()]
    assert not page.select(".system-message, .problematic")
    assert HOSTILE in section(site, "abacus").get_text()
    for picture in (site.html / "_images").glob("history-*.svg"):
        assert "<script" not in picture.read_text()


def test_a_damaged_history_fails_the_build(tmp_path: Path) -> None:
    pages = {"index.rst": INDEX, "history.rst": PAGE}
    raw = msgspec.to_builtins(History(device="x", entries=(entry(0),)))
    raw["entries"][0]["runs"][SCRIPT]["times"][0][2] = -1.0
    pages["recordings/history/x.json"] = msgspec.json.encode(raw).decode()
    failed = build_site(tmp_path / "site", DATA, pages)
    assert failed.status != 0
    assert "a stored history cannot be read: recordings/history/x.json:" in " ".join(failed.log.split())
    # Without it the same site can be built.
    (tmp_path / "site" / "docs" / "recordings" / "history" / "x.json").unlink()
    again = run_sphinx(tmp_path / "site")
    assert again.status == 0, again.log
    assert "No machine has recorded anything yet." in again.page("history.html").get_text()
