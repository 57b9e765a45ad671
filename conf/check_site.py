"""Check the built site; `nox -s site` calls this. Ends with status 1 if anything is wrong."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from site_checks import Fault, Site
from site_checks.browser import check_in_browser
from site_checks.downloads import bad_archives, failing_downloads, reader_environment, some_pages, tutorial_pages
from site_checks.keyboard import check_keyboard, tabbed_pages
from site_checks.lighthouse import low_scores
from site_checks.links import broken_links, foreign_addresses
from site_checks.tools import installed_packages
from site_checks.tutorials import unexecuted_tutorials
from site_checks.valid_html import invalid_html

REPOSITORY = Path(__file__).parents[1]
BUILD = REPOSITORY / "build"
# More faults of one check than this are counted only.
N_SHOWN = 30


def main(arguments: list[str] | None = None) -> int:
    """Run the checks and print what each finds."""
    parser = argparse.ArgumentParser(prog="nox -s site --", description=__doc__)
    parser.add_argument("--site", type=Path, default=BUILD / "html", help="the built site (default: %(default)s)")
    parser.add_argument("--downloads", type=int, default=3, help="run those of so many pages (default: %(default)s)")
    parser.add_argument("--all-downloads", action="store_true", help="run the downloads of every page")
    parser.add_argument("--lighthouse", action="store_true", help="measure Lighthouse's scores too")
    options = parser.parse_args(arguments)
    if not (options.site / "index.html").is_file():
        parser.error(f"there is no site in {options.site}: build it with `nox -s docs`")
    site, screenshots, tools = Site(options.site), BUILD / "screenshots", BUILD / "site_tools"
    tutorials = tutorial_pages(site)
    n_scripts = len(list((REPOSITORY / "gallery").rglob("plot_*.py")))
    downloads = some_pages(tutorials, len(tutorials) if options.all_downloads else options.downloads)
    constraints = REPOSITORY / "constraints.txt"
    shutil.rmtree(screenshots, ignore_errors=True)
    screenshots.mkdir(parents=True)

    def html() -> list[Fault]:
        return invalid_html(site, installed_packages(tools, everything=options.lighthouse))

    def keyboard() -> list[Fault]:
        tabbed = tabbed_pages(site)
        if len(tabbed) < 2:
            return [Fault("keyboard", "tutorials", "no two pages offer the same machine's results in tabs")]
        return check_keyboard(site, tabbed[0], tabbed[-1], "pick_device", "api/generated/optimbench.pick_device.html")

    checks: list[tuple[str, Callable[[], list[Fault]]]] = [
        (f"links of {len(site.pages)} pages", lambda: broken_links(site)),
        ("addresses of other hosts", lambda: foreign_addresses(site)),
        (f"{n_scripts} tutorials have run", lambda: unexecuted_tutorials(site, n_scripts)),
        ("archives", lambda: bad_archives(site)),
        ("HTML", html),
        ("keyboard", keyboard),
        ("pages in the browser", lambda: check_in_browser(site, screenshots=screenshots)),
        (
            f"downloads of {len(downloads)} pages run",
            lambda: failing_downloads(site, downloads, reader.result(), constraints),
        ),
    ]
    if options.lighthouse:
        measured = ["index.html", *some_pages(tutorials, 2)]
        reports = BUILD / "lighthouse"
        checks.append(("Lighthouse", lambda: low_scores(site, measured, tools / "node_modules", reports)))
    # Its installation waits for the network and the disk, and can do so beside the first checks.
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(reader_environment, site, BUILD / "reader", constraints)
        n_faults = sum(_report(name, check) for name, check in checks)
    print(f"{n_faults} faults in {len(site.pages)} pages" if n_faults else f"No fault in {len(site.pages)} pages")
    return 1 if n_faults else 0


def _report(name: str, check: Callable[[], list[Fault]]) -> int:
    start_s = time.perf_counter()
    faults = check()
    print(f"{name}: {f'{len(faults)} faults' if faults else 'no fault'} ({time.perf_counter() - start_s:.0f} s)")
    for fault in faults[:N_SHOWN]:
        print(f"  {fault}")
    if len(faults) > N_SHOWN:
        print(f"  and {len(faults) - N_SHOWN} more")
    sys.stdout.flush()
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
