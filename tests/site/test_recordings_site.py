"""Recordings on pages, seen on a site of two small tutorials and four recordings."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bs4 import Tag
from site_builder import Site, build_site, run_sphinx

from optimbench.comparison import compare_measurements
from optimbench.recordings import RecordedScript, Recording, device_slug, load_recording, save_recording, source_sha256
from optimbench.results import Bandwidth, RecompileLog, Table
from optimbench_site.scraper import _recording
from recording_examples import environment, measurement

SCRIPT, OTHER = "plot_01_recorded", "plot_02_plain"
PAGE = f"tutorials/start/{SCRIPT}.html"
SOURCE = '''"""
Recorded results
================

Results of every kind.
"""

import optimbench as ob
from optimbench.comparison import compare_measurements


def measured(name, time_s):
    blocks = (time_s, 1.1 * time_s, 1.3 * time_s)
    return ob.Measurement(name=name, device="cpu", num_threads=2, calls_per_block=10, block_times_s=blocks,
                          median_s=1.1 * time_s, iqr_s=0.15 * time_s, warm_up_calls=5, first_call_s=3.0, warm_up_s=3.1)


comparison = compare_measurements([measured("eager", 0.002), measured("compiled", 0.001)], baseline="eager")
comparison

# %%
# More than one, two names for the same, and one that is private.
lr_table = ob.Table(name="Rates", columns=("step", "rate"), cells=((1, 0.25), (2, 0.5)))
log = ob.RecompileLog(compilations=(), recompile_limit=8, not_compiled="Nothing to compile.")
same_log = log
_hidden = ob.Table(name="Not to be seen", columns=("a",), cells=((1,),))
print("printed")

# %%
# Alone at the end of a block, without a name.
ob.Table(name="Without a name", columns=("a",), cells=((1,),))

# %%
# Nothing new.
lr_table
'''
PLAIN = '"""\nPlain\n=====\n\nNo result.\n"""\n\nprint("nothing")\n'
HOSTILE = "<script>alert(1)</script> `x`_ |y| {{ z }} $\\frac{1}{0$ .. raw:: html"
INDEX = """Home
====

Compiled: :measured:`nvidia-h200:{script}.comparison.rows[compiled].median_s`.

.. toctree::

   tutorials/index
   results
   install
   api/index
"""
RESULTS = "Results\n=======\n\nAll of them.\n\n.. recorded-results::\n"


def recorded(sha256: str, results: dict[str, Any], **machine: Any) -> Recording:
    where = environment(**machine)
    return Recording(
        device=device_slug(where),
        scripts={SCRIPT: RecordedScript(environment=where, source_sha256=sha256)},
        results={SCRIPT: results},
    )


def compared(*times_s: float, suffix: str = "") -> Any:
    names = ["eager", "compiled", "fused"][: len(times_s)]
    rows = [measurement(name + suffix, (t, 1.01 * t, 1.2 * t)) for name, t in zip(names, times_s, strict=True)]
    return compare_measurements(rows, baseline=rows[0].name)


def make_recordings(sha256: str) -> list[Recording]:
    table = Table(name="Rates", columns=("step", "rate"), cells=((1, 0.125), (2, 0.75)))
    log = RecompileLog(compilations=(), recompile_limit=8, not_compiled="Nothing.")
    gone = RecordedScript(environment=environment(device_name="Gone GPU"), source_sha256=sha256)
    hostile_table = Table(name=HOSTILE, columns=(HOSTILE, "b"), cells=((HOSTILE, 1),), remarks=(HOSTILE,))
    copied = Bandwidth(device="cuda", moved_bytes=10**9, block_times_s=(0.25,), median_s=0.25)
    return [
        # Of this version of the script, and with a result that the build's machine does not give.
        recorded(sha256, {"comparison": compared(3e-4, 1.5e-4, 8e-5), "lr_table": table, "log": log, "copied": copied}),
        # Of an earlier version, which had no log; the table was a measurement.
        recorded(
            "0" * 64,
            {"comparison": compared(5e-4, 2e-4), "lr_table": measurement("eager")},
            device_name="NVIDIA A100",
            torch="2.9.0",
            date="2025-01-02T03:04:05+00:00",
        ),
        # From a device nobody has heard of, with text that means harm.
        recorded(
            sha256,
            {"comparison": compared(1e-3, 1e-3, suffix=HOSTILE), "lr_table": hostile_table},
            device_name=f"Abacus {HOSTILE}",
            torch=HOSTILE,
            driver=HOSTILE,
            cpu=HOSTILE,
            commit=HOSTILE,
            throttle_reasons=(HOSTILE,),
        ),
        # Of a script that is not in the gallery any more.
        Recording(
            device="gone-gpu",
            scripts={"plot_99_gone": gone},
            results={"plot_99_gone": {"comparison": compared(1e-3)}},
        ),
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


def write_gallery(folder: Path, source: str = SOURCE) -> Path:
    (folder / "start").mkdir(parents=True)
    for path in (folder, folder / "start"):
        (path / "GALLERY_HEADER.rst").write_text("Tutorials\n=========\n\nPages.\n")
    (folder / "start" / f"{SCRIPT}.py").write_text(source)
    (folder / "start" / f"{OTHER}.py").write_text(PLAIN)
    return folder


@pytest.fixture(scope="module")
def site(root: Path) -> Site:
    gallery = write_gallery(root / "scripts")
    sha256 = source_sha256(gallery / "start" / f"{SCRIPT}.py")
    pages = {"index.rst": INDEX.format(script=SCRIPT), "results.rst": RESULTS}
    files = root / "files"
    files.mkdir()
    for recording in make_recordings(sha256):
        save_recording(recording, files / f"{recording.device}.json")
    pages |= {f"recordings/{path.name}": path.read_text() for path in files.iterdir()}
    return build_site(root / "site", gallery, pages)


def tab_sets(site: Site) -> list[dict[str, Tag]]:
    """The tabs of each result on the tutorial's page, by device, as the label's content."""
    found = []
    for tabs in site.page(PAGE).select(".sd-tab-set"):
        labels = tabs.select(":scope > label")
        found.append({str(label["data-sync-id"]): label for label in labels})
    return found


def content(label: Tag) -> Tag:
    shown = label.find_next_sibling("div")
    assert isinstance(shown, Tag)
    return shown


def raw_results(site: Site) -> dict[str, dict[str, Any]]:
    """The results of the script in every JSON file of the site, by device."""
    found = {"this-build": json.loads((site.html / "results.json").read_text())}
    found |= {path.stem: json.loads(path.read_text()) for path in (site.html / "recordings").iterdir()}
    return {device: raw["results"].get(SCRIPT, {}) for device, raw in found.items()}


def column(table: Tag, title: str) -> tuple[list[str], str]:
    """A column's cells, and the unit in its header."""
    headers = [cell.get_text(strip=True) for cell in table.select("thead th")]
    index = next(i for i, header in enumerate(headers) if header.startswith(title))
    unit = re.search(r"\[(.+)\]", headers[index])
    cells = [row.select("td")[index].get_text(strip=True) for row in table.select("tbody tr")]
    return cells, unit[1] if unit else ""


SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def numbers(table: Tag, title: str) -> list[float]:
    cells, unit = column(table, title)
    return [float(cell.replace(" ", "")) * SECONDS.get(unit, 1.0) for cell in cells]


def test_build_succeeds_with_old_unknown_and_hostile_recordings(site: Site) -> None:
    assert site.status == 0, site.log


def test_each_result_is_a_set_of_tabs_this_build_first(site: Site) -> None:
    comparison, table, log = tab_sets(site)
    abacus = next(device for device in comparison if device.startswith("abacus"))
    assert list(comparison) == ["this-build", abacus, "nvidia-a100", "nvidia-h200"]
    assert list(table) == list(comparison)
    assert list(log) == ["this-build", "nvidia-h200"]
    assert (
        comparison["nvidia-h200"].get_text(strip=True)
        == "NVIDIA H200 · 2 ranks (nccl) · 2026-02-03 · torch 2.11.0+cu130"
    )
    for tabs in (comparison, table, log):
        assert {str(label["data-sync-group"]) for label in tabs.values()} == {"device"}


def test_every_value_in_a_tab_is_that_of_its_file(site: Site) -> None:
    comparison, table, log = tab_sets(site)
    raw = raw_results(site)
    for device, label in comparison.items():
        rows = raw[device]["comparison"]["rows"]
        shown = content(label)
        assert column(shown, "step")[0] == [" ".join(row["name"].split()) for row in rows]
        assert numbers(shown, "wall [") == pytest.approx([row["median_s"] for row in rows], rel=5e-3)
        if device != "this-build":
            assert numbers(shown, "host") == pytest.approx([row["host_time_s"] for row in rows], rel=5e-3)
            assert numbers(shown, "kernels [") == pytest.approx([row["kernel_time_s"] for row in rows], rel=5e-3)
            assert numbers(shown, "kernels a step") == [row["kernel_count"] for row in rows]
        for cell, speedup in zip(column(shown, "wall against")[0], raw[device]["comparison"]["speedups"], strict=True):
            wall = speedup["wall"]
            if "faster" in cell:
                factor, low, high = map(float, re.findall(r"\d+\.\d+", cell))
                assert (factor, low, high) == pytest.approx((wall["value"], wall["low"], wall["high"]), abs=6e-3)
            else:
                assert cell == "baseline" or wall["low"] <= 1.01
    for device in ("this-build", "nvidia-h200"):
        shown = content(table[device])
        cells = [[float(cell.get_text()) for cell in row.select("td")] for row in shown.select("tbody tr")]
        assert cells == raw[device]["lr_table"]["cells"]
        assert raw[device]["log"]["not_compiled"] in content(log[device]).get_text()


