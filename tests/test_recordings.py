"""Recordings: what is written can be read, and nothing else can."""

import copy
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimbench.comparison import compare_measurements
from optimbench.errors import RecordingError
from optimbench.recordings import (
    RecordedScript,
    Recording,
    device_slug,
    differences,
    load_recording,
    load_recordings,
    save_recording,
    source_sha256,
)
from optimbench.recordings._decoding import MAX_FILE_BYTES, decode, encode
from optimbench.results import Bandwidth, RecompileLog, Result, Table
from recording_examples import RESULTS, SCRIPT, SHA256, environment, measurement, recording, recordings

Place = tuple[str | int, ...]


def raw() -> dict[str, Any]:
    """The fixed recording as plain dictionaries, to be damaged."""
    return dict(json.loads(encode(recording())))


def refusal(content: object) -> str:
    """What is said of a file with this content; text is taken as it is."""
    with pytest.raises(RecordingError) as caught:
        decode(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(caught.value)


def places(value: object, place: Place = ()) -> Iterator[Place]:
    """Every place in a tree but its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*place, key)
        yield from places(item, (*place, key))


def at(tree: Any, place: Place) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def changed(place: Place, value: object) -> dict[str, Any]:
    """The fixed recording with another value at one place."""
    tree = raw()
    at(tree, place[:-1])[place[-1]] = value
    return tree


def named(place: Place) -> str:
    """The place as messages write it."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")


PLACES = list(places(raw()))
NUMBERS = [place for place in PLACES if type(at(raw(), place)) in (int, float)]


def result_place(*rest: str | int) -> Place:
    return ("results", SCRIPT, *rest)


# -- Round trips ------------------------------------------------------------------------------------------------------


def test_every_result_type_is_tested() -> None:
    types = {kind.__name__ for kind in Result.__subclasses__()}
    assert types == RESULTS.keys()
    fixed = {type(result).__name__ for results in recording().results.values() for result in results.values()}
    assert types == fixed


@pytest.mark.parametrize("kind", RESULTS)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_result_type_survives_the_file(kind: str, data: st.DataObject) -> None:
    result = data.draw(RESULTS[kind])
    kept = decode(encode(recording(results={SCRIPT: {"result": result}, "plot_02_other": {}})))
    assert kept.result(SCRIPT, "result") == result
    assert type(kept.results[SCRIPT]["result"]).__name__ == kind


@given(made=recordings())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_recording_survives_the_file(made: Recording) -> None:
    assert decode(encode(made)) == made


def test_the_file_is_the_same_every_time_and_keeps_numbers_side_by_side(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    save_recording(recording(), first)
    save_recording(load_recording(first), second)
    text = first.read_text()
    assert second.read_text() == text
    assert '"block_times_s": [ 0.0001, 0.0002, 0.0004 ]' in text
    assert json.loads(text) == json.loads(msgspec.json.encode(recording()))
    assert first.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- Damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES, ids=named)
def test_a_wrong_type_is_refused_at_its_place(place: Place) -> None:
    value = at(raw(), place)
    wrong: object = [] if isinstance(value, dict) else "text" if isinstance(value, list) else {}
    assert refusal(changed(place, wrong)).startswith(f"{named(place)}: ")


@pytest.mark.parametrize("place", NUMBERS, ids=named)
def test_nan_infinity_and_negative_numbers_are_refused_at_their_place(place: Place) -> None:
    for text in ("NaN", "Infinity", "-Infinity", "1e999"):
        content = json.dumps(changed(place, "here")).replace('"here"', text).encode()
        assert refusal(content).startswith(f"{named(place)}: is "), text
    if not {"cells", "seed"} & set(place):
        assert refusal(changed(place, -1.5)).startswith(f"{named(place)}: is -1.5")


def struct_at(place: Place) -> Any:
    """What the fixed recording has at a place: a struct, a tuple, a dictionary or a value."""
    found: Any = recording()
    for key in place:
        found = getattr(found, key) if isinstance(found, msgspec.Struct) and isinstance(key, str) else found[key]
    return found


def fields(*, required: bool) -> list[Place]:
    """The places that are fields of a struct with or without a default."""
    found = []
    for *owner, name in PLACES:
        struct = struct_at(tuple(owner))
        if not isinstance(struct, msgspec.Struct):
            continue
        defaults = {field.name: not field.required for field in msgspec.structs.fields(struct)}
        # A result's type is needed where there could be another; the version is always needed.
        defaults |= {"type": owner[:1] != ["results"] or len(owner) != 3, "format_version": False}
        if defaults[str(name)] != required:
            found.append((*owner, name))
    return found


