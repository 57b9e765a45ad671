"""The page of all results: one table and one figure an experiment, across this build and all recordings."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from optimbench import Bandwidth, Comparison, Environment, Measurement, RecompileLog, Recording, Result, Table, _format
from optimbench_site.pictures import save_picture, themed_images
from optimbench_site.result_tabs import has_changed, result_tabs
from optimbench_site.shown_results import note_results
from optimbench_site.stored import pages_with_results, stored_recordings, this_build

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THIS_BUILD = "This build"


class RecordedResults(SphinxDirective):
    """`.. recorded-results::` lists machines, experiments and files."""

    def run(self) -> list[nodes.Node]:
        """Make a section for the machines and one for every script."""
        pages = pages_with_results(self.env.srcdir, self.config)
        note_results(self.env, of_all_pages=True)
        own = this_build(self.env.srcdir, self.config)
        stored = stored_recordings(self.env.srcdir)
        sections = [_section("machines", nodes.Text("Machines"), self._machines(own, stored))]
        pages = sorted(pages, key=lambda name: Path(name).name)
        return [*sections, *[self._script(docname, own, stored) for docname in pages]]

    def _machines(self, own: Recording, stored: Sequence[Recording]) -> list[nodes.Node]:
        here = f"{THIS_BUILD}: {own.label}" if own.scripts else THIS_BUILD
        rows = [_machine_row(here, own), *[_machine_row(each.label, each) for each in stored]]
        headers = ["machine", "memory", "torch", "CUDA", "driver", "processor", "dates", "commits", "scripts"]
        table = _format.html_table(headers, rows, "Machines and versions")
        files = nodes.bullet_list()
        up = "../" * self.env.docname.count("/")
        for name, address in [
            (f"{THIS_BUILD} (results.json)", f"{up}results.json"),
            *[(f"{each.label} ({each.device}.json)", f"{up}recordings/{each.device}.json") for each in stored],
        ]:
            link = nodes.reference("", name, refuri=address, internal=True)
            files += nodes.list_item("", nodes.paragraph("", "", link))
        known = {Path(docname).name for docname in pages_with_results(self.env.srcdir, self.config)}
        said = [
            f"{each.label}: {len(unknown)} recorded scripts are not part of this build."
            for each in stored
            if (unknown := each.scripts.keys() - known)
        ]
        if not stored:
            said.append("No machine but the one of this build has recorded anything yet.")
        sentences = [nodes.paragraph("", sentence) for sentence in said]
        raw = nodes.raw("", f'<div class="ob-result">{table}</div>', format="html")
        return [raw, nodes.paragraph("", "The raw files:"), files, *sentences]

    def _script(self, docname: str, own: Recording, stored: Sequence[Recording]) -> nodes.section:
        script = Path(docname).name
        source = Path(self.env.srcdir) / self.config.sphinx_gallery_conf["examples_dirs"]
        title = _title(source / Path(docname).relative_to(self.config.sphinx_gallery_conf["gallery_dirs"]))
        variables = dict.fromkeys(name for each in (own, *stored) for name in each.results.get(script, {}))
        where = nodes.paragraph("", "The tutorial: ")
        where += self._link(docname)
        content: list[nodes.Node] = [where]
        earlier = [
            each.label
            for each in stored
            if script in each.scripts and has_changed(each.scripts[script], own.scripts.get(script))
        ]
        if earlier:
            content.append(
                nodes.paragraph("", f"Recorded from an earlier version of the script: {', '.join(earlier)}.")
            )
        for variable in variables:
            shown = self._experiment(script, variable, own, stored)
            if shown:
                content.append(_section(f"{script}-{variable}", nodes.Text(_heading(variable)), shown))
        return _section(script, nodes.Text(title), content)

    def _link(self, docname: str) -> nodes.Node:
        """A link to the tutorial, by its title."""
        link = addnodes.pending_xref(
            "", refdomain="std", reftype="doc", reftarget=f"/{docname}", refexplicit=False, refdoc=self.env.docname
        )
        link += nodes.inline("", docname, classes=["doc"])
        return link

    def _experiment(self, script: str, variable: str, own: Recording, stored: Sequence[Recording]) -> list[nodes.Node]:
        results: dict[str, Result] = {}
        for label, recording in [(THIS_BUILD, own), *[(each.label, each) for each in stored]]:
            result = recording.result(script, variable)
            # A recording of another version of the script may hold another type under the same name.
            if result is not None and all(type(result) is type(other) for other in results.values()):
                results[label] = result
        first = next(iter(results.values()))
        if isinstance(first, Environment):  # The machines have a table of their own.
            return []
        if not isinstance(first, Comparison | Measurement | RecompileLog | Bandwidth):
            tabs = result_tabs(script, variable, own, stored)
            return tabs if stored else tabs[:1]  # The page says only once that nobody has recorded anything.
        table = across_devices(results)
        raw = nodes.raw("", table._repr_html_(), format="html")
        return [raw, *self._pictures(f"{script}-{variable}", results)]

    def _pictures(self, name: str, results: Mapping[str, Result]) -> list[nodes.Node]:
        """The experiment's picture, for both themes."""
        from optimbench import figures

        def draw(theme: str, path: Path) -> None:
            save_picture(lambda figure: _draw(results, figure), path, theme=theme, size_in=(7, _height_in(results)))

        words = " ".join(f"{label}: {figures.describe(result)}" for label, result in results.items())
        content = msgspec.json.encode(results) + Path(figures.__file__).read_bytes()
        return themed_images(self.env, name, words, content, draw)


