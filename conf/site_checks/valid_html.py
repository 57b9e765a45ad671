"""Valid HTML, as the Nu Html Checker of the W3C sees it. No rule is turned off; its hints on style are not faults."""

import json
from collections import defaultdict
from pathlib import Path

from site_checks import Fault, Site
from site_checks.tools import run_tool


def invalid_html(site: Site, node_modules: Path) -> list[Fault]:
    """Errors of the HTML of all pages.

    Raises:
        ToolError: Java is not installed, or the checker did not run.
    """
    jar = node_modules / "vnu-jar" / "build" / "dist" / "vnu.jar"
    command = ["java", "-jar", str(jar), "--errors-only", "--format", "json", "--skip-non-html", "--stdout"]
    # It ends with 1 if it finds an error.
    said = json.loads(run_tool(*command, str(site.root), accepted=(0, 1)).stdout)
    # The same error in each line of a table is one fault with a count.
    errors = defaultdict[tuple[str, str], list[int]](list)
    for message in said["messages"]:
        page = Path(message["url"].removeprefix("file:")).relative_to(site.root).as_posix()
        errors[page, message["message"]].append(message.get("lastLine", 0))
    return [
        Fault("invalid HTML", page, f"{text} ({len(lines)} times, first in line {lines[0]})")
        for (page, text), lines in sorted(errors.items())
    ]
