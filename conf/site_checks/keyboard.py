"""A reader without a mouse: past the navigation, through the tabs, and to the search."""

import asyncio

from playwright.async_api import Browser, Page
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from site_checks import Fault, Site
from site_checks.browser import launched
from site_checks.server import served

CHECK = "keyboard"
# More stops than any page has before its first tab set.
_N_STOPS = 400

_ON_TAB = "() => document.activeElement.matches('.sd-tab-set > input')"
_ON_SEARCH = "() => document.activeElement.matches('.sidebar-search')"
# The focus must be seen: an outline or a shadow, on the element or on the label that stands for it.
_IS_MARKED = """() => [document.activeElement, document.activeElement.nextElementSibling].some(e => {
  const style = e && getComputedStyle(e);
  if (!style || style.opacity === "0") return false;
  return style.outlineStyle !== "none" && style.outlineWidth !== "0px" || style.boxShadow !== "none";
})"""
_CHOSEN = """() => document.querySelector(".sd-tab-set > input:checked + label").dataset.syncId"""
# What is chosen in those tab sets that offer a certain tab.
_CHOSEN_INSTEAD = """id => [...document.querySelectorAll(`.sd-tab-set > [data-sync-id="${id}"]`)].map(
  e => e.parentElement.querySelector(":scope > input:checked + label").dataset.syncId)"""
# Whether the tabs that were not chosen are out of sight and the chosen ones are not.
_SHOWS_CHOSEN = """() => [...document.querySelectorAll(".sd-tab-set > input")].every(
  e => e.checked === (e.nextElementSibling.nextElementSibling.getClientRects().length > 0))"""


def tabbed_pages(site: Site) -> list[str]:
    """Pages on which the first tab set offers another machine, and further ones that offer the same."""
    offered = {
        page: [str(label["data-sync-id"]) for label in site.page(page).select(".sd-tab-set > [data-sync-id]")]
        for page in site.pages
    }
    first = next((page for page in site.pages if len(offered[page]) > 1 and offered[page][0] == "this-build"), None)
    return [] if first is None else [first, *(p for p in site.pages if p != first and offered[first][1] in offered[p])]


def check_keyboard(site: Site, tabbed: str, other_tabbed: str, query: str, result: str) -> list[Fault]:
    """Use a page by its keys alone.

    Args:
        site: The built site.
        tabbed: A page with tab sets.
        other_tabbed: Another one, on which the same tab must be chosen afterwards.
        query: What to search for.
        result: The page that the search must find.
    """

    async def check() -> list[Fault]:
        with served(site.root) as address:
            async with launched() as browser:
                found = await _check_tabs(browser, address, tabbed, other_tabbed)
                return found + await _check_search(browser, address, tabbed, query, result)

    return asyncio.run(check())


async def _check_tabs(browser: Browser, address: str, tabbed: str, other_tabbed: str) -> list[Fault]:
    page = await browser.new_page()
    await page.goto(address + tabbed)
    await page.keyboard.press("Tab")
    if await page.evaluate("document.activeElement.getAttribute('href')") != "#furo-main-content":
        return [Fault(CHECK, tabbed, "the first stop is not the link that skips the navigation")]
    await page.keyboard.press("Enter")
    if not await _go_to(page, _ON_TAB):
        return [Fault(CHECK, tabbed, "no stop at a tab set")]
    found = []
    if not await page.evaluate(_IS_MARKED):
        found.append(Fault(CHECK, tabbed, "nothing marks the tab that has the focus"))
    await page.keyboard.press("ArrowRight")
    await page.wait_for_timeout(100)
    chosen = await page.evaluate(_CHOSEN)
    if chosen == "this-build":
        found.append(Fault(CHECK, tabbed, "the right arrow does not choose the next tab"))
    if not await page.evaluate(_SHOWS_CHOSEN):
        found.append(Fault(CHECK, tabbed, "a tab that is chosen is hidden, or one that is not is shown"))
    await page.goto(address + other_tabbed)
    there = set(await page.evaluate(_CHOSEN_INSTEAD, chosen))
    if there != {chosen}:
        found.append(Fault(CHECK, other_tabbed, f"shows {sorted(map(str, there))} after {chosen} was chosen"))
    await page.close()
    return found


async def _check_search(browser: Browser, address: str, start: str, query: str, result: str) -> list[Fault]:
    page = await browser.new_page()
    await page.goto(address + start)
    if not await _go_to(page, _ON_SEARCH):
        return [Fault(CHECK, start, "no stop at the search")]
    await page.keyboard.type(query)
    await page.keyboard.press("Enter")
    try:
        await page.wait_for_selector(f"#search-results a[href*='{result}']", timeout=10_000)
    except PlaywrightTimeoutError:
        return [Fault(CHECK, "search.html", f"the search for {query!r} does not find {result}")]
    finally:
        await page.close()
    return []


async def _go_to(page: Page, condition: str) -> bool:
    for _ in range(_N_STOPS):
        await page.keyboard.press("Tab")
        if await page.evaluate(condition):
            return True
    return False
