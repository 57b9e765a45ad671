"""From the bytes of a file to a recording, checked."""

import json
import re
from collections.abc import Iterator
from typing import Any, Union

import msgspec

from optimbench.environment import Environment
from optimbench.errors import RecordingError
from optimbench.recordings._checks import check_comparison, check_date, check_floors, check_values
from optimbench.recordings._recording import FORMAT_VERSION, RecordedScript, Recording, device_slug
from optimbench.results import Comparison, Result

# About eight times what all tutorials of this site record on one device.
MAX_FILE_BYTES = 8 * 2**20
_MAX_SCRIPTS = 500
_MAX_RESULTS = 100
_MAX_MESSAGE = 500

# Every type of result, the environment among them: a page may show the machine. Each has a tag of its own.
_ANY_RESULT: Any = Union[tuple(Result.__subclasses__())]  # noqa: UP007 - known only when this runs.

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>\w+)`")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# A number array as the pretty printer breaks it. No string can match: in one, a line end is written as \n.
_NUMBERS = re.compile(r"\[\n\s+(?:[-+.\deE]+,\s+)*[-+.\deE]+\n\s*\]")


def encode(recording: Recording) -> bytes:
    """The file's content: keys sorted, a line a field, numbers side by side, so that changes stay small.

    Raises:
        RecordingError: A result holds something that JSON has no type for.
    """
    try:
        packed = msgspec.json.encode(recording, order="sorted", enc_hook=_plain)
    except TypeError as error:
        raise RecordingError(str(error)) from error
    text = msgspec.json.format(packed, indent=1).decode()
    return (_NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n").encode()


def _plain(value: object) -> str | float:
    """Texts and numbers of classes of their own, such as numpy's, as plain ones."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored (expected text, int or float)")


def decode(data: bytes) -> Recording:
    """Read and check a file's content.

    Raises:
        RecordingError: The place inside the file, and what is wrong there.
    """
    try:
        return _recording(_parse(data))
    except RecordingError as error:
        # What is wrong may quote a part of the file.
        raise RecordingError(str(error)[:_MAX_MESSAGE]) from None


def _parse(data: bytes) -> Any:
    if len(data) > MAX_FILE_BYTES:
        raise RecordingError(f"more than {MAX_FILE_BYTES} bytes")
    try:
        # The standard library's parser lets NaN pass, so that the place can be named, and shows every pair, so that no
        # second value can hide behind the first. msgspec then checks the types.
        return json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise RecordingError("nested too deep") from None
    except RecordingError:
        raise
    except ValueError as error:
        raise RecordingError(f"not JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RecordingError(
            f"{len(pairs) - len(found)} names appear twice in one object, {_repeated(pairs)[:40]!a} first"
        )
    return found


def _repeated(pairs: list[tuple[str, object]]) -> str:
    seen: set[str] = set()
    return next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _recording(raw: Any) -> Recording:
    if not isinstance(raw, dict):
        raise RecordingError(f"the file: is {type(raw).__name__} (expected an object)")
    version = raw.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise RecordingError(f"format_version: is {version!r:.40} (this optimbench reads {FORMAT_VERSION})")
    check_values(raw)
    for field in ("device", "scripts", "results"):
        if field not in raw:
            raise RecordingError(f"{field}: missing")
    unknown = raw.keys() - {"device", "format_version", "results", "scripts"}
    if unknown:
        raise RecordingError(f"{min(unknown)}: unknown field")
    scripts = {
        name: _converted(value, RecordedScript, f"scripts.{name}")
        for name, value in _members(raw["scripts"], "scripts", _MAX_SCRIPTS)
    }
    results: dict[str, dict[str, Result]] = {
        script: {
            variable: _converted(value, _ANY_RESULT, f"results.{script}.{variable}")
            for variable, value in _members(variables, f"results.{script}", _MAX_RESULTS)
        }
        for script, variables in _members(raw["results"], "results", _MAX_SCRIPTS)
    }
    recording = Recording(
        device=_converted(raw["device"], str, "device"), scripts=scripts, results=results, format_version=version
    )
    _check_whole(recording)
    return recording


def _members(value: Any, where: str, most: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise RecordingError(f"{where}: is {type(value).__name__} (expected an object)")
    if len(value) > most:
        raise RecordingError(f"{where}: {len(value)} members (expected at most {most})")
    yield from value.items()


def _converted(value: Any, kind: Any, where: str) -> Any:
    """The value as the type wants it; msgspec's own place is put behind ours."""
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        found = _AT.match(str(error))
        assert found is not None  # The pattern matches every text.
        what, inner = found["what"], found["path"] or ""
        missing = _MISSING.match(what)
        if missing:
            raise RecordingError(f"{where}{inner}.{missing['field']}: missing") from None
        raise RecordingError(f"{where}{inner}: {what}") from None
    _refuse_unknown(value, msgspec.to_builtins(converted), where)
    return converted


def _refuse_unknown(given: Any, known: Any, where: str) -> None:
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in given.items():
            if name not in known:
                raise RecordingError(f"{where}.{name}: unknown field")
            _refuse_unknown(value, known[name], f"{where}.{name}")
    elif isinstance(given, list) and isinstance(known, list | tuple):
        for index, pair in enumerate(zip(given, known, strict=True)):
            _refuse_unknown(*pair, f"{where}[{index}]")


def _check_whole(recording: Recording) -> None:
    for name in recording.scripts.keys() ^ recording.results.keys():
        place, other = ("results", "scripts") if name in recording.scripts else ("scripts", "results")
        raise RecordingError(f"{place}.{name}: missing, but {other}.{name} is there")
    for name, script in recording.scripts.items():
        where = f"scripts.{name}"
        check_date(script.environment.date, f"{where}.environment.date")
        if not _SHA256.fullmatch(script.source_sha256):
            raise RecordingError(f"{where}.source_sha256: is no SHA-256 in hexadecimal digits")
        slug = device_slug(script.environment)
        if slug != recording.device:
            raise RecordingError(
                f"{where}.environment.device_name: gives the device {slug!a} (expected {recording.device!a})"
            )
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", recording.device) or len(recording.device) > 80:
        raise RecordingError(f"device: is {recording.device[:40]!a} (expected lower-case words joined by hyphens)")
    results = dict(
        found
        for script_name, variables in recording.results.items()
        for variable, result in variables.items()
        for found in _with_parts(result, f"results.{script_name}.{variable}")
    )
    for where, result in results.items():
        if isinstance(result, Environment):
            check_date(result.date, f"{where}.date")
        if isinstance(result, Comparison):
            check_comparison(result, where)
    check_floors(results)


def _with_parts(result: Result, where: str) -> Iterator[tuple[str, Result]]:
    """A result and those that it holds, each with its place."""
    yield where, result
    for field in msgspec.structs.fields(result):
        value = getattr(result, field.name)
        here = f"{where}.{field.name}"
        if isinstance(value, Result):
            yield from _with_parts(value, here)
        elif isinstance(value, tuple):
            for index, part in enumerate(value):
                if isinstance(part, Result):
                    yield from _with_parts(part, f"{here}[{index}]")
