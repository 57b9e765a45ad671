"""What only a browser can tell of a page: accessibility, errors, requests, layout and weight, as readers may see it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from playwright.async_api import Browser, Page, async_playwright

from site_checks import Fault, Site
from site_checks.server import compressed, served
from site_checks.tools import ToolError

# A telephone, a tablet upright, a laptop: at 1280 pixels the theme would still hide the contents of the page.
WIDTHS = (360, 768, 1366)
HEIGHT = 900
# Rules that look at colours. All others give the same answer in both themes, so they are asked once for each width.
COLOUR_RULES = ("color-contrast", "link-in-text-block")
# Bytes of one page with its styles, scripts and fonts as they are sent; figures are not counted.
WEIGHT_LIMIT_BYTES = 150_000
WEIGHED = ("document", "stylesheet", "script", "font")
# Chromium's sum for one page, called good up to here. Ours have 0.00003; where the machine is so busy that half a page
# is drawn before the rest is read, 0.04 was seen.
SHIFT_LIMIT = 0.1
# Pages looked at side by side.
N_PARALLEL = 2

Report = Callable[[str, str], None]

_RECORD_SHIFTS = """
window.shifts = 0;
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
}).observe({type: "layout-shift", buffered: true});
"""
# Some frames, so that what the load and the fonts have set off is drawn.
_SETTLE = """async () => {
  await document.fonts.ready;
  for (let n = 0; n < 6; n++) await new Promise(requestAnimationFrame);
}"""
# Everything that scrolls sideways and is neither code nor holds a table.
_SCROLLERS = """() => [...document.querySelectorAll("body *")].filter(e =>
    e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX) &&
    !e.closest("pre, .highlight") && !e.querySelector(":scope > table")
  ).map(e => e.tagName.toLowerCase() + "." + e.className)"""
# What is folded away or behind a tab is read too.
_UNFOLD = """() => {
  document.querySelectorAll("details").forEach(e => { e.open = true; });
  const style = document.createElement("style");
  style.textContent = ".sd-tab-content { display: block !important; } * { transition: none !important; }";
  document.head.append(style);
}"""
# Most of the time would go into contrast. Of the texts that are seen in the same colours, size and weight, above the
# same backgrounds, one is looked at.
_MARK_LOOKS = """() => {
  const [behind, looks] = [new Map([[null, ""]]), new Set()];
  for (const e of document.querySelectorAll("*")) {
    const s = getComputedStyle(e);
    const own = [s.backgroundColor, s.backgroundImage, s.opacity].join();
    const placed = s.position === "static" || s.position === "relative" ? "" : behind.size;
    behind.set(e, behind.get(e.parentElement) + (own === "rgba(0, 0, 0, 0),none,1" ? "" : own + "/") + placed);
    delete e.dataset.look;
    const hasText = [...e.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!hasText && !e.matches("input, select, textarea") || !e.checkVisibility({visibilityProperty: true})) continue;
    const box = e.getBoundingClientRect();
    if (box.width <= 1 || box.height <= 1 || box.right <= 0) continue;
    const around = e.parentElement ? getComputedStyle(e.parentElement).color : "";
    const look = [behind.get(e), s.color, s.fontSize, s.fontWeight, s.textShadow, s.textDecorationLine, around,
                  !e.closest("a"), !e.closest("p, li, td"), e.matches("input, select, textarea")].join("//");
    if (!looks.has(look)) e.dataset.look = "";
    looks.add(look);
  }
  axe.configure({rules: [
    {id: "color-contrast", selector: "[data-look]"}, {id: "link-in-text-block", selector: "a[href]"}]});
}"""
_AXE = """options => axe.run(document, {resultTypes: ["violations"], ...options}).then(
  result => result.violations.map(v => [
    v.id, v.nodes.length, v.nodes[0].target.join(" "), v.nodes[0].failureSummary.replace(/\\s+/g, " ")]))"""


def find_browser() -> str:
    """The path of Chromium, as Debian, Ubuntu or Google name it.

    Raises:
        ToolError: There is none.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    found = [path for name in names if (path := shutil.which(name))]
    if not found:
        raise ToolError(f"no browser is installed (looked for {', '.join(names)})")
    return found[0]


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """Chromium without a window, which reaches no other host.

    Raises:
        ToolError: It is not installed.
    """
    executable = find_browser()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable, args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        )
        try:
            yield browser
        finally:
            await browser.close()


def check_in_browser(site: Site, pages: Sequence[str] | None = None, screenshots: Path | None = None) -> list[Fault]:
    """Look at pages of a site in every theme and width.

    Args:
        site: The built site.
        pages: Names of pages, or all of them.
        screenshots: A folder for a picture of each page in the light at full width and in the dark on a telephone.
    """
    return asyncio.run(_check_pages(site, site.pages if pages is None else pages, screenshots))