@pytest.mark.parametrize("place", fields(required=True), ids=named)
def test_a_missing_field_is_refused_at_its_place(place: Place) -> None:
    tree = raw()
    del at(tree, place[:-1])[place[-1]]
    expected = "is None (this optimbench reads 1)" if place == ("format_version",) else "missing"
    assert refusal(tree) == f"{named(place)}: {expected}"


@pytest.mark.parametrize("place", fields(required=False), ids=named)
def test_a_missing_field_with_a_default_has_it_where_the_others_allow(place: Place) -> None:
    tree = raw()
    del at(tree, place[:-1])[place[-1]]
    needs_others = {"host_time_s", "block_host_times_s", "kernel_time_s"} & set(place)
    if (needs_others and "comparison" in place) or needs_others - {"kernel_time_s"}:
        said = refusal(tree)
        assert "go together" in said or "a ratio without times" in said
    else:
        kept = at(json.loads(encode(decode(json.dumps(tree).encode()))), place)
        assert kept in (None, False, 0, "", []) or place[-1] == "type" or (place[-1], kept) == ("world_size", 1)


@pytest.mark.parametrize("place", [(), *[p for p in PLACES if isinstance(at(raw(), p), dict)]], ids=named)
def test_an_unknown_field_is_refused_at_its_place(place: Place) -> None:
    tree = raw()
    at(tree, place)["colour"] = "blue"
    message = refusal(tree)
    where = named((*place, "colour"))
    # Below "scripts" and "results" a new name is a new script or variable, of the wrong type or without its other half.
    assert message.startswith(f"{where}: "), message


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0, [1]])
def test_other_versions_are_refused(version: object) -> None:
    assert "format_version: is" in refusal(raw() | {"format_version": version})
    assert "this optimbench reads 1" in refusal(raw() | {"format_version": version})


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (result_place("comparison", "rows", 1, "median_s"), 0.5, "median_s is 0.5, but the blocks give 9e-05"),
        (result_place("comparison", "speedups", 1, "wall", "value"), 1.9, "wall.value: is 1.9, but the rows give"),
        (result_place("comparison", "speedups", 1, "host", "value"), 1.9, "host.value: is 1.9, but the rows give"),
        (result_place("comparison", "speedups", 1, "kernel", "value"), 1.41, "kernel.value: is 1.41, but the rows"),
        (result_place("comparison", "speedups", 1, "wall", "high"), 99.0, "lies beyond all rounds"),
        (result_place("comparison", "speedups", 1, "wall", "low"), 0.001, "lies beyond all rounds"),
        (result_place("comparison", "baseline"), "nobody", "baseline 'nobody' is not among the rows"),
        (result_place("comparison", "rows", 0, "warm_up_s"), 1e-30, "rows[0].warm_up_s: is 1e-30 s"),
        (result_place("comparison", "rows", 0, "first_call_s"), 1e9, "rows[0].first_call_s: is 1000000000.0 s"),
        (result_place("comparison", "rows", 0, "num_threads"), 10**30, "num_threads: is too large an integer"),
        (result_place("lr_table", "cells", 0), [1], "cells[0] has 1 cells"),
        (result_place("lr_table", "cells"), json.loads("[" * 8 + "]" * 8), "[0][0][0][0][0][0][0]: nested too deep"),
        (result_place("machine", "date"), "2999-01-01T00:00:00+00:00", "date: 2999-01-01T00:00:00+00:00 lies in"),
        (("scripts", SCRIPT, "environment", "date"), "yesterday", "environment.date: is 'yesterday'"),
        (("scripts", SCRIPT, "environment", "date"), "2026-02-03", "environment.date: is '2026-02-03'"),
        (("scripts", SCRIPT, "environment", "device_name"), "GB10", "gives the device 'gb10' (expected 'nvidia-h200')"),
        (("scripts", SCRIPT, "source_sha256"), "abc", "source_sha256: is no SHA-256"),
        (("device",), "../../index", "expected '../../index'"),
    ],
)
def test_what_does_not_fit_is_refused(place: Place, value: object, said: str) -> None:
    assert said in refusal(changed(place, value))


