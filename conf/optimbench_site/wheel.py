"""The site serves the package itself: it is on no package index, so readers install it from here."""

import subprocess
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import optimbench

REPOSITORY = Path(__file__).parents[2]
WHEEL = f"optimbench-{optimbench.__version__}-py3-none-any.whl"


def install_target(site_url: str) -> str:
    """What pip is to install: the wheel's address, or the downloaded file where the address is not known."""
    return f"{site_url}wheels/{WHEEL}" if site_url else f"./{WHEEL}"


def install_cell(site_url: str) -> str:
    """The first cell of every notebook."""
    lines = [] if site_url else [f"# First download {WHEEL} from this site's page 'Install' into this folder."]
    return "\n".join([*lines, f"%pip install {install_target(site_url)} matplotlib"])


class InstallFromSite(SphinxDirective):
    """`.. install-from-site::` links to the wheel and shows the command that installs it."""

    def run(self) -> list[nodes.Node]:
        """Make a sentence and a block of code."""
        site_url = self.config.html_baseurl
        address = "../" * self.env.docname.count("/") + f"wheels/{WHEEL}"
        sentence = nodes.paragraph()
        sentence += nodes.Text("pip fetches the wheel " if site_url else "Download the wheel ")
        sentence += nodes.reference("", "", nodes.literal("", WHEEL), refuri=address, internal=True)
        sentence += nodes.Text(" from here:" if site_url else ", then install the file:")
        command = f"python -m pip install {install_target(site_url)} matplotlib"
        return [sentence, nodes.literal_block(command, command, language="console")]


def build_wheel(app: Sphinx, exception: Exception | None) -> None:
    """Build the wheel into the site.

    Raises:
        ExtensionError: Hatchling's own last words.
    """
    if exception is not None or app.builder.format != "html":
        return
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(app.outdir / "wheels")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode or not (app.outdir / "wheels" / WHEEL).is_file():
        raise ExtensionError(f"the wheel {WHEEL} could not be built: {done.stderr or done.stdout}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("install-from-site", InstallFromSite)
    app.connect("build-finished", build_wheel)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
