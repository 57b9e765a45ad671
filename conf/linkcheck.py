"""Ask every address that the site links to whether it is there; needs the network, and executes no tutorial.

The check has a copy of the sources of its own: a tutorial that was written without being executed would count as done
in the next build of the site.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Files that are put into the site after its pages; `nox -s site` finds their links.
BUILT_LATER = r"^(\.\./)*(wheels/|recordings/|results\.json)"
# A host that is slow or busy is asked again before its link counts as broken.
OPTIONS = {"plot_gallery": "0", "linkcheck_timeout": "20", "linkcheck_retries": "2"}


def check(target: Path, root: Path = ROOT, **options: str) -> int:
    """Check the links of the sources in `root`; the report is `output.txt` below `target`. Gives the exit status.

    `options` are settings of Sphinx, over those above.
    """
    shutil.rmtree(target, ignore_errors=True)
    generated = shutil.ignore_patterns("tutorials", "generated")
    for folder in ("docs", "gallery"):
        shutil.copytree(root / folder, target / folder, ignore=generated if folder == "docs" else None)
    settings = [word for name, value in (OPTIONS | options).items() for word in ("-D", f"{name}={value}")]
    # Where the site will be published there may be nothing yet.
    address = os.environ.get("OPTIMBENCH_SITE_URL")
    ignored = [BUILT_LATER, re.escape(address)] if address else [BUILT_LATER]
    settings += ["-D", f"linkcheck_ignore={','.join(ignored)}"]
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "linkcheck", "-c", str(ROOT / "conf"), *settings]
    status = subprocess.run([*command, "docs", "report"], cwd=target, check=False).returncode
    report = target / "report" / "output.json"
    if not report.is_file():
        print("Sphinx ended before it had asked for a link", file=sys.stderr)
        return status or 1
    found = Counter(json.loads(line)["status"] for line in report.read_text().splitlines())
    print(", ".join(f"{count} {what}" for what, count in sorted(found.items())), f"(all in {report})")
    return status or int(found["broken"] + found["timeout"] > 0)


def main(words: Sequence[str]) -> int:
    """Run, and give the exit status."""
    if words:
        print(f"unknown arguments {list(words)} (expected none)", file=sys.stderr)
        return 2
    return check(ROOT / "build" / "linkcheck")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
