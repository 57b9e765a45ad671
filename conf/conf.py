"""Configuration of the site: `sphinx-build -W -n -c conf docs build/html`."""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

# Our own extensions lie beside this file, and callables are named by import strings, so they must be importable.
sys.path.insert(0, str(Path(__file__).parent))

import optimbench
from optimbench_site import wheel

project = "optimbench"
author = "the optimbench maintainers"
copyright = author  # noqa: A001 - Sphinx gives the name.
release = version = optimbench.__version__

# Where the site is published, with a closing slash, or "" where nobody has said.
html_baseurl = os.environ.get("OPTIMBENCH_SITE_URL") or os.environ.get("READTHEDOCS_CANONICAL_URL") or ""
if html_baseurl:
    html_baseurl = html_baseurl.rstrip("/") + "/"
# Where the sources are, as "owner/name" on GitHub, and the branch that holds the built site.
optimbench_repository = os.environ.get("OPTIMBENCH_REPOSITORY") or os.environ.get("GITHUB_REPOSITORY") or ""
optimbench_notebooks_branch = os.environ.get("OPTIMBENCH_NOTEBOOKS_BRANCH", "")

extensions = [
    # First, so that tutorials are forked from a process that has not imported what autosummary looks at.
    "sphinx_gallery.gen_gallery",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "notfound.extension",
    "optimbench_site",
    # Both need to know the address of the site.
    *(["sphinxext.opengraph", "sphinx_sitemap"] if html_baseurl else []),
]
nitpicky = True
default_role = "name"
# Type variables, named by one letter, have no page. Everything else must be found.
nitpick_ignore_regex = [("py:class", r"(optimbench\.[\w.]+\.)?[A-Z]")]
# autosummary looks in the source folder, so the path is absolute.
templates_path = [str(Path(__file__).parent / "_templates")]
# sphinx-gallery writes its mini-galleries there; they are included, never read on their own.
exclude_patterns = ["api/generated/backreferences/**"]

# -- Tutorials ---------------------------------------------------------------------------------------------
# Paths are relative to the source folder, docs/. Callables are import strings: anything else would make
# every build a full rebuild.
sphinx_gallery_conf = {
    "examples_dirs": "../gallery",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/plot_\d\d[a-z]?_",
    "subsection_order": [
        f"../gallery/{section}"
        for section in ("start", "measure", "make_it_fast", "keep_it_compiled", "use_it", "several_gpus")
    ]
    + ["*"],
    "within_subsection_order": "FileNameSortKey",
    "nested_sections": True,
    # The others are still executed; then our extension fails the build.
    "abort_on_example_error": False,
    "reset_modules": ("optimbench_site.examples.seed", "matplotlib"),
    "reset_modules_order": "before",
    "image_scrapers": ("matplotlib", "optimbench_site.scraper.scrape_results"),
    "capture_repr": ("_repr_html_", "__repr__"),
    # Our scraper shows results, beside those of other machines.
    "ignore_repr_types": r"optimbench\.(results|environment)\b",
    "backreferences_dir": "api/generated/backreferences",
    "doc_module": ("optimbench",),
    "first_notebook_cell": wheel.install_cell(html_baseurl),
    "min_reported_time": 0,
    "thumbnail_size": (480, 336),
    # Its page loads scripts from a foreign host.
    "write_computation_times": False,
    "show_signature": False,
    # Results bring their own style; the others are for notebooks and data frames, which no page shows.
    "css": ("sg_gallery",),
    "remove_config_comments": True,
}

# -- API reference -----------------------------------------------------------------------------------------
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True

# -- HTML --------------------------------------------------------------------------------------------------
html_theme = "furo"
html_title = "optimbench"
html_static_path = ["_static"]
html_css_files = ["optimbench.css"]
html_js_files = [("optimbench.js", {"defer": ""})]
html_favicon = "_static/favicon.svg"
html_theme_options = {"top_of_page_buttons": ["view"]}
html_last_updated_fmt = "%Y-%m-%d"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
# Code is copied, its output is not.
copybutton_selector = "div:not(.sphx-glr-script-out) > div.highlight > pre"
# The page for an address that does not exist is shown at any depth, so its own links need the whole path.
notfound_urls_prefix = urlsplit(html_baseurl).path or "/"
ogp_site_url = html_baseurl
ogp_social_cards = {"enable": False}
sitemap_url_scheme = "{link}"
sitemap_show_lastmod = True
sitemap_excludes = ["404.html", "search.html", "genindex.html"]
