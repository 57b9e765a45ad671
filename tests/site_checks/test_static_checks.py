"""Faults that show without a browser."""

import io
import urllib.request
import zipfile
from pathlib import Path
from urllib.error import HTTPError

import pytest
from small_sites import GOOD, make_site, page

from site_checks.downloads import bad_archives, some_pages, tutorial_pages
from site_checks.lighthouse import faults_of
from site_checks.links import broken_links, foreign_addresses
from site_checks.server import served
from site_checks.tools import ToolError, installed_packages, run_tool
from site_checks.tutorials import unexecuted_tutorials
from site_checks.valid_html import invalid_html

REPOSITORY = Path(__file__).parents[2]
TUTORIAL = "tutorials/start/plot_01_first.html"
EXECUTED = """<article><div class="sphx-glr-script-out"><pre>PRINTED</pre></div><div class="ob-result">RESULT</div>
<p class="sphx-glr-timing"><strong>Total running time of the script:</strong> (TIME)</p></article>"""
DOWNLOADS = '<p><a class="download" href="{0}.py">py</a><a class="download" href="{0}.ipynb">ipynb</a></p>'


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("gone.html", "leads to no file"),
        ("../index.html", "leads to no file"),
        ("sub/other.html#gone", "leads to no element of sub/other.html"),
        ("#gone", "leads to no element of index.html"),
        ("empty/", "leads to no file"),
    ],
)
def test_broken_link_is_found(tmp_path: Path, address: str, said: str) -> None:
    site = make_site(tmp_path, f'<a href="{address}">x</a>', files={"sub/other.html": GOOD, "empty/file.txt": ""})
    assert [(fault.page, fault.said) for fault in broken_links(site)] == [("index.html", f"{address} {said}")]


def test_missing_image_of_several_is_found(tmp_path: Path) -> None:
    site = make_site(tmp_path, '<img alt="" src="one.png" srcset="one.png 1x, gone.png 2x">', files={"one.png": b""})
    assert ["gone.png" in fault.said for fault in broken_links(site)] == [True]


def test_good_links_are_no_faults(tmp_path: Path) -> None:
    links = [
        "#here",
        "/index.html?q=1",
        "sub/",
        "sub/index.html#%C3%A9t%C3%A9",
        "https://example.org/x",
        "mailto:a@example.org",
    ]
    body = '<p id="here">x</p>' + "".join(f'<a href="{address}">x</a>' for address in links)
    site = make_site(tmp_path, body, files={"sub/index.html": page('<p id="été"><a href="../index.html">x</a></p>')})
    assert broken_links(site) == []


@pytest.mark.parametrize(
    "fetched",
    [
        '<img alt="" src="https://example.org/a.png" loading="lazy">',
        '<img alt="" srcset="//example.org/a.png 2x">',
        '<link rel="preconnect" href="https://example.org">',
        '<link rel="stylesheet" href="https://example.org/a.css">',
        '<script src="https://example.org/a.js"></script>',
    ],
)
def test_address_of_another_host_is_found(tmp_path: Path, fetched: str) -> None:
    assert ["example.org" in fault.said for fault in foreign_addresses(make_site(tmp_path, fetched))] == [True]


