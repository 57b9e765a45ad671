"""The check of external links, against a server of this machine."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from site_builder import INDEX, REFERENCE

from linkcheck import check

SCRIPT = '''"""
A tutorial
==========

It links to `a page <{address}/there>`__.
"""

raise RuntimeError("the tutorial was executed")
'''


class Handler(BaseHTTPRequestHandler):
    """Has pages whose address ends with "there"."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path.endswith("/there") else 404)
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("page", "status"), [("there", 0), ("gone", 1)])
def test_links_are_asked_for_and_no_tutorial_runs(
    address: str, page: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    (root / "docs" / "api").mkdir(parents=True)
    (root / "docs" / "index.rst").write_text(INDEX.replace("   install\n", ""))
    text = f"{REFERENCE}\nSee `this <{address}/{page}>`__ and `the wheel <../wheels/x.whl>`__.\n"
    (root / "docs" / "api" / "index.rst").write_text(text)
    script = root / "gallery" / "start" / "plot_01_tutorial.py"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT.format(address=address))
    for folder in (script.parent, script.parents[1]):
        (folder / "GALLERY_HEADER.rst").write_text("Section\n=======\n\nText.\n")
    # Of the addresses in the signatures only those of this machine can be asked for without a network.
    target = tmp_path / "checked"
    assert check(target, root, intersphinx_disabled_reftypes="*", linkcheck_retries="1") == status, capsys.readouterr()
    report = (target / "report" / "output.txt").read_text()
    assert ("[broken]" in report) == bool(status)
    assert (f"{address}/gone" in report) == bool(status)
    said = (target / "report" / "output.json").read_text()
    assert f'"{address}/there"' in said
    assert "working" in said
    assert not (root / "docs" / "tutorials").exists()
