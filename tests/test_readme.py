"""The README: its picture is the recording's, its commands exist, its code runs."""

import re
import shutil
from pathlib import Path

import nox
import pytest

import readme
from optimbench import Comparison

TEXT = (readme.ROOT / "README.md").read_text()
MOST_BYTES = 100_000
MOST_LINES = 100


def words_of(picture: Path) -> list[str]:
    """The texts in a picture; how their letters are drawn differs with matplotlib."""
    return re.findall(r"<!-- (.+?) -->", picture.read_text())


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with what the picture is made from and the README."""
    for name in (readme.RECORDING, "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(readme.ROOT / name, tmp_path / name)
    return tmp_path


def test_the_picture_and_its_words_are_those_of_the_recording(copied: Path) -> None:
    readme.update(copied)
    assert (copied / "README.md").read_text() == TEXT, "run: python conf/readme.py"
    for theme in ("light", "dark"):
        name = readme.PICTURE.format(theme=theme)
        assert name in TEXT
        assert words_of(readme.ROOT / name) == words_of(copied / name), "run: python conf/readme.py"
        assert len(words_of(copied / name)) > 10
        assert (readme.ROOT / name).stat().st_size <= MOST_BYTES
    found = re.search(r"Measured on (\d{4}-\d\d-\d\d): NVIDIA H200, torch \d", TEXT)
    assert found


def test_another_recording_gives_another_picture(copied: Path) -> None:
    recording = copied / readme.RECORDING
    recording.write_text(recording.read_text().replace('"date": "20', '"date": "19'))
    readme.update(copied)
    assert "Measured on 19" in (copied / "README.md").read_text()


def test_a_readme_without_a_place_is_refused(copied: Path) -> None:
    (copied / "README.md").write_text("Nothing.\n")
    with pytest.raises(ValueError, match="has 0 places for the picture"):
        readme.update(copied)


def test_it_is_short_and_without_badges() -> None:
    assert len(TEXT.splitlines()) < MOST_LINES
    assert "badge" not in TEXT
    assert "![" not in TEXT
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == [
        "See it",
        "Two commands",
        "On a GPU",
        "In a notebook",
        "Contribute",
        "Licence",
    ]


def test_what_it_links_to_is_there() -> None:
    links = [*re.findall(r"\]\(([^)]+)\)", TEXT), *re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)]
    assert len(links) >= 5
    assert [link for link in links if not (readme.ROOT / link).is_file()] == []


def test_its_sessions_exist() -> None:
    named = set(re.findall(r"-s (\w+)", TEXT))
    defined = set(re.findall(r"^def (\w+)\(session", (readme.ROOT / "noxfile.py").read_text(), re.MULTILINE))
    assert named == {"docs"}
    assert named <= defined
    groups = nox.project.load_toml(readme.ROOT / "pyproject.toml")["dependency-groups"]
    assert {"docs", "test"} <= groups.keys()


def test_its_code_gives_a_table() -> None:
    (code,) = re.findall(r"```python\n(.+?)```", TEXT, re.DOTALL)
    *lines, last = code.strip().splitlines()
    variables: dict[str, object] = {}
    exec("\n".join(lines), variables)
    shown = eval(last, variables)
    assert isinstance(shown, Comparison)
    assert [row.name for row in shown.rows] == ["yours", "fast"]
    assert "<table" in shown._repr_html_()
