"""Faults that only a browser sees, each on a page that is good otherwise."""

import base64
import random
import shutil
from pathlib import Path

import pytest
from small_sites import GOOD, make_site, page

from site_checks import Site
from site_checks.browser import check_in_browser, find_browser
from site_checks.keyboard import check_keyboard
from site_checks.tools import ToolError

LATER = "<script>addEventListener('load', () => { CODE });</script>"
PUSH = "document.querySelector('h1').style.marginTop = '300px'"
PUSHED = LATER.replace("CODE", f"requestAnimationFrame(() => requestAnimationFrame(() => {{ {PUSH}; }}))")
# Cannot be compressed to less than three quarters.
HEAVY = base64.b64encode(random.Random(0).randbytes(160_000)).decode()


def found_in(site: Site, name: str = "index.html") -> dict[str, list[str]]:
    """What the browser's checks say of one page, by check."""
    said: dict[str, list[str]] = {}
    for fault in check_in_browser(site, [name]):
        said.setdefault(fault.check, []).append(fault.said)
    return said


def test_good_page_has_no_fault_and_leaves_its_pictures(tmp_path: Path) -> None:
    code = f"<pre tabindex='0'>{'long ' * 100}</pre><div style='overflow: auto' tabindex='0'><table><tr><td>"
    site = make_site(tmp_path / "site", f"<p>Text.</p>{code}{'wide' * 100}</td></tr></table></div>")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    assert check_in_browser(site, screenshots=pictures) == []
    assert sorted(path.name for path in pictures.iterdir()) == ["index.dark.jpg", "index.light.jpg"]


def test_image_without_a_text_is_found_at_every_width(tmp_path: Path) -> None:
    said = found_in(make_site(tmp_path, "<img src='data:,'>"))["accessibility"]
    assert [text.split(":")[0] for text in said if text.startswith("image-alt")] == [
        f"image-alt at {width} px" for width in (1366, 360, 768)
    ]


@pytest.mark.parametrize(
    ("style", "where"),
    [
        ("@media (prefers-color-scheme: dark) { p { color: #333; } }", "at 360 px, dark"),
        ("@media (prefers-color-scheme: light) { p { color: #ccc; } }", "at 360 px, light"),
        ("@media (width: 768px) { p { color: #777; background: #888; } }", "at 768 px, dark"),
    ],
)
def test_low_contrast_of_one_theme_or_width_is_found(tmp_path: Path, style: str, where: str) -> None:
    said = found_in(make_site(tmp_path, "<p>Text.</p>", f"<style>{style}</style>"))["accessibility"]
    assert any(text.startswith(f"color-contrast {where}") for text in said), said
    assert not any("1366 px" in text for text in said if "768" in where)


@pytest.mark.parametrize(
    "hiding", ["<details><summary>More</summary>IT</details>", "<div class='sd-tab-content'>IT</div>"]
)
def test_what_is_folded_away_is_read(tmp_path: Path, hiding: str) -> None:
    hidden = hiding.replace("IT", "<p style='color: #ddd; background: #eee'>Text.</p>")
    said = found_in(make_site(tmp_path, hidden, "<style>.sd-tab-content { display: none; }</style>"))
    assert any(text.startswith("color-contrast") for text in said["accessibility"])


def test_each_class_of_words_in_code_is_read(tmp_path: Path) -> None:
    words = "<span class='k'>if</span> <span class='k'>if</span> <span class='c1'># not</span>"
    code = f"<div class='highlight-python'><div class='highlight'><pre>{words}</pre></div></div>"
    said = found_in(make_site(tmp_path, code, "<style>.c1 { color: #888; background: #999; }</style>"))
    assert any(text.startswith("color-contrast") and ".c1" in text for text in said["accessibility"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("console.error('went wrong')", "went wrong"),
        ("throw new Error('thrown')", "thrown"),
        ("fetch('gone.json')", "404"),
    ],
)
def test_console_errors_are_found(tmp_path: Path, script: str, said: str) -> None:
    assert any(said in text for text in found_in(make_site(tmp_path, LATER.replace("CODE", script)))["console"])