def with_row(least_bytes: int | None, *, wall_s: float = 1e-3, kernel_s: float | None = 1e-3, **copy: Any) -> Recording:
    """A recording with a step that moves this many bytes, and a copy at a gigabyte a millisecond."""
    row = measurement("eager", (wall_s,), kernel_time_s=kernel_s, least_bytes=least_bytes)
    fields: dict[str, Any] = {"device": "cuda", "moved_bytes": 10**9, "block_times_s": (1e-3,), "median_s": 1e-3}
    compared = compare_measurements([row], baseline="eager")
    return recording(results={SCRIPT: {"c": compared}, "plot_02_other": {"copied": Bandwidth(**fields | copy)}})


def test_a_time_too_short_to_move_the_bytes_is_refused() -> None:
    # A billion bytes take a millisecond; what a cache can save and the margin leave 1 / 2.2 of it.
    for wall_s, kernel_s in ((1e-3, 1e-3), (0.46e-3, 0.46e-3), (1e-3, None)):
        decode(encode(with_row(10**9, wall_s=wall_s, kernel_s=kernel_s)))
    place = f"results.{SCRIPT}.c.rows[0]"
    for times, field in (({"kernel_s": 0.45e-3}, "kernel_time_s"), ({"wall_s": 0.45e-3, "kernel_s": None}, "median_s")):
        with pytest.raises(RecordingError) as caught:
            decode(encode(with_row(10**9, **times)))
        said = "is 0.00045 s, too short to move 1000000000 bytes at the 1000 GB/s of this device's copies"
        assert str(caught.value) == f"{place}.{field}: {said} (expected at least 0.0004545 s)"


def test_without_known_bytes_or_a_copy_there_is_no_floor() -> None:
    decode(encode(with_row(None, kernel_s=1e-9)))
    decode(encode(with_row(10**9, kernel_s=1e-9, device="cpu")))


def test_a_bandwidth_that_no_memory_has_is_refused() -> None:
    with pytest.raises(RecordingError, match=r"copied: 1e\+15 bytes/s \(expected at most 1e\+14\)"):
        decode(encode(with_row(None, moved_bytes=10**12)))


def test_a_spread_of_rounding_is_kept() -> None:
    row = measurement("eager", (1e-9, 1e-9, 1.0000000000000005e-9, 1.0000000000000005e-9))
    assert 0 < row.iqr_s < 1e-20
    kept = decode(encode(recording(results={SCRIPT: {"row": row}, "plot_02_other": {}})))
    assert kept.result(SCRIPT, "row") == row


def test_speedups_need_times_of_the_same_rounds() -> None:
    tree = raw()
    rows = tree["results"][SCRIPT]["comparison"]["rows"]
    rows[1] |= {"block_host_times_s": None, "host_time_s": None}
    assert "speedups[1].host: a ratio without times" in refusal(tree)
    tree["results"][SCRIPT]["comparison"]["speedups"][1]["host"] = None
    rows[1] |= {"block_times_s": [9e-5], "iqr_s": 0.0}
    assert "speedups[1].wall: a ratio without times" in refusal(tree)


# -- Hostile files ----------------------------------------------------------------------------------------------------

DEEP = 100_000
TEXT = result_place("lr_table", "name")


def _renamed(place: Place, name: str) -> dict[str, Any]:
    tree = raw()
    owner = at(tree, place[:-1])
    owner[name] = owner.pop(place[-1])
    return tree


