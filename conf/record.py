"""Execute the tutorials and store what they measured as this machine's recording. `nox -s record` calls it."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import build_site
import readme
from optimbench import Environment, OptimBenchError, Recording, collect_environment, load_recording, save_recording
from optimbench.recordings import differences
from optimbench_site.history import extended, load_history, save_history


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="nox -s record --", description=__doc__)
    parser.add_argument("--allow-cpu", action="store_true", help="record a machine without a GPU")
    parser.add_argument("--allow-dirty", action="store_true", help="record changes that are not committed")
    parser.add_argument("--allow-throttled", action="store_true", help="record a GPU that is throttled or shared")
    build_site.add_options(parser)
    parser.add_argument("--check", action="store_true", help="only say whether this machine may be recorded now")
    parser.add_argument("--results", type=Path, help="store this results.json of an earlier build; execute nothing")
    parser.add_argument("--folder", type=Path, default=Path("docs/recordings"), help="where recordings are stored")
    return parser.parse_args(words)


def objections(machine: Environment, options: argparse.Namespace) -> Iterator[str]:
    """What speaks against recording on this machine now, with the option that allows it."""
    if "OPTIMBENCH_QUICK" in os.environ:
        yield "OPTIMBENCH_QUICK is set: tutorials would run at the size of the tests"
    if machine.device == "cpu" and not options.allow_cpu:
        yield f"this is a CPU, because {machine.device_reason} (--allow-cpu)"
    if machine.commit is None and not options.allow_dirty:
        yield "the commit is not known; OPTIMBENCH_COMMIT names it where there is no git folder (--allow-dirty)"
    if machine.commit_is_dirty and not options.allow_dirty:
        yield "the sources differ from their commit (--allow-dirty)"
    if machine.throttle_reasons and not options.allow_throttled:
        yield f"the GPU's clocks are lowered: {', '.join(machine.throttle_reasons)} (--allow-throttled)"
    if machine.other_processes and not options.allow_throttled:
        yield f"{machine.other_processes} other processes are on the GPU (--allow-throttled)"


def combine(new: Recording, path: Path, only: Sequence[str] | None) -> Recording:
    """What will be stored: all that is new, or the old recording with some scripts replaced."""
    if not only:
        return new
    unknown = set(only) - new.scripts.keys()
    if unknown:
        raise ValueError(f"no results of {', '.join(sorted(unknown))} (there are {', '.join(sorted(new.scripts))})")
    return load_recording(path).merged_with(new.only(only)) if path.exists() else new.only(only)


def scripts_to_replace(new: Recording, options: argparse.Namespace) -> list[str] | None:
    """The tutorials that were asked for, or None for all; one of a section may give no result."""
    if not options.section and not options.only:
        return None
    sections = argparse.Namespace(section=options.section, only=[])
    scripts = build_site.chosen_scripts(sections) if options.section else []
    return [*options.only, *(name for name in scripts if name in new.scripts and name not in options.only)]


def check_machine(options: argparse.Namespace) -> None:
    """Look at this machine before an hour of work.

    Raises:
        ValueError: There is something against recording on it now.
    """
    for objection in objections(collect_environment(), options):
        raise ValueError(objection)


def record(options: argparse.Namespace) -> None:
    """Check, say what has changed, and store.

    Raises:
        OptimBenchError: A recording is damaged, or holds what must not be stored.
        ValueError: There is something against recording this, or nothing to record.
    """
    new = load_recording(options.results)
    path = options.folder / f"{new.device}.json"
    only = scripts_to_replace(new, options)
    stored = combine(new, path, only)
    for name in only or new.scripts:
        for objection in objections(new.scripts[name].environment, options):
            raise ValueError(f"{name}: {objection}")
    if not stored.scripts:
        raise ValueError(f"{options.results} holds no results")
    if path.exists():
        for difference in differences(load_recording(path), stored):
            if only is None or difference.where.partition(".")[0] in only:
                print(difference)
    past = options.folder / "history" / path.name
    history = load_history(past, new.device)
    if path.exists():  # It may not be in there: recorded before there was a history, or killed between two files.
        history = extended(history, load_recording(path))
    options.folder.mkdir(parents=True, exist_ok=True)
    save_recording(stored, path)
    save_history(extended(history, stored), past)
    if path.resolve() == readme.ROOT / readme.RECORDING:  # The README shows a part of this one.
        readme.update()
    print(f"{path}: {len(only or stored.scripts)} scripts recorded on {stored.label}")


def main(words: Sequence[str] | None = None) -> int:
    """Run, and give the exit status."""
    words = sys.argv[1:] if words is None else words
    options = parse(words)
    try:
        if options.check:
            check_machine(options)
            return 0
        if options.results is None:
            told = build_site.sphinx_options(options)
            # In a process of its own: one that has looked at a GPU is on it until it ends, and would count as another.
            if status := subprocess.run([sys.executable, __file__, "--check", *words], check=False).returncode:
                return status
            # Not the site: prose may ask for values that are only now being recorded.
            target = build_site.ROOT / "build" / "record"
            build_site.build(target, ["-D", "optimbench_recording=1", *told])
            options.results = target / "results.json"
        record(options)
    except (build_site.BuildError, OptimBenchError, OSError, ValueError) as error:
        print(f"not recorded: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
