"""The Sphinx extensions of this site, one module each; this one registers them all."""

from sphinx.application import Sphinx

EXTENSIONS = (
    "decorators",
    "examples",
    "headline",
    "history_page",
    "inventories",
    "kept_outputs",
    "last_updated",
    "long_output",
    "machine",
    "markup",
    "measured",
    "names",
    "notebooks",
    "publishing",
    "repository",
    "result_tabs",
    "results_page",
    "shown_results",
    "stored",
    "wheel",
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register every module."""
    for name in EXTENSIONS:
        app.setup_extension(f"optimbench_site.{name}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