REFUSED: dict[str, Callable[[], object]] = {
    "empty file": lambda: b"",
    "null": lambda: b"null",
    "a list": lambda: b"[]",
    "not UTF-8": lambda: b'{"device": "\xff"}',
    "UTF-16": lambda: json.dumps(raw()).encode("utf-16"),
    "half a file": lambda: json.dumps(raw()).encode()[:-20],
    "two files in one": lambda: json.dumps(raw()).encode() * 2,
    "HTML": lambda: b"<html><script>alert(1)</script></html>",
    "Python": lambda: b"__import__('os').system('true')",
    "a hundred million bytes": lambda: b" " * 100_000_000,
    "brackets without end": lambda: b"[" * DEEP,
    "deep lists": lambda: b"[" * DEEP + b"]" * DEEP,
    "deep objects": lambda: b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep where text belongs": lambda: json.dumps(changed(TEXT, "X")).encode().replace(b'"X"', b"[" * 900 + b"]" * 900),
    "deep table cell": lambda: changed(result_place("lr_table", "cells"), [[[[[[[[[[1]]]]]]]]]]),
    "an integer of 5000 digits": lambda: json.dumps(changed(TEXT, "X")).encode().replace(b'"X"', b"9" * 5000),
    "an integer beyond 64 bits": lambda: changed(result_place("lr_table", "cells", 0, 0), 2**64),
    "a text of a million characters": lambda: changed(TEXT, "x" * 10**6),
    "a name of a million characters": lambda: _renamed(result_place("lr_table"), "x" * 10**6),
    "the same name twice": lambda: json.dumps(raw()).encode().replace(b'{"', b'{"device": "nvidia-h200", "', 1),
    "many names twice": lambda: b"{" + b",".join(b'"k%d": 1' % (i % 2000) for i in range(200_000)) + b"}",
    "many scripts": lambda: changed(("scripts",), {f"s{i}": raw()["scripts"][SCRIPT] for i in range(501)}),
    "many variables": lambda: changed(
        ("results", SCRIPT), {f"v{i}": raw()["results"][SCRIPT]["log"] for i in range(101)}
    ),
    "many cells": lambda: changed(result_place("lr_table", "cells"), [[1, 1]] * 10_001),
    "a script's name that climbs": lambda: _renamed(("scripts", SCRIPT), "../../../etc/passwd"),
    "a variable's name that climbs": lambda: _renamed(result_place("log"), "../conf"),
    "a variable's name that is HTML": lambda: _renamed(result_place("log"), "<img src=x onerror=alert(1)>"),
    "a variable's name that is reST": lambda: _renamed(result_place("log"), "x\n.. raw:: html\n\n   <b>"),
    "a private variable": lambda: _renamed(result_place("log"), "__class__"),
    "an empty name": lambda: _renamed(result_place("log"), ""),
    "a name in other letters": lambda: _renamed(result_place("log"), "с"),  # noqa: RUF001 - Cyrillic, on purpose.
    "a device that climbs": lambda: changed(("device",), "../nvidia-h200"),
    "a NUL": lambda: changed(TEXT, "a\0b"),
    "an escape sequence": lambda: changed(TEXT, "\x1b[31mred"),
    "a carriage return": lambda: changed(TEXT, "fast\rslow"),
    "text that turns direction": lambda: changed(TEXT, "fast \u202ewols"),
    "text of no width": lambda: changed(TEXT, "fa\u200bst"),
    "half a character": lambda: changed(TEXT, "\ud800"),
    "an absolute path": lambda: changed(TEXT, "see /home/jo/model.py"),
    "a home folder": lambda: changed(TEXT, "~jo/model.py"),
    "a Windows path": lambda: changed(TEXT, "in 'C:\\Users\\jo'"),
    "a file's address": lambda: changed(TEXT, "file:///etc/passwd"),
    "a type of its own": lambda: changed(result_place("log", "type"), "os.system"),
    "a copy faster than any memory": lambda: changed(("results", "plot_02_other", "copy", "moved_bytes"), 10**15),
    "a step too short for its bytes": lambda: changed(("results", "plot_02_other", "one", "least_bytes"), 10**13),
    "a time of zero": lambda: changed(result_place("comparison", "rows", 0, "block_times_s", 0), 0),
    "no threads": lambda: changed(result_place("comparison", "rows", 0, "num_threads"), 0),
    "a count below zero": lambda: changed(result_place("log", "graph_breaks", 0, "count"), -1),
    "a future date": lambda: changed(("scripts", SCRIPT, "environment", "date"), "9999-12-31T23:59:59+00:00"),
    "a date out of range": lambda: changed(("scripts", SCRIPT, "environment", "date"), "2026-02-30T00:00:00+00:00"),
}
INERT = {
    "a script element": "<script>alert(1)</script>",
    "an image with a handler": "<img src=x onerror=alert(1)>",
    "a closing element": "</td></tr></table></div></body>",
    "an attribute": '" onmouseover="alert(1)" x="',
    "a character reference": "&lt;script&gt;&#x3c;&amp;",
    "a comment": "<!-- -->]]>",
    "a raw directive": ".. raw:: html\n\n   <script>alert(1)</script>",
    "an include": ".. include:: ../secret.txt",
    "a role": ":doc:`index` :download:`x` |release|_",
    "a template": "{{ 7 * 7 }}{% include 'x' %}",
    "a formula": "$\\frac{1}{0$ \\unknown{",
    "a format": "%s%n{0.__class__}",
    "two columns": "a\tb\nc",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_soon_and_in_few_words(name: str) -> None:
    content = REFUSED[name]()
    start = time.process_time()  # Of this process, whatever else the machine does.
    message = refusal(content)
    assert time.process_time() - start < 5
    assert 0 < len(message) <= 500
    assert message.isprintable(), message


def test_there_are_enough_hostile_files() -> None:
    assert len(REFUSED) >= 30


def with_text_everywhere(text: str) -> Recording:
    """The fixed recording with this text at every place that may hold any text."""
    tree = raw()
    fixed = {"type", "date", "device", "device_name", "format_version", "source_sha256", "baseline", "recipe"}
    for place in PLACES:
        if (
            isinstance(at(tree, place), str)
            and place[-1] not in fixed
            and not (place[-1] == "name" and "rows" in place)
        ):
            at(tree, place[:-1])[place[-1]] = text
    return decode(json.dumps(tree).encode())


@pytest.mark.parametrize("name", INERT)
def test_hostile_text_is_shown_as_text(name: str) -> None:
    from bs4 import BeautifulSoup

    for variables in with_text_everywhere(INERT[name]).results.values():
        for result in variables.values():
            shown = BeautifulSoup(result._repr_html_(), "html.parser")
            harmless = {
                "div",
                "table",
                "caption",
                "thead",
                "tbody",
                "tr",
                "th",
                "td",
                "ul",
                "li",
                "details",
                "summary",
                "pre",
            }
            assert {tag.name for tag in shown.find_all()} <= harmless
            allowed = {"class", "style", "tabindex", "role", "aria-label"}
            assert {attribute for tag in shown.find_all() for attribute in tag.attrs} <= allowed
            assert not [tag for tag in shown.find_all() if "alert" in str(tag.get("style", ""))]


def test_a_large_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # Takes no room: a hole as large as no memory.
    tracemalloc.start()
    with pytest.raises(RecordingError, match=rf"large\.json: more than {MAX_FILE_BYTES} bytes"):
        load_recording(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * MAX_FILE_BYTES


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("pipe.json", "folder.json", "nothing.json"):
        with pytest.raises(RecordingError, match=f"{name}: is no file"):
            load_recording(tmp_path / name)


# -- Files ------------------------------------------------------------------------------------------------------------


def test_a_folder_holds_one_file_a_device(tmp_path: Path) -> None:
    assert load_recordings(tmp_path / "nothing") == []
    save_recording(recording(), tmp_path / "nvidia-h200.json")
    (tmp_path / ".nvidia-h200.json.0.tmp").write_text("half")
    assert load_recordings(tmp_path) == [recording()]
    save_recording(recording(), tmp_path / "nvidia-h100.json")
    with pytest.raises(RecordingError, match=r"nvidia-h100\.json: device: is 'nvidia-h200'"):
        load_recordings(tmp_path)


@pytest.mark.parametrize("text", ["at /home/jo/x.py:3", "on gpu-box-17"])
def test_paths_and_the_names_of_machine_and_user_are_not_stored(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-box-17")
    table = Table(name=text, columns=("a",), cells=((1,),))
    path = tmp_path / "nvidia-h200.json"
    save_recording(recording(), path)
    with pytest.raises(RecordingError, match=r"nvidia-h200\.json is not written: .*(path of a machine|name of this)"):
        save_recording(recording(results={SCRIPT: {"t": table}, "plot_02_other": {}}), path)
    assert load_recordings(tmp_path) == [recording()]
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    wrong = recording(scripts={SCRIPT: RecordedScript(environment=environment(), source_sha256=SHA256)})
    with pytest.raises(RecordingError, match=r"x\.json is not written: scripts\.plot_02_other: missing"):
        save_recording(wrong, tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_become_plain_ones_or_are_refused(tmp_path: Path) -> None:
    def with_cell(value: Any) -> Recording:
        return recording(
            results={SCRIPT: {"t": Table(name="t", columns=("a",), cells=((value,),))}, "plot_02_other": {}}
        )

    save_recording(with_cell(np.float64(0.1)), tmp_path / "x.json")
    assert load_recording(tmp_path / "x.json") == with_cell(0.1)
    with pytest.raises(RecordingError, match=r"x\.json is not written: a value of type int64 cannot be stored"):
        save_recording(with_cell(np.int64(1)), tmp_path / "x.json")
    assert load_recording(tmp_path / "x.json") == with_cell(0.1)


# Writes more than the system lets it, so that the write ends midway: with an error, or with the end of the process.
WRITER = """
    import resource, signal, sys
    from recording_examples import recording
    from optimbench.recordings import save_recording
    from optimbench.results import Table

    path, how = sys.argv[1:]
    rows = tuple((str(i % 10) * 9_000, i) for i in range(200))
    table = Table(name="t", columns=("a", "b"), cells=rows)
    large = recording(results={"plot_01_adam": {"t": table}, "plot_02_other": {}})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if how == "killed" else signal.SIG_IGN)
    save_recording(large, path)
"""


@pytest.mark.parametrize(("how", "status"), [("killed", -signal.SIGXFSZ), ("error", 1)])
def test_a_write_that_ends_midway_leaves_the_old_file(how: str, status: int, tmp_path: Path) -> None:
    path = tmp_path / "nvidia-h200.json"
    save_recording(recording(), path)
    before = path.read_bytes()
    path_before = os.environ.get("PYTHONPATH", "")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), path_before])}
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), how]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert path.read_bytes() == before
    assert load_recordings(tmp_path) == [recording()]
    left = [file for file in tmp_path.iterdir() if file != path]
    if how == "killed":  # Nobody could tidy up: the part that was written shows that the write had begun.
        assert [0 < file.stat().st_size <= 300_000 for file in left] == [True]
    else:
        assert "File too large" in done.stderr
        assert left == []


