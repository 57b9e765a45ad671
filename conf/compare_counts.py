"""Say which counts differ between two builds of the site on the same machine: everything but what was measured.

    python conf/compare_counts.py build/html/results.json build/html-reversed/results.json

Counts must not depend on the order in which the tutorials are executed. Times do change from run to run, and so does
what follows from them. In a table, a row with a number that has a fraction counts as measured.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from optimbench import Comparison, Measurement, OptimBenchError, RecompileLog, Recording, Result, Table, load_recording

_FRACTION = re.compile(r"\d\.\d")


def different_counts(one: Recording, other: Recording) -> Iterator[str]:
    """Say for each script, or result that both have, what differs."""
    for script in sorted(one.results.keys() | other.results.keys()):
        if script not in one.results or script not in other.results:
            yield f"{script}: only in one of the two"
            continue
        for name in sorted(one.results[script].keys() | other.results[script].keys()):
            pair = [each.results[script].get(name) for each in (one, other)]
            counted = [_counts(result) for result in pair]
            if counted[0] != counted[1]:
                yield f"{script}.{name}: {counted[0]} and {counted[1]}"


def _counts(result: Result | None) -> Any:
    if isinstance(result, RecompileLog):
        untimed = [msgspec.structs.replace(each, duration_s=None) for each in result.compilations]
        return msgspec.structs.replace(result, compilations=tuple(untimed))
    if isinstance(result, Comparison):
        return [_counts(row) for row in result.rows]
    if isinstance(result, Measurement):
        kernels = None if result.kernel_count is None else round(result.kernel_count)
        return result.name, result.device, result.num_threads, kernels
    if isinstance(result, Table):
        return result.columns, [None if _is_measured(row) else row for row in result.cells]
    return type(result).__name__


def _is_measured(row: Sequence[object]) -> bool:
    return any(isinstance(cell, float) or (isinstance(cell, str) and _FRACTION.search(cell)) for cell in row)


def main(words: Sequence[str] | None = None) -> int:
    """Run, and give the exit status: 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    options = parser.parse_args(words)
    try:
        one, other = load_recording(options.one), load_recording(options.other)
    except OptimBenchError as error:
        print(f"not compared: {error}", file=sys.stderr)
        return 2
    found = list(different_counts(one, other))
    print(
        "\n".join([*found, f"{len(found)} counts differ in {len(one.results.keys() & other.results.keys())} scripts"])
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