def across_devices(results: Mapping[str, Result]) -> Table:
    """The same result from several devices side by side."""
    name = next(iter(results.values())).title()
    if compared := {label: result for label, result in results.items() if isinstance(result, Comparison)}:
        steps = dict.fromkeys(row.name for result in compared.values() for row in result.rows)
        cells = [[step, *[_step_cell(result, step) for result in compared.values()]] for step in steps]
        return _table(f"{name}: wall time of one step", ["step", *compared], cells)
    rows = []
    headers = ["machine"]
    for label, result in results.items():
        if isinstance(result, Measurement):
            headers = ["machine", "wall", "host", "kernels"]
            rows.append([label, *map(_time, (result.median_s, result.host_time_s, result.kernel_time_s))])
        elif isinstance(result, RecompileLog):
            headers = ["machine", "compiles", "recompiles", "limit passed"]
            passed = "yes" if result.limit_hit else "no"
            rows.append([label, str(result.n_compiles), str(result.n_recompiles), passed])
        elif isinstance(result, Bandwidth):
            headers = ["machine", "bandwidth"]
            rows.append([label, f"{_format.significant(result.bytes_per_s / 1e9)} GB/s"])
    return _table(name, headers, rows)


def _step_cell(comparison: Comparison, step: str) -> str:
    if step not in [row.name for row in comparison.rows]:
        outcomes = [missing.outcome for missing in comparison.not_measured if missing.name == step]
        return outcomes[0] if outcomes else _format.MISSING
    wall = _time(comparison.row(step).median_s)
    if step == comparison.baseline:
        return f"{wall} (baseline)"
    ratio = comparison.speedup(step).wall
    return f"{wall}, {ratio.verdict} {ratio.interval}"


def _time(time_s: float | None) -> str:
    return _format.MISSING if time_s is None else _format.seconds(time_s)


def _table(name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return Table(name=name, columns=tuple(columns), cells=tuple(tuple(row) for row in rows))


def _machine_row(label: str, recording: Recording) -> list[str]:
    """What is known of a recording's machine; where its scripts differ, all values."""
    machines = [script.environment for script in recording.scripts.values()]

    def every(field: str) -> str:
        values = sorted({str(getattr(m, field)) for m in machines if getattr(m, field) is not None})
        return ", ".join(values) or _format.MISSING

    memory = sorted({_format.byte_count(m.memory_bytes) for m in machines if m.memory_bytes is not None})
    dates = sorted({m.date[:10] for m in machines}) or [_format.MISSING]
    shown = [every("torch"), every("cuda"), every("driver"), every("cpu")]
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return [
        label,
        ", ".join(memory) or _format.MISSING,
        *shown,
        when,
        every("commit"),
        str(len(recording.scripts)),
    ]


def _section(name: str, title: nodes.Node, content: Sequence[nodes.Node]) -> nodes.section:
    return nodes.section("", nodes.title("", "", title), *content, ids=[nodes.make_id(name)], names=[name])


def _heading(variable: str) -> str:
    """A variable's name as words: few_large_comparison becomes "Few large comparison"."""
    return variable.replace("_", " ").capitalize()


def _title(script: Path) -> str:
    """The title of a tutorial: the first line of its docstring."""
    words = ast.get_docstring(ast.parse(script.with_suffix(".py").read_text(encoding="utf-8"))) or script.name
    return words.splitlines()[0]


def _draw(results: Mapping[str, Result], figure: "Figure") -> None:
    from optimbench import figures

    if len(results) == 1:
        figures.draw(next(iter(results.values())), figure.add_subplot())
    else:
        figures.draw_devices(results, figure.add_subplot())


def _height_in(results: Mapping[str, Result]) -> float:
    """Inches for every row of the figure, within what a page can show."""
    steps = {row.name for result in results.values() if isinstance(result, Comparison) for row in result.rows}
    return 1.2 + 0.45 * min(30, max(len(steps), len(results), 4))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("recorded-results", RecordedResults)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