def test_what_is_private_or_has_two_names_or_none(site: Site) -> None:
    assert raw_results(site)["this-build"].keys() == {"comparison", "lr_table", "log"}
    captions = [caption.get_text(strip=True) for caption in site.page(PAGE).select("caption")]
    assert "Not to be seen" not in captions
    assert captions.count("Without a name") == 1
    # Each tab shows its result once, sphinx-gallery shows none again.
    assert len(captions) == sum(len(tabs) for tabs in tab_sets(site)) + 1
    assert not site.page(PAGE).select(".output_html")
    assert site.page(PAGE).select_one(".sphx-glr-script-out") is not None


def test_a_recording_of_an_earlier_script_has_a_badge_and_says_so(site: Site) -> None:
    comparison = tab_sets(site)[0]
    badges = {device: label.select_one(".ob-earlier") for device, label in comparison.items()}
    assert [device for device, badge in badges.items() if badge] == ["nvidia-a100"]
    said = content(comparison["nvidia-a100"]).get_text()
    assert "Recorded on 2025-01-02: torch 2.9.0, CUDA 13.0, driver 580.159, commit 0123456789ab." in said
    assert "made from an earlier version" in said
    assert "made from an earlier version" not in content(comparison["nvidia-h200"]).get_text()
    assert "The clocks were lowered (power cap)" in content(comparison["nvidia-h200"]).get_text()


def test_the_page_says_which_recordings_lack_a_result(site: Site) -> None:
    sentences = [p.get_text() for p in site.page(PAGE).select("p.ob-origin")]
    assert sum(sentence.startswith("Not recorded on: ") for sentence in sentences) == 3
    last = [sentence for sentence in sentences if sentence.startswith("Not recorded on: ")][-1]
    assert last.startswith("Not recorded on: Abacus ")
    assert "Gone GPU, NVIDIA A100." in last


def test_nothing_in_a_recording_becomes_markup(site: Site) -> None:
    for path in site.pages():
        page = site.page(str(path.relative_to(site.html)))
        assert not [tag for tag in page.select("script") if "alert" in tag.get_text()], path
        assert not page.select(".system-message, .problematic"), path
    tabs = tab_sets(site)[1]
    abacus = next(label for device, label in tabs.items() if device.startswith("abacus"))
    assert HOSTILE in abacus.get_text()
    assert HOSTILE in content(abacus).get_text()
    for picture in (site.html / "_images").glob("*.svg"):
        assert "<script" not in picture.read_text()


def test_the_files_of_the_site_are_the_recordings(site: Site, root: Path) -> None:
    stored = sorted(path.name for path in (root / "files").iterdir())
    assert sorted(path.name for path in (site.html / "recordings").iterdir()) == stored
    for name in stored:
        assert (site.html / "recordings" / name).read_bytes() == (root / "files" / name).read_bytes()
    own = load_recording(site.html / "results.json")
    assert own.scripts.keys() == {SCRIPT}
    assert own.scripts[SCRIPT].source_sha256 == source_sha256(root / "scripts" / "start" / f"{SCRIPT}.py")
    links = {str(a["href"]) for a in site.page("results.html").select("a[href$='.json']")}
    assert links == {"results.json", *[f"recordings/{name}" for name in stored]}


def test_results_page_has_a_table_and_two_pictures_for_each_experiment(site: Site) -> None:
    page = site.page("results.html")
    assert [title.get_text() for title in page.select("h2")] == ["Machines¶", "Recorded results¶"]
    section = page.find(id="plot-01-recorded-comparison")
    assert isinstance(section, Tag)
    headers = [cell.get_text(strip=True) for cell in section.select("thead th")]
    assert headers[:2] == ["step", "This build"]
    rows = {row.select("td")[0].get_text(strip=True): row.select("td") for row in section.select("tbody tr")}
    h200, own = headers.index("NVIDIA H200"), headers.index("This build")
    assert rows["eager"][h200].get_text(strip=True) == "303 µs (baseline)"
    assert rows["compiled"][own].get_text(strip=True).startswith("1.10 ms, 2.00x faster")
    assert rows["fused"][own].get_text(strip=True) == "–"  # noqa: RUF001 - what an empty cell shows.
    images = section.select("img")
    assert [image["class"] for image in images] == [["only-light", "ob-figure"], ["only-dark", "ob-figure"]]
    for image in images:
        assert (site.html / str(image["src"])).is_file()
        assert "NVIDIA H200: Wall time of one step: eager 303 µs (kernels 70.0 µs) (baseline)" in str(image["alt"])
    # Only some machines have it, and not the one that built.
    copied = page.find(id="plot-01-recorded-copied")
    assert isinstance(copied, Tag)
    assert "4.00 GB/s" in copied.get_text()
    # A table has no picture and cannot be put side by side.
    table = page.find(id="plot-01-recorded-lr-table")
    assert isinstance(table, Tag)
    assert len(table.select(".sd-tab-set > label")) == 4
    assert not table.select("img")