@pytest.mark.parametrize(
    "script",
    [
        "fetch('http://example.org/x').catch(() => {})",
        "new WebSocket('ws://example.org/x')",
        "new Image().src = '//a.org/x.png'",
    ],
)
def test_request_to_another_host_is_found(tmp_path: Path, script: str) -> None:
    said = found_in(make_site(tmp_path, LATER.replace("CODE", script)))["other host"]
    assert len(said) == 1
    assert said[0].startswith("asked for")


def test_wide_page_is_found_at_the_width_where_it_is_too_wide(tmp_path: Path) -> None:
    said = found_in(make_site(tmp_path, "<div style='width: 700px'>wide</div>"))["sideways scrolling"]
    assert len(said) == 1
    assert said[0].endswith("at 360 px")


def test_box_that_scrolls_without_code_or_table_is_found(tmp_path: Path) -> None:
    box = "<div class='box' tabindex='0' style='overflow: auto'><p style='width: 900px'>wide</p></div>"
    said = found_in(make_site(tmp_path, box))["sideways scrolling"]
    assert said == [f"div.box scrolls at {width} px and is neither a table nor code" for width in (360, 768)]


def test_layout_that_shifts_is_found(tmp_path: Path) -> None:
    said = found_in(make_site(tmp_path, "<p>Text.</p>" * 20 + PUSHED))["layout shift"]
    assert len(said) == 3


def test_heavy_page_is_found_and_figures_are_not_weighed(tmp_path: Path) -> None:
    script = "<script src='heavy.js'></script>"
    assert "weight" in found_in(make_site(tmp_path, script, files={"heavy.js": f"// {HEAVY}"}))
    figure = f"<svg xmlns='http://www.w3.org/2000/svg'><!-- {HEAVY} --></svg>"
    image = "<img alt='' src='heavy.svg' width='9' height='9'>"
    assert found_in(make_site(tmp_path / "light", image, files={"heavy.svg": figure})) == {}


def test_no_browser_is_no_fault_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ToolError, match="no browser is installed"):
        find_browser()


SKIP = "<a href='#furo-main-content'>Skip</a>"
SEARCH = "<form action='search.html'><input class='sidebar-search' name='q' aria-label='Search'></form>"
TABS = """<style>.sd-tab-content { display: none; } input:checked + label + .sd-tab-content { display: block; }
input:focus-visible + label { outline: 2px solid blue; } input { opacity: 0; }</style><div class="sd-tab-set">
<input type="radio" name="a" id="a" checked><label for="a" data-sync-id="this-build">A</label>
<p class="sd-tab-content">a</p>
<input type="radio" name="a" id="b"><label for="b" data-sync-id="other">B</label><p class="sd-tab-content">b</p></div>
<script>addEventListener("change", e => sessionStorage.setItem("tab", e.target.id));
if (sessionStorage.getItem("tab")) document.getElementById(sessionStorage.getItem("tab")).checked = true;</script>"""
RESULTS = """<div id="search-results"></div><script>if (location.search === "?q=word")
document.getElementById("search-results").innerHTML = "<a href='found.html'>found</a>";</script>"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        (SKIP, "", "the first stop is not the link that skips the navigation"),
        ('type="radio"', 'type="radio" disabled', "no stop at a tab set"),
        ("outline: 2px solid blue", "outline: none", "nothing marks the tab that has the focus"),
        ('id="b"', 'id="b" disabled', "the right arrow does not choose the next tab"),
        (" + .sd-tab-content { display: block; }", "", "a tab that is chosen is hidden, or one that is not is shown"),
        ("sessionStorage.setItem", "String", "shows ['this-build'] after other was chosen"),
        ("class='sidebar-search'", "", "no stop at the search"),
        ("?q=word", "?q=else", "the search for 'word' does not find found.html"),
    ],
)
def test_keyboard(tmp_path: Path, old: str, new: str, said: str | None) -> None:
    tabbed = page(f"{SKIP}{SEARCH}<div id='furo-main-content'>x</div>{SEARCH}{TABS}")
    files: dict[str, str | bytes] = {"a.html": tabbed, "b.html": tabbed, "search.html": page(RESULTS)}
    if old:
        files = {name: str(text).replace(old, new) for name, text in files.items()}
    site = make_site(tmp_path, files=files | {"found.html": GOOD})
    found = [fault.said for fault in check_keyboard(site, "a.html", "b.html", "word", "found.html")]
    assert found == [] if said is None else said in found
