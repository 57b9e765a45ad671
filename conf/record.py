"""Store what a build of the site measured as this machine's recording. `nox -s record` calls it before and after."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from optimbench import Environment, OptimBenchError, Recording, collect_environment, load_recording, save_recording
from optimbench.recordings import differences


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="nox -s record --", description=__doc__)
    parser.add_argument("--allow-cpu", action="store_true", help="record a machine without a GPU")
    parser.add_argument("--allow-dirty", action="store_true", help="record changes that are not committed")
    parser.add_argument("--allow-throttled", action="store_true", help="record a GPU that is throttled or shared")
    parser.add_argument("--only", action="append", metavar="SCRIPT", help="record this script; keep the rest as it is")
    parser.add_argument("--results", type=Path, help="results.json of the build; without it, only check the machine")
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
    stored = combine(new, path, options.only)
    for name in options.only or new.scripts:
        for objection in objections(new.scripts[name].environment, options):
            raise ValueError(f"{name}: {objection}")
    if not stored.scripts:
        raise ValueError(f"{options.results} holds no results")
    if path.exists():
        for difference in differences(load_recording(path), stored):
            print(difference)
    options.folder.mkdir(parents=True, exist_ok=True)
    save_recording(stored, path)
    print(f"{path}: {len(options.only or stored.scripts)} scripts recorded on {stored.label}")


def main(words: Sequence[str] | None = None) -> int:
    """Run, and give the exit status."""
    options = parse(words)
    try:
        if options.results is None:
            check_machine(options)
        else:
            record(options)
    except (OptimBenchError, ValueError) as error:
        print(f"not recorded: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