def test_what_is_only_named_is_not_fetched(tmp_path: Path) -> None:
    site = make_site(
        tmp_path, '<a href="https://example.org">x</a>', '<link rel="canonical" href="https://example.org/">'
    )
    assert foreign_addresses(site) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"PRINTED": " "}, "printed nothing"),
        ({"PRINTED": "Skipping: no GPU"}, "says 'Skipping'"),
        ({"RESULT": "Traceback (most recent call last): ..."}, "says 'Traceback (most recent call last)'"),
        ({"TIME": "0 minutes 0.000 seconds"}, "no running time, or none above zero"),
        ({'class="ob-result"': ""}, "no result and no figure"),
        ({'"sphx-glr-script-out"': '"sphx-glr-pytb sphx-glr-script-out"'}, "shows a traceback"),
    ],
)
def test_tutorial_that_did_not_run_is_found(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    text = EXECUTED
    for old, new in changed.items():
        text = text.replace(old, new)
    text = text.replace("TIME", "0 minutes 1.500 seconds")
    assert [fault.said for fault in unexecuted_tutorials(make_site(tmp_path, files={TUTORIAL: text}), 1)] == [said]


def test_executed_tutorial_is_no_fault_and_a_missing_one_is(tmp_path: Path) -> None:
    site = make_site(tmp_path, files={TUTORIAL: EXECUTED.replace("TIME", "1 minutes 0.000 seconds")})
    assert unexecuted_tutorials(site, 1) == []
    assert [fault.said for fault in unexecuted_tutorials(site, 2)] == ["1 pages for 2 scripts"]


def test_archives_hold_what_is_offered_alone(tmp_path: Path) -> None:
    def zipped(**files: str) -> bytes:
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"start/{name}", text)
        return whole.getvalue()

    files: dict[str, str | bytes] = {
        "a/page.html": page(DOWNLOADS.format("one")),
        "a/one.py": "1",
        "a/one.ipynb": "2",
    }
    index = '<a class="download" href="all.zip">all</a>'
    good = make_site(tmp_path, index, files=files | {"all.zip": zipped(**{"one.py": "1", "one.ipynb": "2"})})
    assert tutorial_pages(good) == ["a/page.html"]
    assert bad_archives(good) == []
    bad = make_site(tmp_path, index, files=files | {"all.zip": zipped(**{"one.py": "other"})})
    assert [fault.said for fault in bad_archives(bad)] == [
        "all.zip holds another one.py",
        "in no archive of the gallery",
    ]
    broken = make_site(tmp_path, index, files=files | {"all.zip": b"no archive"})
    assert "all.zip: File is not a zip file" in [fault.said for fault in bad_archives(broken)]


def test_pages_are_spread_from_the_first_to_the_last() -> None:
    assert some_pages("abcdefg", 3) == ["a", "d", "g"]
    assert some_pages("abc", 5) == ["a", "b", "c"]
    assert some_pages("abc", 1) == ["a"]
    assert some_pages("abc", 0) == []


@pytest.fixture(scope="session")
def node_modules() -> Path:
    return installed_packages(REPOSITORY / "build" / "site_tools")


def test_invalid_html_is_found_and_counted(tmp_path: Path, node_modules: Path) -> None:
    body = '<div tooltip="x">x</div><div tooltip="y">y</div><p id="a">x</p><p id="a">x</p><p><ul><li>x</li></ul></p>'
    said = [fault.said for fault in invalid_html(make_site(tmp_path, body, files={"good.html": GOOD}), node_modules)]
    assert len(said) == 3, said
    assert any("tooltip" in text and "2 times" in text for text in said)
    assert any("Duplicate ID" in text for text in said)
    assert invalid_html(make_site(tmp_path), node_modules) == []


def test_missing_program_is_not_a_fault_of_the_site() -> None:
    with pytest.raises(ToolError, match="no-such-program is not installed"):
        run_tool("no-such-program")
    with pytest.raises(ToolError, match="ended with 1"):
        run_tool("false")


def test_only_scores_below_95_are_faults() -> None:
    found = faults_of("index.html", "mobile", {"performance": 94, "seo": 95, "accessibility": 100})
    assert [fault.said for fault in found] == ["performance 94 on mobile (expected at least 95)"]


def test_server_compresses_and_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path.parent / "secret.txt").write_text("secret")
    site = make_site(tmp_path, files={"404.html": "not here", "figure.png": b"figure"})
    with served(site.root) as address:
        request = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
        with urllib.request.urlopen(f"{address}figure.png") as answer:
            assert (answer.read(), answer.headers["Content-Type"]) == (b"figure", "image/png")
        for name in ("gone.html", "../secret.txt"):
            with pytest.raises(HTTPError) as refused:
                urllib.request.urlopen(address + name)
            with refused.value:
                assert (refused.value.code, refused.value.read()) == (404, b"not here")
