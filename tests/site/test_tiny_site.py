"""What is on a page, seen on a site of two small pages."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from bs4 import Tag
from site_builder import REPOSITORY, Site, run_sphinx

import optimbench

FIRST = "tutorials/start/plot_01_leaves_state_behind.html"
SECOND = "tutorials/start/plot_02_starts_afresh.html"
WHEEL = f"optimbench-{optimbench.__version__}-py3-none-any.whl"


def output(site: Site, page: str) -> str:
    """Everything that the page's blocks printed."""
    return "\n".join(block.get_text() for block in site.page(page).select(".sphx-glr-script-out"))


def link(site: Site, page: str, text: str) -> str:
    """Where the only different target of a link with this text points to."""
    found = {str(a["href"]) for a in site.page(page).select("a[href]") if a.get_text(strip=True) == text}
    assert len(found) == 1, f"links named {text!r} on {page}: {found}"
    return found.pop()


def requests(page: Tag) -> list[str]:
    """The addresses a browser fetches by itself when it shows the page."""
    tags = page.select("script[src], img[src], iframe[src], source[src], link[rel=stylesheet][href], link[as][href]")
    return [str(tag.get("src") or tag.get("href")) for tag in tags]


def test_build_succeeds_without_a_warning(tiny_site: Site) -> None:
    assert tiny_site.status == 0, tiny_site.log
    assert "WARNING" not in tiny_site.log


def test_second_build_reads_and_executes_nothing(tiny_site: Site) -> None:
    again = run_sphinx(tiny_site.html.parent)
    assert again.status == 0, again.log
    # sphinx-gallery puts the notebooks, now filled, into the archive of all of them once more.
    assert set(re.findall(r"reading sources\.\.\. \[ *\d+%\] (\S+)", again.log)) <= {"tutorials/index"}
    assert again.log.count(", unchanged") == 2


def test_page_shows_output_log_and_running_time(tiny_site: Site) -> None:
    text = output(tiny_site, FIRST)
    assert "graphs: 3" in text
    assert "Recompiling function total" in text
    timing = tiny_site.page(FIRST).select_one(".sphx-glr-timing")
    assert timing is not None
    minutes, seconds = re.findall(r"[\d.]+", timing.get_text())
    assert float(minutes) * 60 + float(seconds) > 0


def test_page_shows_a_result_as_an_escaped_table(tiny_site: Site) -> None:
    table = tiny_site.page(FIRST).select_one(".ob-result .ob-scroll table")
    assert table is not None
    assert table.select_one("caption") is not None
    assert "Lengths & <names>" in table.get_text()
    assert [cell.get_text(strip=True) for cell in table.select("td")] == ["<two>", "2", "three", "3"]


def test_nothing_of_one_page_reaches_the_next(tiny_site: Site) -> None:
    first, second = output(tiny_site, FIRST), output(tiny_site, SECOND)
    assert "Recompiling" not in second
    assert re.search(r"graphs: 3\b", second), "dynamo kept the first page's graphs or its limit"
    assert "width: 7.5, limit: 3" in first
    assert "width: 1.5, limit: 8" in second
    drawn = [re.findall(r"random: (0\.\d+)", text) for text in (first, second)]
    assert drawn[0] == drawn[1] != []


def test_code_links_to_torch_and_to_our_reference(tiny_site: Site) -> None:
    assert link(tiny_site, FIRST, "torch.ones").startswith("https://docs.pytorch.org/docs/stable/generated/torch.ones")
    assert link(tiny_site, FIRST, "torch.compile").endswith("torch.compile.html#torch.compile")
    assert link(tiny_site, SECOND, "plt.subplots").startswith("https://matplotlib.org/stable/api/")
    ours = link(tiny_site, FIRST, "optimbench.pick_device")
    page, anchor = ours.removeprefix("../../").split("#")
    assert tiny_site.page(page).find(id=anchor) is not None


def test_reference_shows_the_tutorials_that_use_a_name(tiny_site: Site) -> None:
    def users(name: str) -> list[str]:
        page = tiny_site.page(f"api/generated/optimbench.{name}.html")
        return [str(a["href"]).split("/")[-1] for a in page.select(".sphx-glr-thumbcontainer a[href]")]

    assert users("pick_device") == ["plot_01_leaves_state_behind.html"]
    assert users("Table") == ["plot_01_leaves_state_behind.html"]
    assert users("InvalidArgumentError") == []


