"""What a reader's browser does with a page: a choice that is kept, a narrow screen, paper."""

import shutil
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from site_builder import Site, build_site

from optimbench.comparison import compare_measurements
from optimbench.recordings import RecordedScript, Recording, save_recording
from recording_examples import environment, measurement

playwright = pytest.importorskip("playwright.sync_api", reason="the group 'site' is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

PAGES = ["tutorials/start/plot_01_one.html", "tutorials/start/plot_02_two.html"]
SOURCE = '''"""
{title}
========

A result and a long output.
"""

from optimbench import Table

rates = Table(name="Rates", columns=("step", "{wide}"), cells=((1, 2.5),))
print("\\n".join(f"line {{number}}" for number in range(60)))
'''
CHOSEN = "[...document.querySelectorAll('.ob-tabs > input')].map(i => i.checked && i.nextElementSibling.dataset.syncId)"
# The theme lets the whole content scroll where it does not fit; that is a page that scrolls, too.
TOO_WIDE = "Math.max(...[...document.querySelectorAll('html, .content')].map(e => e.scrollWidth - e.clientWidth))"
# Which of the parts are seen that a reader opens.
SEEN = (
    "[...document.querySelectorAll('.ob-tabs > .sd-tab-content, details.ob-log > div')].map(e => e.checkVisibility())"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = tmp_path_factory.mktemp("browser")
    start = root / "scripts" / "start"
    start.mkdir(parents=True)
    for path in (start.parent, start):
        (path / "GALLERY_HEADER.rst").write_text("Tutorials\n=========\n\nPages.\n")
    names = [Path(page).stem for page in PAGES]
    for name in names:
        (start / f"{name}.py").write_text(SOURCE.format(title=name[-3:].title() + " page", wide="wide_" * 80))
    rows = [measurement("eager", (4e-4,) * 3), measurement("compiled", (2e-4,) * 3)]
    run = RecordedScript(environment=environment(), source_sha256="0" * 64)
    recording = Recording(
        device="nvidia-h200",
        scripts=dict.fromkeys(names, run),
        results={name: {"rates": compare_measurements(rows, baseline="eager")} for name in names},
    )
    save_recording(recording, root / "nvidia-h200.json")
    pages = {"recordings/nvidia-h200.json": (root / "nvidia-h200.json").read_text()}
    built = build_site(root / "site", start.parent, pages)
    assert built.status == 0, built.log
    return built


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words, directory=str(site.html))

        def log_message(self, *words: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_a_chosen_machine_is_kept_on_other_pages_and_visits(browser: Any, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(address + PAGES[0])
    assert page.evaluate(CHOSEN) == ["this-build", False]
    # With the keyboard, as a reader without a mouse does it.
    page.locator(".ob-tabs > input").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(CHOSEN) == [False, "nvidia-h200"]
    page.goto(address + PAGES[1])
    assert page.evaluate(CHOSEN) == [False, "nvidia-h200"]
    later = browser.new_context(storage_state=context.storage_state()).new_page()
    later.goto(address + PAGES[1])
    assert later.evaluate(CHOSEN) == [False, "nvidia-h200"]
    stranger = browser.new_context().new_page()
    stranger.goto(address + PAGES[1])
    assert stranger.evaluate(CHOSEN) == ["this-build", False]


@pytest.mark.parametrize("page_name", [*PAGES, "index.html", "install.html", "tutorials/index.html"])
def test_a_telephone_scrolls_no_page_sideways(browser: Any, address: str, page_name: str) -> None:
    page = browser.new_context(viewport={"width": 360, "height": 800}).new_page()
    page.goto(address + page_name)
    assert page.evaluate(TOO_WIDE) <= 0
    if page_name in PAGES:
        widest = "Math.max(...[...document.querySelectorAll('.ob-scroll')].map(e => e.scrollWidth))"
        assert page.evaluate(widest) > 360, "nothing on this page is wide"


def test_paper_shows_the_page_alone_with_everything_opened(browser: Any, address: str) -> None:
    page = browser.new_context(viewport={"width": 720, "height": 1000}, color_scheme="dark").new_page()
    page.goto(address + PAGES[0])
    assert page.evaluate(SEEN) == [True, False, False]
    page.emulate_media(media="print")
    assert page.evaluate(SEEN) == [True, True, True]
    for hidden in (".sidebar-drawer", ".toc-drawer", ".mobile-header", ".related-pages", ".skip-to-content"):
        assert not page.locator(hidden).first.is_visible(), hidden
    assert page.evaluate("getComputedStyle(document.querySelector('article pre')).whiteSpace") == "pre-wrap"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") in {
        "rgba(0, 0, 0, 0)",
        "rgb(255, 255, 255)",
    }
