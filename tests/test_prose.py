"""No measured number is typed into prose: a text outlives its measurement, and nobody notices."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SCRIPTS = sorted((REPOSITORY / "gallery").rglob("*.py"))
PAGES = [
    path
    for folder in ("docs", "gallery")
    for path in sorted((REPOSITORY / folder).rglob("*.rst"))
    if not {"generated", "tutorials"} & set(path.relative_to(REPOSITORY).parts)
]

_NUMBER = r"(?<![\w.])\d[\d.,]*"
MEASURED = re.compile(
    rf"{_NUMBER}\s*(?:[nµμum]?s|(?:milli|micro|nano)?seconds?|minutes?)\b(?!/)"
    rf"|{_NUMBER}\s*[kKMGT]i?B/s"
    rf"|(?:{_NUMBER}\s*[x×]|\b(?:two|three|four|five|ten|\d+) times|\btwice)\s+(?:faster|slower|as (?:fast|slow))",  # noqa: RUF001
)
# A figure that somebody published is quoted as it stood, as a literal right after this word.
QUOTED = re.compile(r"published\s+``[^`]+``", re.IGNORECASE)
# Values read from a recording while the site is built.
FROM_RECORDING = re.compile(r":measured:`[^`]+`")


def typed_in(text: str) -> list[str]:
    """Everything in a text that looks like a measurement and is neither quoted nor read from a recording."""
    return [found[0] for found in MEASURED.finditer(FROM_RECORDING.sub("", QUOTED.sub("", text)))]


def prose_of_script(path: Path) -> Iterator[str]:
    """The docstring and the blocks of comments of a tutorial."""
    source = path.read_text()
    yield ast.get_docstring(ast.parse(source)) or ""
    block: list[str] = []
    last_line = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last_line + 1:
            yield "\n".join(block)
            block = []
        block.append(token.string.lstrip("#"))
        last_line = token.start[0]
    yield "\n".join(block)


def prose_of_page(path: Path) -> Iterator[str]:
    """A page without its blocks of code."""
    code_indent = None
    for line in path.read_text().splitlines():
        indent = len(line) - len(line.lstrip())
        if code_indent is not None and line.strip() and indent <= code_indent:
            code_indent = None
        if re.match(r"\s*\.\. (code-block|literalinclude)::", line) or (
            line.endswith("::") and not line.lstrip().startswith("..")
        ):
            code_indent = indent
        elif code_indent is None:
            yield line


@pytest.mark.parametrize("path", [*SCRIPTS, *PAGES], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_measurement_is_typed_in(path: Path) -> None:
    prose = prose_of_script(path) if path.suffix == ".py" else ["\n".join(prose_of_page(path))]
    found = [value for text in prose for value in typed_in(text)]
    assert not found, "let the program print it, use :measured:, or quote it as: published ``747.24 µs``"


def test_there_is_prose_to_read() -> None:
    assert len(SCRIPTS) >= 2
    assert len(PAGES) >= 5
    assert all(any(text.strip() for text in prose_of_script(path)) for path in SCRIPTS)


@pytest.mark.parametrize(
    "text",
    [
        "It takes 139 µs.",
        "It takes ``139us`` here",
        "within 0.2 s of each other",
        "about 47.7ms",
        "reaches 4.25 TB/s",
        "which is 1.9x faster",
        "1.9 × slower",  # noqa: RUF001
        "three times faster than before",
        "twice as fast",
        "the first call needs 25 seconds",
        "measured, not published: 12 ms",
        "the published result differs; here it is ``12 ms``",
    ],
)
def test_typed_in_measurements_are_found(text: str) -> None:
    assert len(typed_in(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "the published ``747.24 µs`` and the published ``392.07 µs``",
        ":measured:`nvidia-h200:plot_01.comparison.rows[5 ms].median_s`",
        "four bytes for each parameter, 28 B in all",
        "Python 3.11 or newer, capability 7.0",
        "five warm-up calls",
        "the first 5 steps",
        "A matrix of 1024x1024",
        "bytes/s in 3 settings",
    ],
)
def test_other_numbers_may_be_typed(text: str) -> None:
    assert typed_in(text) == []
