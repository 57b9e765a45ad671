"""Find the results of a tutorial while it runs. The tutorial itself knows nothing of this.

After each block of code the variables are searched for results that were not there before. Each is kept under the name
of its variable, and the page gets a directive that shows it beside the same result from other machines.
"""

import textwrap
from pathlib import Path
from typing import Any

import msgspec

from optimbench import Environment, RecordedScript, Recording, Result, collect_environment, save_recording
from optimbench.recordings import device_slug, source_sha256
from optimbench_site.stored import ENDING
from optimbench_site.thumbnails import write_thumbnail

# What sphinx-gallery keeps for each script while it runs; our part lies among it under this name.
_OURS = "optimbench_results"
# Where an expression at the end of a block is kept.
_LAST_VALUE = "___"


def scrape_results(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:  # noqa: ARG001
    """Called by sphinx-gallery after every block of code.

    Returns:
        The reST that shows the new results.

    Raises:
        ValueError: A variable that held a result holds another one now; both cannot have the same name.
    """
    target = Path(block_vars["target_file"]).with_suffix(ENDING)
    if _OURS not in block_vars:  # The first block of a script.
        target.unlink(missing_ok=True)
    kept: dict[str, Result] = block_vars.setdefault(_OURS, {})
    variables = block_vars["example_globals"]
    new: dict[str, Result] = {}
    for name, value in variables.items():
        # A module is not looked into, and a private name is not meant to be shown.
        if name.startswith("_") or not isinstance(value, Result) or _is_among(value, kept | new):
            continue
        if name in kept:
            raise ValueError(
                f"the variable {name!r} held another result before: give each result of a tutorial its own name,"
                " or one that starts with an underscore if it is not to be shown"
            )
        new[name] = value
    shown = [f".. recorded-result:: {name}\n" for name in new]
    last = variables.get(_LAST_VALUE)
    if isinstance(last, Result) and not _is_among(last, kept | new):
        kept[f"_{len(kept)}"] = last  # Without a name it cannot be recorded, only shown.
        shown.append(f".. raw:: html\n\n{textwrap.indent(last._repr_html_(), '    ')}\n")
    images = block_vars["image_path_iterator"]
    # Where the page's first figure would be: a later figure overwrites it, so it is seen only where there is none.
    if shown and not len(images):
        write_thumbnail([*kept.values(), *new.values()], Path(str(images.image_path).format(1)))
    if new:
        kept |= new
        named = {name: value for name, value in kept.items() if not name.startswith("_")}
        save_recording(_recording(Path(block_vars["src_file"]), named, block_vars), target)
    return "\n".join(["", *shown, ""]) if shown else ""


def _is_among(value: Result, results: dict[str, Result]) -> bool:
    return any(value is other for other in results.values())


def _recording(script: Path, results: dict[str, Any], block_vars: dict[str, Any]) -> Recording:
    machine = collect_environment()
    before: Environment | None = block_vars.get(f"{_OURS}_machine")
    if before is not None:  # What disturbed an earlier block still counts.
        reasons = dict.fromkeys([*before.throttle_reasons, *machine.throttle_reasons])
        others = [n for n in (before.other_processes, machine.other_processes) if n is not None]
        machine = msgspec.structs.replace(
            machine, throttle_reasons=tuple(reasons), other_processes=max(others, default=None)
        )
    block_vars[f"{_OURS}_machine"] = machine
    for result in results.values():  # The tutorial may have measured in several processes, each with its own view.
        if isinstance(result, Environment):
            machine = msgspec.structs.replace(machine, world_size=result.world_size, backend=result.backend)
    return Recording(
        device=device_slug(machine),
        scripts={script.stem: RecordedScript(environment=machine, source_sha256=source_sha256(script))},
        results={script.stem: results},
    )