def test_who_has_the_old_file_open_reads_it_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-h200.json"
    save_recording(recording(), path)
    with path.open() as reader:
        first = reader.readline()
        save_recording(recording().only([SCRIPT]), path)
        assert json.loads(first + reader.read()) == raw()
    assert load_recording(path) == recording().only([SCRIPT])


def test_torch_is_not_needed(tmp_path: Path) -> None:
    save_recording(recording(), tmp_path / "nvidia-h200.json")
    code = f"""
        import sys
        sys.modules["torch"] = None  # Makes `import torch` fail.
        import matplotlib
        matplotlib.use("agg")
        import matplotlib.pyplot as plt
        import optimbench
        from optimbench import figures
        from optimbench.recordings import differences
        recording = optimbench.load_recording({str(tmp_path / "nvidia-h200.json")!r})
        optimbench.save_recording(recording, {str(tmp_path / "copy.json")!r})
        print(len(differences(recording, recording)))
        figures.draw(recording.results["{SCRIPT}"]["comparison"], plt.subplots()[1])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert load_recording(tmp_path / "copy.json") == recording()


# -- Contents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({}, "nvidia-h200"),
        ({"device_name": "NVIDIA GeForce RTX 4090"}, "nvidia-geforce-rtx-4090"),
        ({"device_name": "../../<b>"}, "b"),
        ({"device_name": "!"}, "unnamed"),
        ({"device_name": "x" * 500}, "x" * 80),
        (
            {"device": "cpu", "device_name": "Intel(R) Xeon(R) CPU @ 2.20GHz", "cpu_count": 2},
            "intel-xeon-cpu-2-20ghz-2-cores",
        ),
        ({"device": "cpu", "device_name": "ARM", "cpu_count": 1}, "arm-1-core"),
    ],
)
def test_a_device_has_a_name_for_files(changes: dict[str, Any], slug: str) -> None:
    assert device_slug(environment(**changes)) == slug


def test_the_hash_of_a_script_does_not_depend_on_line_ends(tmp_path: Path) -> None:
    unix, windows, other = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    unix.write_bytes(b"a = 1\nb = 2\n")
    windows.write_bytes(b"a = 1\r\nb = 2\r\n")
    other.write_bytes(b"a = 1\nb = 3\n")
    assert source_sha256(unix) == source_sha256(windows) != source_sha256(other)


def test_the_hash_of_a_script_is_that_of_its_program_not_of_its_prose(tmp_path: Path) -> None:
    one, mended, other = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    one.write_text(
        '"""An old title.\n\n# Text\n"""\n\n# An old sentence.\ntext = """\n# kept\n\n"""\nprint(1)  # One\n'
    )
    mended.write_text(
        'r"""\nA title.\n"""\n# A sentence.\n#\n# %%\n# Another.\n\ntext = """\n# kept\n\n"""\nprint(1)  # One\n'
    )
    assert source_sha256(one) == source_sha256(mended)
    for old, new in (
        ("# kept", "# left"),
        ("print(1)", "print(2)"),
        ("kept\n\n", "kept\n"),
    ):
        other.write_text(mended.read_text().replace(old, new, 1))
        assert source_sha256(other) != source_sha256(one), old


