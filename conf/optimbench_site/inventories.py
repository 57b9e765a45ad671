"""Links to other projects, from lists that lie in the repository.

The lists in `conf/inventories` hold the names we use, as plain text that can be read and reviewed. No build
asks the network for them, so that a build gives the same pages, and the same warnings, everywhere and always.
A name that is not in a list fails the build, and is then added there.
"""

from pathlib import Path

import sphobjinv
from sphinx.application import Sphinx
from sphinx.config import Config

FOLDER = Path(__file__).parents[1] / "inventories"

# The documentation that each list belongs to.
ADDRESSES = {
    "matplotlib": "https://matplotlib.org/stable/",
    "msgspec": "https://jcristharif.com/msgspec/",
    "numpy": "https://numpy.org/doc/stable/",
    "python": "https://docs.python.org/3/",
    "torch": "https://docs.pytorch.org/docs/stable/",
}


def write_inventories(app: Sphinx, config: Config) -> None:
    """Turn the lists into the files that intersphinx reads, and point it at these alone."""
    target = Path(app.doctreedir) / "inventories"
    target.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for name, address in ADDRESSES.items():
        inventory = sphobjinv.Inventory(FOLDER / f"{name}.txt")
        sphobjinv.writebytes(target / f"{name}.inv", sphobjinv.compress(inventory.data_file()))
        mapping[name] = (address, str(target / f"{name}.inv"))
    config.intersphinx_mapping = mapping


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before intersphinx checks its configuration."""
    app.connect("config-inited", write_inventories, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
