"""The command line: `python -m optimbench recommend` and `python -m optimbench env`."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from optimbench.errors import OptimBenchError

if TYPE_CHECKING:
    from optimbench.recommendation import Progress

# Characters of the progress bar.
_BAR_WIDTH = 24
# Optimizers of torch that a workload can be tried with as they are: they take dense parameters of any shape and step
# without a closure.
_OPTIMIZERS = ["Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        return _env(parsed) if parsed.command == "env" else _recommend(parsed)
    except OptimBenchError as error:
        print(f"optimbench: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    from optimbench.workloads import WORKLOADS

    parser = argparse.ArgumentParser(prog="python -m optimbench", description="Measure optimizer steps.")
    commands = parser.add_subparsers(dest="command", required=True)
    env = commands.add_parser("env", help="describe this machine as results do")
    choose = commands.add_parser("recommend", help="measure all recipes on a workload and say which to use")
    choose.add_argument("--workload", choices=list(WORKLOADS), default="ten_layers")
    choose.add_argument("--optimizer", choices=_OPTIMIZERS, default="Adam", help="with torch's default settings")
    choose.add_argument("--device", help='for example "cuda" or "cpu"; by default CUDA if it can be used')
    choose.add_argument("--scale", type=float, default=1.0, help="make the tensors smaller, not fewer (default: 1)")
    choose.add_argument(
        "--gradients-move", action="store_true", help="leave out CUDA graphs, for loops that replace gradients"
    )
    choose.add_argument("--min-run-time", type=float, default=2.0, metavar="SECONDS", help="for each recipe")
    for command in (env, choose):
        command.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _env(parsed: argparse.Namespace) -> int:
    from optimbench.environment import collect_environment

    _show(collect_environment(), as_json=parsed.json)
    return 0


def _recommend(parsed: argparse.Namespace) -> int:
    import torch

    from optimbench.devices import pick_device
    from optimbench.recommendation import recommend
    from optimbench.workloads import make_parameters

    device = torch.device(parsed.device) if parsed.device else pick_device().device
    parameters = make_parameters(parsed.workload, device=device, scale=parsed.scale)
    optimizer = getattr(torch.optim, parsed.optimizer)(parameters)
    found = recommend(
        optimizer,
        gradients_move=parsed.gradients_move,
        min_run_time_s=parsed.min_run_time,
        progress=_draw,
    )
    _show(found, as_json=parsed.json)
    return 0


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
