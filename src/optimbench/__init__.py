"""Measure one step of a PyTorch optimizer: wall, host and kernel time apart, and every recompile in words.

Names are imported when first used, so that `import optimbench` takes milliseconds and needs no torch.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from optimbench.devices import PickedDevice as PickedDevice
    from optimbench.devices import pick_device as pick_device
    from optimbench.devices import require_cuda as require_cuda
    from optimbench.distributed import compare_ranks as compare_ranks
    from optimbench.environment import Environment as Environment
    from optimbench.environment import collect_environment as collect_environment
    from optimbench.errors import CaptureError as CaptureError
    from optimbench.errors import CompilerNotFoundError as CompilerNotFoundError
    from optimbench.errors import DeviceError as DeviceError
    from optimbench.errors import InvalidArgumentError as InvalidArgumentError
    from optimbench.errors import NoGradientError as NoGradientError
    from optimbench.errors import OptimBenchError as OptimBenchError
    from optimbench.errors import RankError as RankError
    from optimbench.errors import RecipeError as RecipeError
    from optimbench.errors import RecordingError as RecordingError
    from optimbench.errors import StaleGradientError as StaleGradientError
    from optimbench.isolation import run_all_isolated as run_all_isolated
    from optimbench.isolation import run_isolated as run_isolated
    from optimbench.launching import RanksDone as RanksDone
    from optimbench.launching import run_ranks as run_ranks
    from optimbench.limits import bytes_per_step as bytes_per_step
    from optimbench.limits import cache_note as cache_note
    from optimbench.limits import copy_bandwidth as copy_bandwidth
    from optimbench.limits import floor_s as floor_s
    from optimbench.operations import Operations as Operations
    from optimbench.operations import count_operations as count_operations
    from optimbench.recipes import Sameness as Sameness
    from optimbench.recipes import Step as Step
    from optimbench.recipes import build_step as build_step
    from optimbench.recipes import check_sameness as check_sameness
    from optimbench.recipes import copy_optimizer as copy_optimizer
    from optimbench.recipes import possible_recipes as possible_recipes
    from optimbench.recipes import why_not as why_not
    from optimbench.recommendation import Progress as Progress
    from optimbench.recommendation import recommend as recommend
    from optimbench.recompiles import Capture as Capture
    from optimbench.recompiles import capture_recompiles as capture_recompiles
    from optimbench.recompiles import log_compiles as log_compiles
    from optimbench.recordings import RecordedScript as RecordedScript
    from optimbench.recordings import Recording as Recording
    from optimbench.recordings import load_recording as load_recording
    from optimbench.recordings import save_recording as save_recording
    from optimbench.results import Bandwidth as Bandwidth
    from optimbench.results import Comparison as Comparison
    from optimbench.results import Compilation as Compilation
    from optimbench.results import FirstCalls as FirstCalls
    from optimbench.results import GraphBreak as GraphBreak
    from optimbench.results import Measurement as Measurement
    from optimbench.results import NotMeasured as NotMeasured
    from optimbench.results import Ratio as Ratio
    from optimbench.results import Recommendation as Recommendation
    from optimbench.results import RecompileLog as RecompileLog
    from optimbench.results import Result as Result
    from optimbench.results import Speedup as Speedup
    from optimbench.results import Table as Table
    from optimbench.timing import compare as compare
    from optimbench.timing import measure as measure
    from optimbench.workloads import Workload as Workload
    from optimbench.workloads import make_parameters as make_parameters

_MODULE_OF = {
    **dict.fromkeys(["PickedDevice", "pick_device", "require_cuda"], "devices"),
    **dict.fromkeys(["Environment", "collect_environment"], "environment"),
    **dict.fromkeys(
        [
            "CaptureError",
            "CompilerNotFoundError",
            "DeviceError",
            "InvalidArgumentError",
            "NoGradientError",
            "OptimBenchError",
            "RankError",
            "RecipeError",
            "RecordingError",
            "StaleGradientError",
        ],
        "errors",
    ),
    **dict.fromkeys(["compare_ranks"], "distributed"),
    **dict.fromkeys(["RanksDone", "run_ranks"], "launching"),
    **dict.fromkeys(["run_all_isolated", "run_isolated"], "isolation"),
    **dict.fromkeys(["Capture", "capture_recompiles", "log_compiles"], "recompiles"),
    **dict.fromkeys(["RecordedScript", "Recording", "load_recording", "save_recording"], "recordings"),
    **dict.fromkeys(
        [
            "Bandwidth",
            "Comparison",
            "Compilation",
            "FirstCalls",
            "GraphBreak",
            "Measurement",
            "NotMeasured",
            "Ratio",
            "RecompileLog",
            "Recommendation",
            "Result",
            "Speedup",
            "Table",
        ],
        "results",
    ),
    **dict.fromkeys(
        ["Sameness", "Step", "build_step", "check_sameness", "copy_optimizer", "possible_recipes", "why_not"], "recipes"
    ),
    **dict.fromkeys(["bytes_per_step", "cache_note", "copy_bandwidth", "floor_s"], "limits"),
    **dict.fromkeys(["Operations", "count_operations"], "operations"),
    **dict.fromkeys(["Workload", "make_parameters"], "workloads"),
    **dict.fromkeys(["Progress", "recommend"], "recommendation"),
    **dict.fromkeys(["compare", "measure"], "timing"),
}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - sorted() gives a list.


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'optimbench' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"optimbench.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