def test_one_script_is_recorded_again_alone() -> None:
    old = recording()
    again = recording(
        scripts={SCRIPT: RecordedScript(environment=environment(torch="2.13.0"), source_sha256=SHA256)},
        results={SCRIPT: {}},
    )
    merged = old.merged_with(again)
    assert merged.scripts[SCRIPT].environment.torch == "2.13.0"
    assert merged.results[SCRIPT] == {}
    assert merged.only(["plot_02_other"]) == old.only(["plot_02_other"])
    assert merged.only(["plot_02_other"]).scripts.keys() == {"plot_02_other"}
    assert old == recording(), "the old recording has changed"


def said(old: Recording, new: Recording) -> list[str]:
    return [str(difference) for difference in differences(old, new)]


def test_differences_name_times_counts_versions_and_what_is_new() -> None:
    old, new = recording(), recording()
    results = copy.copy(new.results)
    slower = measurement("eager", (3e-4, 3e-4, 3e-4), kernel_count=3.0)
    results["plot_02_other"] = {"one": slower, "fresh": measurement("eager")}
    log = RecompileLog(compilations=(), recompile_limit=8)
    results[SCRIPT] = dict(results[SCRIPT], log=log)
    scripts = dict(new.scripts)
    other = environment(torch="2.13.0", world_size=4)
    scripts["plot_02_other"] = RecordedScript(environment=other, source_sha256="f" * 64)
    new = msgspec.structs.replace(new, results=results, scripts=scripts)
    lines = said(old, new)
    assert "plot_02_other: the script has changed" in lines
    assert "plot_02_other: torch 2.12.0 -> 2.13.0" in lines
    assert "plot_02_other: world_size 2 -> 4" in lines
    assert "plot_02_other.copy: gone" in lines
    assert "plot_02_other.fresh: new" in lines
    assert "plot_02_other.one: kernel_count 2.0 -> 3.0" in lines
    assert f"{SCRIPT}.log: n_compiles 0 -> 0" not in lines
    assert f"{SCRIPT}.log: limit_hit True -> False" in lines
    same = f"{SCRIPT}.comparison[compiled]: wall time 90.0 µs -> 90.0 µs, 1.00x faster (within noise)"
    assert same in lines
    assert f"{SCRIPT}: gone" in said(old, new.only(["plot_02_other"]))
    assert f"{SCRIPT}: new" in said(new.only(["plot_02_other"]), old)