def test_names_in_docstrings_are_links_or_code(tiny_site: Site) -> None:
    linked = tiny_site.page("api/generated/optimbench.PickedDevice.html").select("dl.py.class dd > p > a > code")
    assert "pick_device" in [code.get_text() for code in linked]
    text = tiny_site.page("api/generated/optimbench.Result.html").select_one("dl.py.class dd")
    assert text is not None
    assert "msgspec.json.encode" in [code.get_text() for code in text.select("p > code")]
    assert not text.select("cite")


def test_every_page_names_its_machine(tiny_site: Site) -> None:
    machine = optimbench.collect_environment(REPOSITORY)
    assert len(tiny_site.pages()) > 8
    for path in tiny_site.pages():
        box = tiny_site.page(str(path.relative_to(tiny_site.html))).select_one("footer .ob-machine")
        assert box is not None, path
        text = " ".join(box.get_text().split())
        for known in (machine.device_name, f"torch {machine.torch}", f"Python {machine.python}", machine.commit):
            assert str(known) in text, path
        when = box.select_one("time")
        assert when is not None
        assert str(when["datetime"]).startswith(when.get_text(strip=True))


def test_downloads(tiny_site: Site) -> None:
    page = tiny_site.page(FIRST)
    found = {str(a["href"]).rsplit(".", 1)[1]: str(a["href"]) for a in page.select("a.download")}
    assert sorted(found) == ["ipynb", "py", "zip"]
    files = {ending: (tiny_site.html / FIRST).parent / address for ending, address in found.items()}
    script = REPOSITORY / "tests/site/data/start/plot_01_leaves_state_behind.py"
    assert files["py"].read_text() == script.read_text()
    first, *rest = json.loads(files["ipynb"].read_text())["cells"]
    assert first["cell_type"] == "code"
    source = "".join(first["source"])
    assert f"%pip install ./{WHEEL}" in source
    assert "Install" in source.splitlines()[0]
    assert any("torch.compile" in "".join(cell["source"]) for cell in rest)


def test_wheel_is_served_and_works(tiny_site: Site) -> None:
    address = link(tiny_site, "install.html", WHEEL)
    wheel = tiny_site.html / address
    assert wheel == tiny_site.html / "wheels" / WHEEL
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        assert "optimbench/py.typed" in archive.namelist()
    code = "import optimbench; print(optimbench.__file__, optimbench.Table.__module__)"
    run = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split()[0].startswith(str(wheel))


def test_nothing_is_installed_from_a_package_index(tiny_site: Site) -> None:
    for path in tiny_site.pages():
        assert not re.search(r"pip install (-\S+ )*optimbench\b(?!-)", path.read_text()), path


def test_pages_fetch_nothing_from_another_host(tiny_site: Site) -> None:
    for path in tiny_site.pages():
        addresses = requests(tiny_site.page(str(path.relative_to(tiny_site.html))))
        assert addresses
        assert [address for address in addresses if urlsplit(address).netloc] == [], path


def test_search_finds_the_reference(tiny_site: Site) -> None:
    index = (tiny_site.html / "searchindex.js").read_text()
    assert "pick_device" in index
    assert "api/generated/optimbench.pick_device" in index


def test_known_address_reaches_notebook_install_page_sitemap_and_cards(published_site: Site) -> None:
    assert published_site.status == 0, published_site.log
    address = f"https://example.org/docs/wheels/{WHEEL}"
    notebook = next((published_site.html / "_downloads").rglob("plot_01*.ipynb"))
    assert f"%pip install {address}" in "".join(json.loads(notebook.read_text())["cells"][0]["source"])
    install = published_site.page("install.html")
    assert f"pip install {address}" in install.get_text()
    assert "https://example.org/docs/install.html" in (published_site.html / "sitemap.xml").read_text()
    card = published_site.page(FIRST).select_one("meta[property='og:url']")
    assert card is not None
    assert card["content"] == f"https://example.org/docs/{FIRST}"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise RuntimeError('the step is wrong')", "the step is wrong"),
        ("import sys\n\nsys.exit(0)", "asked to exit with status 0"),
    ],
)
def test_example_that_raises_or_exits_fails_the_build(
    build_script: Callable[[str], Site], code: str, message: str
) -> None:
    site = build_script(code)
    assert site.status != 0
    assert "plot_02_starts_afresh.py" in site.log
    assert message in site.log
    assert not (site.html / "index.html").exists()