def test_results_page_lists_machines_and_what_is_not_shown(site: Site) -> None:
    page = site.page("results.html")
    machines = page.find(id="machines")
    assert isinstance(machines, Tag)
    names = column(machines, "machine")[0]
    own, *others = [name for name in names if HOSTILE not in name]
    assert others == ["Gone GPU", "NVIDIA A100", "NVIDIA H200"]
    assert own.startswith("This build: ")
    assert "Gone GPU: 1 recorded scripts are not part of this build." in machines.get_text()
    assert "Recorded from an earlier version of the script: NVIDIA A100." in page.get_text()


def test_role_shows_a_measured_value_with_unit_and_device(site: Site) -> None:
    assert "Compiled: 152 µs (NVIDIA H200)." in site.page("index.html").get_text()


def test_a_script_that_has_not_changed_keeps_its_results_beside_new_recordings(site: Site, tmp_path: Path) -> None:
    before = load_recording(site.html / "results.json")
    # The other tests look at the site as it is, in whatever order they come.
    shutil.copytree(site.html.parent, tmp_path / "site")
    docs = tmp_path / "site" / "docs"
    (docs / "index.rst").write_text(INDEX.replace("Compiled: :measured", "Eager: :measured").format(script=SCRIPT))
    for path in (docs / "recordings").iterdir():
        if not path.name.startswith("nvidia-h200"):
            path.unlink()
    newer = make_recordings("f" * 64)[0]
    save_recording(newer, docs / "recordings" / "nvidia-h200.json")
    again = run_sphinx(tmp_path / "site")
    assert again.status == 0, again.log
    assert load_recording(again.html / "results.json") == before, "the script was run again"
    tabs = tab_sets(again)[0]
    assert list(tabs) == ["this-build", "nvidia-h200"]
    assert tabs["nvidia-h200"].select_one(".ob-earlier") is not None
    assert [path.name for path in (again.html / "recordings").iterdir()] == ["nvidia-h200.json"]


@pytest.fixture
def fail(tmp_path: Path) -> Callable[..., str]:
    """A function that builds a site which must fail, and gives what was said."""

    def build(pages: dict[str, str], source: str = PLAIN) -> str:
        failed = build_site(tmp_path / "site", write_gallery(tmp_path / "scripts", source), pages)
        assert failed.status != 0
        assert not (failed.html / "index.html").exists()
        return failed.log

    return build


def test_a_damaged_recording_fails_the_build_before_anything_is_run(fail: Callable[..., str]) -> None:
    raw = msgspec.to_builtins(make_recordings("0" * 64)[0])
    raw["results"][SCRIPT]["comparison"]["rows"][2]["median_s"] = -1.0
    said = fail({"recordings/nvidia-h200.json": json.dumps(raw)})
    where = f"recordings/nvidia-h200.json: results.{SCRIPT}.comparison.rows[2].median_s: is -1.0"
    assert where in " ".join(said.split())
    assert "generating gallery" not in said


def test_a_measured_value_that_is_missing_fails_the_build(fail: Callable[..., str]) -> None:
    pages = {"index.rst": INDEX.replace("   results\n", "").format(script=SCRIPT)}
    said = " ".join(fail(pages).split())
    assert f":measured:`nvidia-h200:{SCRIPT}.comparison.rows[compiled].median_s`: no recording of 'nvidia-h200'" in said
    assert "index.rst:4" in said


def test_a_variable_that_holds_two_results_fails_the_build(fail: Callable[..., str]) -> None:
    source = SOURCE.replace("# Nothing new.\n", "# Another.\nlog = ob.Table(name='x', columns=(), cells=())\n")
    said = " ".join(fail({}, source).split())
    assert "the variable 'log' held another result before" in said
    assert SCRIPT in said


def test_a_script_that_measured_in_several_processes_says_so(tmp_path: Path) -> None:
    script = tmp_path / "plot_18_ranks.py"
    script.write_text("")
    ranks = environment(world_size=2, backend="gloo")
    found = _recording(script, {"machine": ranks}, {}).scripts[script.stem].environment
    assert (found.world_size, found.backend) == (2, "gloo")
    alone = _recording(script, {}, {}).scripts[script.stem].environment
    assert (alone.world_size, alone.backend) == (1, None)