def test_a_difference_is_told_from_noise() -> None:
    def one(*wall_s: float) -> Recording:
        return recording(results={SCRIPT: {}, "plot_02_other": {"one": measurement("eager", wall_s)}})

    steady, noisy = [1.00e-3 + i * 1e-6 for i in range(20)], [1e-3 + i * 1e-4 for i in range(20)]
    (wall,) = [line for line in said(one(*steady), one(*[1.12 * t for t in steady])) if "wall" in line]
    assert "1.12x slower [1.1" in wall
    (wall,) = [line for line in said(one(*noisy), one(*[1.03 * t for t in noisy])) if "wall" in line]
    assert wall.endswith("1.03x slower (within noise)")


def test_rows_that_come_and_go_are_named() -> None:
    def compared(*names: str) -> Recording:
        result: Result = compare_measurements([measurement(name) for name in names], baseline=names[0])
        return recording(results={SCRIPT: {"c": result}, "plot_02_other": {}})

    lines = said(compared("eager", "old"), compared("eager", "new"))
    assert f"{SCRIPT}.c[new]: now measured" in lines
    assert f"{SCRIPT}.c[old]: no longer measured" in lines


def test_the_stored_recordings_can_be_read_by_this_version() -> None:
    stored = load_recordings(Path(__file__).parents[1] / "docs" / "recordings")
    machines = [script.environment for each in stored for script in each.scripts.values()]
    assert machines
    assert all((machine.world_size > 1) <= (machine.backend is not None) for machine in machines)
