"""Measured values in prose: `:measured:` reads them from a recording, so that no text can outlive its measurement.

:measured:`nvidia-h200:plot_01_adam.comparison.rows[compiled].median_s` becomes "139 µs (NVIDIA H200)".

A value is named by the recording's device, the script, the variable, and fields as in Python. A name in brackets picks
the row of that name; among `speedups` it picks the ratios of the row of that name, and among a table's `cells` the row
that begins with it and then the column of that name. A cell may be empty, and the ratios of host and kernels are
missing on a CPU: both are shown as "–".

With a tilde before the device the value stands alone, for tables whose header names the device. A wall or host
time, or its ratio, says so where its rows were found noisy or drifting.
"""  # noqa: RUF002

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxRole

from optimbench import Comparison, Measurement, Ratio, Recording, Speedup, Table, _format
from optimbench_site.shown_results import note_results
from optimbench_site.stored import stored_recordings

NOT_RECORDED = "(not recorded yet)"

_ADDRESS = re.compile(
    r"(?P<alone>~?)(?P<device>[a-z0-9-]+):(?P<script>\w+)\.(?P<variable>\w+)(?P<rest>(?:\.\w+|\[[^\]]+\])*)"
)
# How the warnings of a measurement begin that are about its times.
_MARKS = ("noisy", "drifting")
# What they are about: a kernel's time neither scatters nor drifts with the host's.
_MARKED = ("median_s", "host_time_s", "wall", "host")
_STEP = re.compile(r"\.(?P<field>\w+)|\[(?P<key>[^\]]+)\]")


class Measured(SphinxRole):
    """Show a value from a stored recording with its unit and device."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Look the value up.

        Raises:
            ExtensionError: There is no such value. Sphinx would make a warning of less, and a page with a hole.
        """
        note_results(self.env)
        try:
            shown = measured(self.text, stored_recordings(self.env.srcdir))
        except LookupError as error:
            if self.config.optimbench_recording:
                return [nodes.inline("", NOT_RECORDED, classes=["ob-measured"])], []
            source, line = self.get_source_info()
            raise ExtensionError(f"{source}:{line}: :measured:`{self.text}`: {error.args[0]}") from error
        return [nodes.inline("", shown, classes=["ob-measured"])], []


def measured(address: str, recordings: Sequence[Recording]) -> str:
    """The value at an address, with its unit and the device.

    Raises:
        LookupError: Nothing is there, or what is there is no single value; the message says what could be there.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise LookupError("expected device:script.variable.field, with [name] after rows")
    recording = next((each for each in recordings if each.device == parts["device"]), None)
    if recording is None:
        raise LookupError(f"no recording of {parts['device']!r} (there is {_listed(r.device for r in recordings)})")
    if parts["script"] not in recording.results:
        raise LookupError(f"no script {parts['script']!r} (there is {_listed(recording.results)})")
    value: Any = recording.result(parts["script"], parts["variable"])
    if value is None:
        raise LookupError(f"no result {parts['variable']!r} (there is {_listed(recording.results[parts['script']])})")
    owner, field, marks = value, "", ""
    for step in _STEP.finditer(parts["rest"]):
        if step["field"]:
            owner, field, value = value, step["field"], _field(value, step["field"])
        else:
            items, value = value, _item(owner, field, value, step["key"])
            if isinstance(owner, Comparison) and field in ("rows", "speedups"):
                row = owner.rows[items.index(value)]
                marks = _marks([row] if field == "rows" else [row, owner.row(owner.baseline)])
    shown = _format.MISSING if value is None and isinstance(owner, Table | Speedup) else _shown(value, field)
    shown += marks if field in _MARKED and value is not None else ""
    return shown if parts["alone"] else f"{shown} ({recording.label})"


def _marks(rows: Sequence[Measurement]) -> str:
    """What is to be said of a time of these rows: what any of them was marked with."""
    said = [warning for row in rows for warning in row.warnings]
    return "".join(f", {mark}" for mark in _MARKS if any(warning.startswith(mark) for warning in said))


def _field(owner: Any, name: str) -> Any:
    """A field or a property; no method, and nothing private."""
    if isinstance(owner, msgspec.Struct) and not name.startswith("_"):
        fields = [field.name for field in msgspec.structs.fields(owner)]
        if name in fields or isinstance(getattr(type(owner), name, None), property):
            return getattr(owner, name)
        raise LookupError(f"{type(owner).__name__} has no {name!r} (it has {_listed(fields)})")
    raise LookupError(f"nothing has a field {name!r} here")


def _item(owner: Any, field: str, values: Any, key: str) -> Any:
    if not isinstance(values, tuple):
        raise LookupError(f"[{key}] follows something that has no items")  # noqa: TRY004 - a wrong address.
    if isinstance(owner, Table) and field == "cells":
        # The first key picks a row, the second a column.
        names = [str(row[0]) for row in values] if values is owner.cells else list(owner.columns)
    elif isinstance(owner, Comparison) and field == "speedups":
        names = [row.name for row in owner.rows]
    else:
        names = [str(getattr(value, "name", "")) for value in values]
    if key in names:
        return values[names.index(key)]
    if key.isdecimal() and int(key) < len(values):
        return values[int(key)]
    raise LookupError(f"no [{key}] (there is {_listed(filter(None, names))})")


def _shown(value: Any, field: str) -> str:
    """The value in the unit that its field's name says."""
    if isinstance(value, Ratio):
        return f"{value.verdict} {value.interval}"
    if isinstance(value, bool) or value is None or not isinstance(value, int | float | str):
        raise LookupError(f"that is {type(value).__name__}, not a number or a text")
    if isinstance(value, str):
        return value
    if field.endswith("_bytes"):
        return _format.byte_count(value)
    if field == "bytes_per_s":
        return f"{_format.significant(value / 1e9)} GB/s"
    if field.endswith("_s"):
        return _format.seconds(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    # Set by a build that makes a recording: it cannot ask for what is not recorded yet, and is not published.
    app.add_config_value("optimbench_recording", default=False, rebuild="env", types=frozenset({bool}))
    app.add_role("measured", Measured())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
