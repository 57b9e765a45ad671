"""What a recording holds."""

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from optimbench.environment import Environment
from optimbench.results import Result

FORMAT_VERSION = 1
_MAX_SLUG = 80


class RecordedScript(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one script.

    Attributes:
        environment: The machine, the versions, the commit and the date of this run.
        source_sha256: SHA-256 of the script's program as it was run: its text without empty lines, lines of comments
            and the docstring at its top.

    Example:
        >>> import hashlib
        >>> import optimbench as ob
        >>> program = "print(1)"
        >>> run = ob.RecordedScript(
        ...     environment=ob.collect_environment(), source_sha256=hashlib.sha256(program.encode()).hexdigest()
        ... )
        >>> len(run.source_sha256)
        64
    """

    environment: Environment
    source_sha256: str


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The results of scripts on one device; each script has its own environment, so it can be recorded again alone.

    Attributes:
        format_version: Version of the file's layout.
        device: The device's name in lower case, as `device_slug` makes it; also the file's name.
        scripts: How each script was run, by the script's name without ending.
        results: Results by the script's name and the variable's.

    Example:
        >>> import optimbench as ob
        >>> table = ob.Table(name="Rates", columns=("step", "lr"), cells=((1, 0.1), (2, 0.09)))
        >>> run = ob.RecordedScript(environment=ob.collect_environment(), source_sha256=64 * "0")
        >>> recording = ob.Recording(device="my-gpu", scripts={"plot_01": run}, results={"plot_01": {"rates": table}})
        >>> recording.result("plot_01", "rates").cells[0]
        (1, 0.1)
    """

    device: str
    scripts: dict[str, RecordedScript]
    results: dict[str, dict[str, Result]]
    format_version: int = FORMAT_VERSION

    @property
    def label(self) -> str:
        """The device's name as the newest of its runs says it; a CPU's with the number of its processors."""
        newest = max(self.scripts.values(), key=lambda script: script.environment.date, default=None)
        if newest is None:
            return self.device
        machine = newest.environment
        return f"{machine.device_name} ({_cores(machine)})" if machine.device == "cpu" else machine.device_name

    def result(self, script: str, variable: str) -> Result | None:
        """One result, or None where it was not recorded.

        Args:
            script: The script's name without ending.
            variable: The name of the variable that held the result.
        """
        return self.results.get(script, {}).get(variable)

    def only(self, scripts: Iterable[str]) -> "Recording":
        """The part of this recording that is about these scripts.

        Args:
            scripts: Their names without ending; unknown ones are passed over.
        """
        kept = [name for name in scripts if name in self.scripts]
        return msgspec.structs.replace(
            self,
            scripts={name: self.scripts[name] for name in kept},
            results={name: self.results[name] for name in kept},
        )

    def merged_with(self, newer: "Recording") -> "Recording":
        """This recording, with the scripts of another one of the same device in place of its own.

        Args:
            newer: Its scripts replace those of the same name.
        """
        changes: dict[str, Any] = {
            "device": newer.device,
            "scripts": self.scripts | newer.scripts,
            "results": self.results | newer.results,
        }
        return msgspec.structs.replace(self, **changes)


def device_slug(environment: Environment) -> str:
    """The device's name for files and addresses: "NVIDIA H200" is "nvidia-h200".

    A CPU's name also says how many processors could be used: that changes the numbers as much as the model does.
    """
    name = environment.device_name
    if environment.device == "cpu":
        name = f"{name} {_cores(environment)}"
    # "(R)" and "(TM)" are no part of a name.
    plain = re.sub(r"\((?:r|tm|c)\)", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_MAX_SLUG].strip("-") or "unnamed"


def _cores(environment: Environment) -> str:
    return f"{environment.cpu_count} core{'' if environment.cpu_count == 1 else 's'}"


def source_sha256(script: Path) -> str:
    """SHA-256 of a script's program, whatever its line ends are: a sentence that is mended leaves it as it was.

    Left out are empty lines, lines with nothing but a comment, and the docstring at the top.
    """
    text = script.read_text(encoding="utf-8").replace("\r\n", "\n")
    tree = ast.parse(text)
    first = tree.body[0] if ast.get_docstring(tree, clean=False) is not None else None
    prose = set(range(first.lineno, (first.end_lineno or first.lineno) + 1)) if first else set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL) and not token.line[: token.start[1]].strip():
            prose.add(token.start[0])
    program = [line for number, line in enumerate(text.split("\n"), 1) if number not in prose]
    return hashlib.sha256("\n".join(program).encode()).hexdigest()
