"""What helps to find a page, its source and its age."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import Tag
from docutils import nodes
from docutils.utils import new_document
from site_builder import REFERENCE, REPOSITORY, Site, run_sphinx
from sphinx.errors import ExtensionError

import optimbench
import optimbench_site
from optimbench_site import long_output, publishing, repository

FIRST = "tutorials/start/plot_01_leaves_state_behind"
SETTINGS = {"examples_dirs": "../gallery", "gallery_dirs": "tutorials"}


def search_index(site: Site) -> dict[str, Any]:
    text = (site.html / "searchindex.js").read_text()
    loaded: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    return loaded


def test_search_knows_every_listed_name_as_an_object(tiny_site: Site) -> None:
    found = {entry[4] for entry in search_index(tiny_site)["objects"]["optimbench"]}
    listed = re.findall(r"^   (\w+)$", REFERENCE, re.MULTILINE)
    assert set(listed) <= found
    assert "no_such_name" not in found


def test_glossary_has_the_terms_that_pages_use() -> None:
    text = (REPOSITORY / "docs" / "glossary.rst").read_text()
    terms = re.findall(r"^   (\S.*)$", text, re.MULTILINE)
    needed = {"foreach", "fused", "guard", "graph break", "recompile", "capturable", "CUDA graph", "roofline"}
    assert needed <= set(terms)
    entries = [term for term in terms if not term.startswith(":")]
    assert entries == sorted(entries, key=str.lower)


def test_every_module_with_a_setup_is_registered() -> None:
    folder = Path(optimbench_site.__file__).parent
    with_setup = [p.stem for p in folder.glob("[a-z]*.py") if "\ndef setup(" in p.read_text()]
    assert sorted(with_setup) == list(optimbench_site.EXTENSIONS)


def test_every_page_has_one_description(tiny_site: Site, published_site: Site) -> None:
    for site in (tiny_site, published_site):
        for path in site.pages():
            found = site.page(str(path.relative_to(site.html))).select("meta[name=description]")
            assert len(found) == 1, path
            assert 10 < len(str(found[0]["content"])) <= 160, path
    (shown,) = tiny_site.page(f"{FIRST}.html").select("meta[name=description]")
    assert shown["content"] == "It compiles a function, turns a log on and changes settings."


def test_images_have_their_sizes(published_site: Site) -> None:
    images = [
        image
        for path in published_site.pages()
        for image in published_site.page(str(path.relative_to(published_site.html))).select("article img")
    ]
    assert len(images) > 4
    for image in images:
        assert int(str(image.get("width", "0"))) > 0, image
        assert int(str(image.get("height", "0"))) > 0, image


def test_robots_file_names_the_sitemap_where_the_address_is_known(tiny_site: Site, published_site: Site) -> None:
    assert (tiny_site.html / "robots.txt").read_text() == "User-agent: *\nAllow: /\n"
    assert "Sitemap: https://example.org/docs/sitemap.xml" in (published_site.html / "robots.txt").read_text()
    listed = re.findall(r"<loc>([^<]+)</loc>", (published_site.html / "sitemap.xml").read_text())
    assert f"https://example.org/docs/{FIRST}.html" in listed
    assert not [address for address in listed if "404" in address or "search" in address]


def test_redirects_lead_to_pages(tiny_site: Site) -> None:
    for old, new in publishing.REDIRECTS.items():
        page = tiny_site.page(f"{old}.html")
        (link,) = page.select("a[href]")
        target = (tiny_site.html / f"{old}.html").parent / str(link["href"])
        assert target.resolve() == (tiny_site.html / new).resolve()
        assert target.is_file()
        (refresh,) = page.select("meta[http-equiv=refresh]")
        assert str(refresh["content"]).endswith(str(link["href"]))


@pytest.mark.parametrize(
    ("redirects", "message"),
    [({"old": "gone.html"}, "which is no page"), ({"index": "install.html"}, "would overwrite a page")],
)
def test_a_redirect_that_cannot_be_right_is_refused(redirects: dict[str, str], message: str) -> None:
    with pytest.raises(ExtensionError, match=message):
        publishing.check_redirects(redirects, {"index", "install"})


def source_link(site: Site, page: str) -> str | None:
    found = site.page(page).select(".view-this-page a")
    return str(found[0]["href"]) if found else None


def test_pages_link_to_their_sources_where_the_repository_is_known(tiny_site: Site, published_site: Site) -> None:
    commit = optimbench.collect_environment(REPOSITORY).commit or "HEAD"
    start = f"https://github.com/someone/optimbench/blob/{commit}"
    assert source_link(published_site, "install.html") == f"{start}/docs/install.rst"
    assert source_link(published_site, f"{FIRST}.html") == f"{start}/gallery/start/plot_01_leaves_state_behind.py"
    assert source_link(published_site, "tutorials/index.html") == f"{start}/gallery/GALLERY_HEADER.rst"
    found = source_link(published_site, "api/generated/optimbench.pick_device.html")
    assert found is not None
    path, line = found.removeprefix(f"{start}/").split("#L")
    assert (REPOSITORY / path).read_text().splitlines()[int(line) - 1].startswith("def pick_device")
    for page in tiny_site.pages():
        assert source_link(tiny_site, str(page.relative_to(tiny_site.html))) is None


def test_every_page_of_the_reference_and_every_tutorial_has_a_source() -> None:
    for name in optimbench.__all__:
        found = repository.source_file(f"api/generated/optimbench.{name}", REPOSITORY / "docs", SETTINGS)
        assert found is not None, name
        assert (REPOSITORY / found.partition("#")[0]).is_file()
    for script in (REPOSITORY / "gallery").rglob("plot_*.py"):
        docname = f"tutorials/{script.relative_to(REPOSITORY / 'gallery').with_suffix('').as_posix()}"
        found = repository.source_file(docname, REPOSITORY / "docs", SETTINGS)
        assert found == script.relative_to(REPOSITORY).as_posix()
    assert repository.source_file("no_such_page", REPOSITORY / "docs", SETTINGS) is None


def test_colab_button_leads_to_the_published_notebook(tiny_site: Site, published_site: Site) -> None:
    (button,) = published_site.page(f"{FIRST}.html").select("a.ob-colab")
    start = "https://colab.research.google.com/github/someone/optimbench/blob/gh-pages/"
    address = str(button["href"])
    assert address.startswith(start)
    assert (published_site.html / address.removeprefix(start)).is_file()
    assert not tiny_site.page(f"{FIRST}.html").select("a.ob-colab")


@pytest.mark.parametrize("name", ["https://github.com/someone/optimbench", "optimbench", "/optimbench"])
def test_a_repository_that_is_no_owner_and_name_is_refused(name: str) -> None:
    config: Any = SimpleNamespace(optimbench_repository=name)
    app: Any = None
    with pytest.raises(ExtensionError, match="expected owner/name"):
        repository.check(app, config)


def git(folder: Path, *words: str, date: str = "2021-01-01") -> str:
    when = {"GIT_AUTHOR_DATE": f"{date}T12:00:00Z", "GIT_COMMITTER_DATE": f"{date}T12:00:00Z", "HOME": str(folder)}
    name = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *name, *words]
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=when | path, capture_output=True, text=True, check=True).stdout


def last_updated(site: Site, page: str) -> str | None:
    found = site.page(page).select_one(".last-updated")
    return None if found is None else found.get_text(strip=True).removeprefix("Last updated on ")


def test_pages_show_when_git_last_saw_them_or_their_script_change(tiny_site: Site, tmp_path: Path) -> None:
    assert last_updated(tiny_site, f"{FIRST}.html") is None, "there is no git, and a date"
    root = tmp_path / "site"
    shutil.copytree(tiny_site.html.parent, root, ignore=shutil.ignore_patterns("html"))
    git(root, "init", "-q")
    git(root, "add", "docs/install.rst", "gallery")
    git(root, "commit", "-qm", "first", date="2021-02-03")
    (root / "docs" / "index.rst").write_text((root / "docs" / "index.rst").read_text() + "\n")
    git(root, "add", "docs/index.rst")
    git(root, "commit", "-qm", "second", date="2022-03-04")
    dated = run_sphinx(root)
    assert dated.status == 0, dated.log
    assert last_updated(dated, "install.html") == "2021-02-03"
    assert last_updated(dated, f"{FIRST}.html") == "2021-02-03"
    assert last_updated(dated, "tutorials/index.html") == "2021-02-03"
    assert last_updated(dated, "index.html") == "2022-03-04"
    assert "2021-02-03T" in str(dated.page("install.html").select_one("meta[property='article:modified_time']"))
    # A clone that does not reach back to a page's last change.
    (root / ".git" / "shallow").write_text(git(root, "rev-parse", "HEAD"))
    shutil.rmtree(root / "html")
    shallow = run_sphinx(root, OPTIMBENCH_SITE_URL="https://example.org/docs")
    assert shallow.status == 0, shallow.log
    assert last_updated(shallow, "install.html") is None
    assert "WARNING" not in shallow.log


def folded(n_lines: int) -> nodes.document:
    document = new_document("page")
    text = "\n".join(f"line {number}" for number in range(n_lines))
    for classes in (["sphx-glr-script-out"], []):
        document += nodes.literal_block(text, text, classes=classes)
    app: Any = None
    long_output.fold(app, document)
    return document


def test_long_output_is_folded_with_its_count_and_code_is_not() -> None:
    before, block, after, code = folded(long_output.MAX_LINES + 1).children
    assert isinstance(before, nodes.raw)
    assert isinstance(after, nodes.raw)
    assert "<summary>Output: 41 lines</summary>" in before.astext()
    assert after.astext() == "</details>"
    assert before["classes"] == [], "it would become an element of its own around half of another"
    assert isinstance(block, nodes.literal_block)
    assert isinstance(code, nodes.literal_block)
    assert len(folded(long_output.MAX_LINES).children) == 2


def test_code_is_copied_without_prompts(tiny_site: Site) -> None:
    settings = (tiny_site.html / "_static" / "copybutton.js").read_text()
    found = re.search(r"formatCopyText\(text, '(.+?)', (\w+), (\w+)", settings)
    assert found is not None
    assert (found[2], found[3]) == ("true", "true")
    prompt = re.compile("^(" + found[1].encode().decode("unicode_escape") + ")(.*)")
    lines = [line for block in tiny_site.page("install.html").select("pre") for line in block.get_text().splitlines()]
    copied = [match[2] for line in lines if (match := prompt.match(line))]
    assert any(line.startswith("python ") for line in copied)
    assert isinstance(tiny_site.page("install.html").select_one(".highlight pre"), Tag)
