"""Spelling and reST are checked inside Python files too, and what is found there has its place in the file."""

import shutil
import subprocess
from pathlib import Path

import pytest

from lint_prose import faults, main

REPOSITORY = Path(__file__).parents[1]
TUTORIAL = '''"""
A title
=======

The first sentence.{docstring}
"""

# %%
# A heading
# ---------
# Some text.{text}
x = 1
'''
MODULE = '''"""A module.{docstring}"""


def function() -> None:
    """A function.

    Args:
        none: Of `them`.{text}
    """
'''
# A role that nothing separates from the word before it.
FAULT = " see:func:`it`"
# In two parts, since this file is checked too.
MISSPELT = "sepe" + "rate"


@pytest.mark.parametrize(("name", "source"), [("plot_01_tutorial.py", TUTORIAL), ("module.py", MODULE)])
def test_faults_are_found_where_they_are(tmp_path: Path, name: str, source: str) -> None:
    path = tmp_path / name
    path.write_text(source.format(docstring="", text=""))
    assert faults(path) == []
    path.write_text(source.format(docstring=FAULT, text=FAULT))
    wanted = [number for number, line in enumerate(path.read_text().splitlines(), 1) if FAULT in line]
    assert [fault.split(": ")[0] for fault in faults(path)] == [f"{path}:{number}" for number in wanted]


def test_single_backticks_are_for_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "plot_01_tutorial.py"
    path.write_text(TUTORIAL.format(docstring="", text=" `them`"))
    assert "default-role" in faults(path)[0]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE.format(docstring="", text=""))
    assert main([str(tmp_path)]) == 0
    path.write_text(MODULE.format(docstring=FAULT, text=""))
    assert main([str(tmp_path)]) == 1
    assert "module.py:1" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no Python file"):
        main([str(tmp_path / "nothing")])


@pytest.mark.parametrize("name", ["docs/page.rst", "gallery/start/plot_01_tutorial.py", "src/package/module.py"])
def test_spelling_is_checked_everywhere(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    for name_of_setting in ("pyproject.toml", "conf/words.txt"):
        (tmp_path / name_of_setting).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name_of_setting, tmp_path / name_of_setting)

    def check(word: str) -> subprocess.CompletedProcess[str]:
        path.write_text(f'"""The {word} end of thead, arange and dur."""\n')
        return subprocess.run(["codespell"], cwd=tmp_path, capture_output=True, text=True, check=False)

    done = check("very")
    assert done.returncode == 0, done.stdout + done.stderr
    done = check(MISSPELT)
    assert done.returncode == 65
    assert f"{name}:1: {MISSPELT}" in done.stdout
