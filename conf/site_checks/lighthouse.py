"""Lighthouse's four scores, of pages served on this machine."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from site_checks import Fault, Site
from site_checks.browser import find_browser
from site_checks.server import served
from site_checks.tools import NODE, run_tool

CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
LEAST = 95
# A score of performance wanders from run to run; the middle of three is what Lighthouse's authors advise.
N_RUNS = 3


def low_scores(site: Site, pages: Sequence[str], node_modules: Path, reports: Path) -> list[Fault]:
    """Measure each page as a telephone and as a desktop, and print the scores.

    Raises:
        ToolError: Lighthouse or the browser is not installed, or did not run.
    """
    found = []
    reports.mkdir(parents=True, exist_ok=True)
    with served(site.root) as address:
        for page in pages:
            for form in ("mobile", "desktop"):
                runs = [
                    _scores(address + page, form, node_modules, reports / f"{_flat(page)}.{form}.json")
                    for _ in range(N_RUNS)
                ]
                scores = {name: statistics.median(run[name] for run in runs) for name in CATEGORIES}
                print(f"{page}, {form}: " + ", ".join(f"{name} {score:.0f}" for name, score in scores.items()))
                found += faults_of(page, form, scores)
    return found


def faults_of(page: str, form: str, scores: Mapping[str, float]) -> list[Fault]:
    """The scores that are too low."""
    low = {name: score for name, score in scores.items() if score < LEAST}
    said = [f"{name} {score:.0f} on {form} (expected at least {LEAST})" for name, score in low.items()]
    return [Fault("lighthouse", page, text) for text in said]


def _flat(page: str) -> str:
    return page.removesuffix(".html").replace("/", ".")


def _scores(url: str, form: str, node_modules: Path, report: Path) -> dict[str, float]:
    program = node_modules / "lighthouse" / "cli" / "index.js"
    flags = "--headless=new --no-sandbox --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'"
    options = ["--output=json", f"--output-path={report}", f"--chrome-flags={flags}", "--quiet"]
    options += [f"--only-categories={','.join(CATEGORIES)}", *(["--preset=desktop"] if form == "desktop" else [])]
    run_tool(NODE, program, url, *options, environment={"CHROME_PATH": find_browser()})
    categories = json.loads(report.read_text())["categories"]
    return {name: 100 * float(categories[name]["score"]) for name in CATEGORIES}
