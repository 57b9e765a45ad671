"""The command line: `python -m optimbench recommend`, `compare`, `diff` and `env`."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from optimbench.errors import InvalidArgumentError, OptimBenchError

if TYPE_CHECKING:
    from optimbench.recommendation import Progress

# Characters of the progress bar.
_BAR_WIDTH = 24
# Optimizers of torch that a workload can be tried with as they are: they take dense parameters of any shape and step
# without a closure.
_OPTIMIZERS = ["Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
# And those that `compare` can be given too: LBFGS gets a closure, SparseAdam sparse gradients.
_UNUSUAL = ["Adafactor", "LBFGS", "Muon", "SparseAdam"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["diff"]:  # Without the parser of the others, which names recipes and so needs torch.
        return _diff(words[1:])
    parsed = _parser().parse_args(words)
    try:
        return {"env": _env, "recommend": _recommend, "compare": _compare}[parsed.command](parsed)
    except OptimBenchError as error:
        print(f"optimbench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\noptimbench: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    from optimbench.recipes import RECIPES
    from optimbench.workloads import WORKLOADS

    parser = argparse.ArgumentParser(prog="python -m optimbench", description="Measure optimizer steps.")
    commands = parser.add_subparsers(dest="command", required=True)
    env = commands.add_parser("env", help="describe this machine as results do")
    choose = commands.add_parser("recommend", help="measure all recipes on a workload and say which to use")
    chosen = commands.add_parser("compare", help="measure chosen recipes against the optimizer's own step")
    commands.add_parser("diff", help="compare two recordings of a device")
    for command, optimizers in ((choose, _OPTIMIZERS), (chosen, sorted(_OPTIMIZERS + _UNUSUAL))):
        command.add_argument("--workload", choices=list(WORKLOADS), default="ten_layers")
        command.add_argument("--optimizer", choices=optimizers, default="Adam", help="with torch's default settings")
        command.add_argument("--device", help='for example "cuda" or "cpu"; by default CUDA if it can be used')
        command.add_argument("--scale", type=float, default=1.0, help="smaller tensors, not fewer (default: 1)")
        command.add_argument("--min-run-time", type=float, default=2.0, metavar="SECONDS", help="for each recipe")
    choose.add_argument(
        "--gradients-move", action="store_true", help="leave out CUDA graphs, for loops that replace gradients"
    )
    chosen.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=list(RECIPES), metavar="RECIPE")
    chosen.add_argument("--settings", default="{}", metavar="JSON", help="of the optimizer, as a JSON object")
    chosen.add_argument("--tensors", type=int, metavar="N", help="only the first tensors of the workload")
    chosen.add_argument("--threads", type=int, metavar="N", help="CPU threads; by default as many as torch uses")
    chosen.add_argument(
        "--check", action=argparse.BooleanOptionalAction, default=True, help="time a recipe only if it does the same"
    )
    # From run_all_isolated: an open file whose lock says whose turn it is.
    chosen.add_argument("--turn", type=int, help=argparse.SUPPRESS)
    for command in (env, choose, chosen):
        command.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _env(parsed: argparse.Namespace) -> int:
    from optimbench.environment import collect_environment

    _show(collect_environment(), as_json=parsed.json)
    return 0


def _recommend(parsed: argparse.Namespace) -> int:
    from optimbench._chosen_recipes import make_optimizer
    from optimbench.recommendation import recommend

    found = recommend(
        make_optimizer(parsed.optimizer, parsed.workload, parsed.device, parsed.scale),
        gradients_move=parsed.gradients_move,
        min_run_time_s=parsed.min_run_time,
        progress=_draw,
    )
    _show(found, as_json=parsed.json)
    return 0


def _compare(parsed: argparse.Namespace) -> int:
    import torch

    from optimbench._chosen_recipes import compare_recipes, make_optimizer
    from optimbench.isolation import turn

    try:
        settings = msgspec.json.decode(parsed.settings, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidArgumentError(f"settings is {parsed.settings!r} (expected a JSON object): {error}") from error
    for option, number in (("tensors", parsed.tensors), ("threads", parsed.threads)):
        if number is not None and number < 1:
            raise InvalidArgumentError(f"{option} is {number} (expected at least 1)")
    if parsed.threads is not None:
        torch.set_num_threads(parsed.threads)
    optimizer = make_optimizer(
        parsed.optimizer, parsed.workload, parsed.device, parsed.scale, parsed.tensors, **settings
    )
    found = compare_recipes(
        optimizer,
        parsed.recipes,
        has_check=parsed.check,
        min_run_time_s=parsed.min_run_time,
        turn=None if parsed.turn is None else turn(parsed.turn),
    )
    _show(found, as_json=parsed.json)
    if parsed.turn is not None:
        # Others wait for this process to end, and Python takes a second to take torch apart.
        sys.stdout.flush()
        os._exit(0)
    return 0


def _diff(words: Sequence[str]) -> int:
    from optimbench.recordings import HOST_THRESHOLD, THRESHOLD, find_regressions

    parser = argparse.ArgumentParser(
        prog="python -m optimbench diff",
        description="Compare two recordings of a device: times, counts and versions.",
        epilog="Exit status: 0, 1 if a time is slower beyond its threshold, 2 if anything else is wrong.",
    )
    parser.add_argument("old", help="a recording, or a folder of them: then the one of the new one's device")
    parser.add_argument("new", help="a recording")
    for option, default, what in (
        ("--threshold", THRESHOLD, "of kernels, of copies, and on a CPU every time"),
        ("--host-threshold", HOST_THRESHOLD, "wall and host times on a GPU, which wander with the host"),
    ):
        words_of_help = f"how many times slower is too slow: {what} (default: {default:g})"
        parser.add_argument(option, type=float, default=default, metavar="FACTOR", help=words_of_help)
    parsed = parser.parse_args(words)
    if not parsed.old:  # Of a variable that is not set; as a path it would be the current folder.
        parser.error("the old recording's name is empty")
    try:
        found = find_regressions(
            parsed.old, parsed.new, threshold=parsed.threshold, host_threshold=parsed.host_threshold
        )
    except OptimBenchError as error:
        print(f"optimbench: {error}", file=sys.stderr)
        return 2
    if found is None:
        print(f"{parsed.old} holds no recording of this device: nothing to compare with")
        return 0
    try:
        print(found, flush=True)
    except OSError as error:  # A full disk, or a pipe that nobody reads; status 1 would say that something is slower.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Else Python fails once more when it ends.
        print(f"optimbench: the differences cannot be written: {error}", file=sys.stderr)
        return 2
    return 1 if found.slower else 0


def _show(result: object, *, as_json: bool) -> None:
    print(msgspec.json.format(msgspec.json.encode(result)).decode() if as_json else result)


def _draw(progress: "Progress") -> None:
    """One line on stderr, drawn over where that is a terminal."""
    filled = _BAR_WIDTH * progress.done // progress.total
    line = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {progress.done}/{progress.total} {progress.doing}"
    if sys.stderr.isatty():
        ending = "\n" if progress.done == progress.total else ""
        print(f"\r\x1b[K{line}", end=ending, file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
