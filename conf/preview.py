"""Serve the site and build it anew after every edit; `nox -s preview` calls it.

An edit of prose executes nothing, an edit of a tutorial's code that tutorial, and an edit of the package those that use
what was edited. An edit of a recording renders the pages that show it.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from build_site import BuildError, add_options, only_build, sphinx_options
from optimbench_site.processes import all_ended_afterwards

ROOT = Path(__file__).parents[1]
# What is read, and what a build writes between that.
WATCHED = ("src", "gallery", "conf")
WRITTEN = ("docs/tutorials/*", "docs/api/generated/*", "*/__pycache__/*")


def command(words: Sequence[str], root: Path = ROOT, port: int = 8000) -> list[str]:
    """The command that serves the sources in `root`; `words` are options for Sphinx."""
    watched = [word for name in WATCHED if (root / name).exists() for word in ("--watch", str(root / name))]
    ignored = [word for name in WRITTEN for word in ("--ignore", str(root / name))]
    options = ["-n", "-c", str(ROOT / "conf"), "-d", "build/preview-doctrees", "--port", str(port)]
    return [sys.executable, "-m", "sphinx_autobuild", *options, *watched, *ignored, *words, "docs", "build/preview"]


def main(words: Sequence[str] | None = None) -> int:
    """Run until interrupted, and give the exit status."""
    parser = argparse.ArgumentParser(prog="nox -s preview --", description=__doc__)
    add_options(parser)
    parser.add_argument("--port", type=int, default=8000, help="where to serve; 0 finds a free one")
    options = parser.parse_args(words)
    try:
        # Another build would remove the pages under our hands; a server that outlives us would go on building.
        with only_build(ROOT), all_ended_afterwards():
            return subprocess.run(command(sphinx_options(options), port=options.port), cwd=ROOT, check=False).returncode
    except BuildError as error:
        print(f"no preview: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
