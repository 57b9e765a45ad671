"""A tutorial gives the same, whatever was executed before it: a gallery of six, built forwards and in reverse."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from site_builder import Site, build_site

import compare_counts

GALLERY = Path(__file__).parent / "order_data"
PAGES = [f"start/{path.stem}" for path in sorted((GALLERY / "start").glob("*.py"))]


class Both(NamedTuple):
    forwards: Site
    reverse: Site


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    reverse = ["-D", "optimbench_reverse=1"]
    return Both(
        build_site(tmp_path_factory.mktemp("forwards"), GALLERY),
        build_site(tmp_path_factory.mktemp("reverse"), GALLERY, options=reverse),
    )


def executed(site: Site) -> list[str]:
    return re.findall(r"^\d of \d: (start/\w+), \d+\.\d s$", site.log, re.MULTILINE)


def output(site: Site, page: str) -> str:
    text = "\n".join(block.get_text() for block in site.page(f"tutorials/{page}.html").select(".sphx-glr-script-out"))
    # The time and the process in a record of torch's log, and where the script lies.
    text = re.sub(r"^([A-Z]\d{4}) [\d:.]+ \d+ ", r"\1 ", text, flags=re.MULTILINE)
    return re.sub(r"\S*/gallery/", "gallery/", text)


def test_both_orders_are_executed(both: Both) -> None:
    assert both.forwards.status == both.reverse.status == 0, both.forwards.log + both.reverse.log
    assert executed(both.forwards) == PAGES
    assert executed(both.reverse) == PAGES[::-1]


@pytest.mark.parametrize("page", PAGES)
def test_output_is_the_same(both: Both, page: str) -> None:
    assert output(both.forwards, page) == output(both.reverse, page) != ""


def test_nothing_is_left_of_the_pages_before(both: Both) -> None:
    text = output(both.forwards, PAGES[-1])
    assert "dynamo: 8 {}" in text
    assert "torch: torch.float32 True" in text
    assert "deterministic: False step: False" in text
    assert "figures: [] 1.5" in text
    assert "left: None False start" in text
    assert "graphs: 3" in text
    assert "Recompiling" not in text


def test_recorded_counts_are_the_same(both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(site.html / "results.json") for site in both]
    assert compare_counts.main(files) == 0, capsys.readouterr().out
    assert "0 counts differ in 1 scripts" in capsys.readouterr().out