async def _check_pages(site: Site, pages: Sequence[str], screenshots: Path | None) -> list[Fault]:
    waiting, found = list(reversed(pages)), list[Fault]()
    with served(site.root) as address:
        async with launched() as browser:

            async def look_at_pages() -> None:
                context = await browser.new_context()
                await context.add_init_script(_RECORD_SHIFTS)
                # Once for all pages: sent with each, its half megabyte takes longer than its work.
                await context.add_init_script((files("axe_playwright_python") / "axe.min.js").read_text())
                # One tab for all pages: opening one costs the browser more than showing a page.
                tab = await context.new_page()
                while waiting:
                    found.extend(await _check_page(tab, site, address, waiting.pop(), screenshots))

            await asyncio.gather(*[look_at_pages() for _ in range(N_PARALLEL)])
    return sorted(found)


async def _check_page(page: Page, site: Site, address: str, name: str, screenshots: Path | None) -> list[Fault]:
    found = dict[Fault, None]()
    requests = set[tuple[str, str]]()

    def fault(check: str, said: str) -> None:
        found[Fault(check, name, said)] = None

    listeners: dict[str, Callable[..., None]] = {
        "request": lambda request: requests.add((request.resource_type, request.url)),
        "websocket": lambda socket: requests.add(("websocket", socket.url)),
        "console": lambda said: fault("console", said.text) if said.type in {"error", "warning"} else None,
        "pageerror": lambda error: fault("console", str(error)),
    }
    for event, listener in listeners.items():
        page.on(event, listener)  # type: ignore[call-overload]
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": HEIGHT})
        await page.emulate_media(color_scheme="light", reduced_motion="reduce")
        await page.goto(address + name)
        await page.evaluate(_SETTLE)
        shifts = await page.evaluate("window.shifts")
        if shifts > SHIFT_LIMIT:
            fault("layout shift", f"{shifts:.3f} at {width} px (expected at most {SHIFT_LIMIT})")
        if screenshots and width == WIDTHS[-1]:
            await _picture(page, screenshots, name, "light")
        await _check_width(page, width, fault)
        await page.evaluate(_UNFOLD)
        # The page itself looks at what has become visible, and does so in a later frame.
        await page.evaluate(_SETTLE)
        await _check_width(page, width, fault)
        await _check_accessibility(page, width, fault)
        if screenshots and width == WIDTHS[0]:
            await _picture(page, screenshots, name, "dark")
    # What the page still does belongs to it and not to the next.
    await page.goto("about:blank")
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    for url in sorted({url for _, url in requests if not url.startswith((address, "about:", "data:", "blob:"))}):
        fault("other host", f"asked for {url}")
    weight = _weight_bytes(site, name, [url for kind, url in requests if kind in WEIGHED and url.startswith(address)])
    if weight > WEIGHT_LIMIT_BYTES:
        fault("weight", f"{weight} bytes compressed, without figures (expected at most {WEIGHT_LIMIT_BYTES})")
    return list(found)


async def _check_width(page: Page, width: int, fault: Report) -> None:
    whole = await page.evaluate("document.documentElement.scrollWidth")
    if whole > width:
        fault("sideways scrolling", f"the page is {whole} px wide at {width} px")
    for scroller in dict.fromkeys(await page.evaluate(_SCROLLERS)):
        fault("sideways scrolling", f"{scroller} scrolls at {width} px and is neither a table nor code")


async def _check_accessibility(page: Page, width: int, fault: Report) -> None:
    # Lighthouse asks for targets that a finger can hit; axe does so only if told.
    rest = {"rules": {"target-size": {"enabled": True}} | {rule: {"enabled": False} for rule in COLOUR_RULES}}
    await _run_axe(page, rest, f"at {width} px", fault)
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        await page.emulate_media(color_scheme=scheme)
        await page.evaluate(_MARK_LOOKS)
        await _run_axe(page, {"runOnly": list(COLOUR_RULES)}, f"at {width} px, {scheme}", fault)


async def _run_axe(page: Page, options: Mapping[str, object], where: str, fault: Report) -> None:
    for rule, count, first, said in await page.evaluate(_AXE, options):
        fault("accessibility", f"{rule} {where}: {count} times, first {first}: {said}")


async def _picture(page: Page, folder: Path, name: str, scheme: str) -> None:
    path = folder / f"{name.removesuffix('.html').replace('/', '.')}.{scheme}.jpg"
    await page.screenshot(path=path, full_page=True, type="jpeg", quality=60)


def _weight_bytes(site: Site, name: str, urls: Sequence[str]) -> int:
    paths = {site.root / unquote(urlsplit(url).path).lstrip("/") for url in urls} | {site.root / name}
    return sum(len(compressed(path)) for path in paths if path.is_file())
