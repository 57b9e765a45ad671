"""An update captured in a CUDA graph. Nothing else in the package needs a GPU to run."""

from collections.abc import Callable

import torch

# Calls on a side stream before the capture: the first compiles and creates state, the second can compile again since
# the state exists by then (SGD with momentum), the third shows that nothing changes any more.
WARM_UP_CALLS = 3


class CapturedUpdate:
    """Runs an update as it is for the first calls, then captures it, then replays it.

    Every call takes exactly one step, the first ones too: capturing runs nothing, so the call that captures replays.
    """

    def __init__(self, update: Callable[[], object], device: torch.device) -> None:
        self._update = update
        self._device = device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0

    def __call__(self) -> None:
        graph = self._graph
        if graph is not None:
            graph.replay()
        elif self._calls < WARM_UP_CALLS:
            self._run_on_side_stream()
            self._calls += 1
        else:
            self._graph = self._capture()
            self._graph.replay()

    def reset(self) -> None:
        """Forget the graph, because constants in it changed; the next calls warm up and capture again."""
        self._graph = None
        self._calls = 0

    def _run_on_side_stream(self) -> None:
        # A capture cannot run on the default stream, and what is first used there would be set up differently:
        # https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
        with torch.cuda.device(self._device):
            current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(current)
            with torch.cuda.stream(side):
                self._update()
            current.wait_stream(side)

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as a data loader's that pins memory, may use CUDA meanwhile.
        with torch.cuda.device(self._device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._update()
        return graph
