"""Small sites with one fault each: every check must find it, and find nothing on the page that has none."""

from pathlib import Path

from site_checks import Site

GOOD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<link rel="icon" href="data:,">
<style>body { color: #000; background: #fff; } pre { overflow: auto; }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #111; } }</style><!--HEAD--></head>
<body><main><h1>A page</h1><!--BODY--></main></body></html>
"""


def make_site(
    folder: Path, body: str = "<p>Text.</p>", head: str = "", *, files: dict[str, str | bytes] | None = None
) -> Site:
    """A site of one good page with something put into its body or head, and further files by name."""
    for name, content in {"index.html": page(body, head), **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Site(folder)


def page(body: str, head: str = "") -> str:
    """A good page with something put into its body or head."""
    return GOOD.replace("<!--HEAD-->", head).replace("<!--BODY-->", body)
