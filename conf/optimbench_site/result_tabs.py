"""One result as a set of tabs: this build's first, then the same result from every stored recording.

Nothing from a recording becomes reST: labels and sentences are nodes, and a result shows itself as escaped HTML.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx_design.shared import create_component

from optimbench import RecordedScript, Recording, Result
from optimbench_site.shown_results import note_results
from optimbench_site.stored import results_of_script, stored_recordings

THIS_BUILD = "this-build"
EARLIER = "earlier version"
NOT_IN_THIS_BUILD = "This build has no such result: its script was not run, or not on a device that gives it."


class RecordedResult(SphinxDirective):
    """`.. recorded-result:: VARIABLE` on the page of a tutorial; the scraper writes it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the tabs, and say which recordings lack this result."""
        srcdir, docname = self.env.srcdir, self.env.docname
        note_results(self.env)
        own, stored = results_of_script(srcdir, docname), stored_recordings(srcdir)
        return result_tabs(PurePosixPath(docname).name, self.arguments[0], own, stored)


def result_tabs(script: str, variable: str, own: Recording | None, stored: Sequence[Recording]) -> list[nodes.Node]:
    """The tabs of one result, and a sentence on the recordings that lack it."""
    tabs = create_component("tab-set", classes=["sd-tab-set", "ob-tabs"])
    own_run = own.scripts.get(script) if own else None
    own_result = own.result(script, variable) if own else None
    if own_run is not None and own_result is not None:
        label = [nodes.Text(f"This build · {own_run.environment.label}")]
        tabs += _tab(label, THIS_BUILD, own_result, own_run.environment.notes())
    for recording in stored:
        result = recording.result(script, variable)
        if result is not None:
            run = recording.scripts[script]
            tabs += _tab(_label(run, own_run), recording.device, result, _origin(run, own_run))
    found: list[nodes.Node] = [tabs] if tabs.children else []
    said = [] if own_result else [NOT_IN_THIS_BUILD]
    lacking = [recording.label for recording in stored if recording.result(script, variable) is None]
    if lacking:
        said.append(f"Not recorded on: {', '.join(lacking)}.")
    elif not stored:
        said.append("No other machine has recorded this result yet.")
    return [*found, *_sentences(said)]


def _label(run: RecordedScript, own_run: RecordedScript | None) -> list[nodes.Node]:
    label: list[nodes.Node] = [nodes.Text(run.environment.label)]
    if has_changed(run, own_run):
        label += [nodes.Text(" "), nodes.inline("", EARLIER, classes=["sd-badge", "ob-earlier"])]
    return label


def has_changed(run: RecordedScript, own_run: RecordedScript | None) -> bool:
    """Whether a recording was made from another version of the script than this build's."""
    return own_run is not None and run.source_sha256 != own_run.source_sha256


def _origin(run: RecordedScript, own_run: RecordedScript | None) -> list[str]:
    machine = run.environment
    versions = [f"torch {machine.torch}"]
    versions += [f"CUDA {machine.cuda}"] if machine.cuda else []
    versions += [f"driver {machine.driver}"] if machine.driver else []
    commit = f"commit {machine.commit}{' with local changes' if machine.commit_is_dirty else ''}"
    said = [f"Recorded on {machine.date[:10]}: {', '.join(versions)}, {commit if machine.commit else 'no commit'}."]
    if has_changed(run, own_run):
        said.append("The script has changed since: this recording was made from an earlier version of it.")
    return [*said, *machine.notes()]


def _tab(label: Sequence[nodes.Node], device: str, result: Result, said: Sequence[str]) -> nodes.Node:
    title = nodes.rubric("", "", *label, classes=["sd-tab-label"], sync_id=device, sync_group="device")
    shown = nodes.raw("", result._repr_html_(), format="html")
    content = create_component("tab-content", classes=["sd-tab-content"], children=[shown, *_sentences(said)])
    return create_component("tab-item", classes=["sd-tab-item"], children=[title, content], selected=False)


def _sentences(said: Sequence[str]) -> list[nodes.Node]:
    return [nodes.paragraph("", sentence, classes=["ob-origin"]) for sentence in said]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("recorded-result", RecordedResult)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
