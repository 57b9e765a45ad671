"""What the site's sources must hold before anything is built."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sphobjinv
from site_builder import REPOSITORY

import optimbench
from optimbench.__main__ import main
from optimbench_site.inventories import ADDRESSES, FOLDER
from optimbench_site.sources import fingerprint

SCRIPTS = sorted((REPOSITORY / "gallery").rglob("plot_*.py"))
# Names of torch that its documentation describes on no page of their own: private ones, types of numbers, operators.
UNDOCUMENTED = re.compile(r"torch\.((.*\.)?_.*|version\b.*|ops\..*|autograd\.DeviceType\b.*|[a-z]+\d+)$")


def documented_names(*, modules: bool) -> set[str]:
    """Every name that code can link to: the modules, or all the others."""
    lists = [sphobjinv.Inventory(FOLDER / f"{name}.txt") for name in ADDRESSES]
    return {item.name for each in lists for item in each.objects if (item.role == "module") == modules}


def torch_names(script: Path) -> Iterator[str]:
    """The dotted names of torch that a script's code uses, as they are called where they are defined."""
    tree = ast.parse(script.read_text())
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {a.asname: a.name for a in node.names if a.asname} | {
                a.name.split(".")[0]: a.name.split(".")[0] for a in node.names if not a.asname
            }
        elif isinstance(node, ast.ImportFrom):
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    # The longest chains only: torch.optim.Adam, not torch.optim as well.
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute) or id(node) in inner:
            continue
        first, _, rest = ast.unparse(node).partition(".")
        name = ".".join(part for part in (known.get(first, ""), rest) if part)
        if name.startswith("torch.") and re.fullmatch(r"[\w.]+", name):
            yield name


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_torch_name_in_a_tutorial_can_be_linked(script: Path) -> None:
    names = {name for name in torch_names(script) if not UNDOCUMENTED.match(name)}
    assert names, "a tutorial without torch"
    documented = documented_names(modules=False)
    names -= documented_names(modules=True)
    # A member of a class is described with its class.
    missing = {name for name in names if not {name, name.rpartition(".")[0]} & documented}
    assert not missing, f"add these to conf/inventories/torch.txt, with their pages: {sorted(missing)}"


def computed_titles(block: str) -> list[ast.expr]:
    """The titles that a block of a tutorial gives its figures, if something in them is computed."""
    tree = ast.parse(block)
    named = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    titles = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            titles += [keyword.value for keyword in node.keywords if keyword.arg == "title"]
            titles += node.args[:1] if node.func.attr in ("set_title", "suptitle") else []
    meant = [named.get(title.id, title) if isinstance(title, ast.Name) else title for title in titles]
    computed = (ast.FormattedValue, ast.Call, ast.Attribute)
    return [title for title in meant if any(isinstance(part, computed) for part in ast.walk(title))]


def blocks_that_draw(script: Path) -> list[str]:
    """The blocks of a tutorial that show a figure."""
    return [block for block in re.split(r"^# %%", script.read_text(), flags=re.MULTILINE) if "plt.show()" in block]


# The title of a figure becomes its alternative text, which has to say what was found, and that is known only then.
@pytest.mark.parametrize("script", [s for s in SCRIPTS if blocks_that_draw(s)], ids=lambda path: path.stem)
def test_every_figure_has_a_title_computed_from_the_data(script: Path) -> None:
    without = [block for block in blocks_that_draw(script) if not computed_titles(f"#{block}")]
    assert not without, "give the figure a title that says what was found, an f-string with the values"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('axes.set_title("Time of a step")', 0),
        ('axes.set(title="Time of a step")', 0),
        ('axes.set(title=f"Time of a step")', 0),
        ("for name in names:\n    axes.set(title=name)", 0),
        ('figure.suptitle(f"{best} is fastest")', 1),
        ('title = f"{best} is fastest"\naxes.set_title(title)', 1),
        ("axes.set_title(comparison.finding)", 1),
    ],
)
def test_titles_typed_in_are_told_from_computed_ones(code: str, count: int) -> None:
    assert len(computed_titles(code)) == count


def test_inventories_are_sorted_and_complete() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(ADDRESSES)
    for path in FOLDER.glob("*.txt"):
        entries = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert entries == sorted(set(entries)), path
        assert sphobjinv.Inventory(path).count == len(entries), path


def test_reference_lists_every_public_name_once() -> None:
    text = (REPOSITORY / "docs" / "api" / "index.rst").read_text()
    listed = re.findall(r"^   (\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(optimbench.__all__)


def test_options_of_recommend_that_a_page_names_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["recommend", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    text = (REPOSITORY / "docs" / "decide.rst").read_text()
    named = set(re.findall(r"--[a-z-]+", "\n".join(re.findall(r"``--[^`]+``|\$ python .*", text))))
    assert named
    assert named <= known


def test_configuration_stays_short() -> None:
    assert len((REPOSITORY / "conf" / "conf.py").read_text().splitlines()) <= 120
    assert len((REPOSITORY / "noxfile.py").read_text().splitlines()) < 130
    assert len((REPOSITORY / "CONTRIBUTING.md").read_text().splitlines()) < 100


def test_a_script_that_is_no_python_is_named(tmp_path: Path) -> None:
    script = tmp_path / "plot_03_broken.py"
    script.write_text("x = 1\nprint(\n")
    with pytest.raises(SyntaxError, match=r"plot_03_broken\.py, line 2"):
        fingerprint(script)
