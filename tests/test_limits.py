"""The least bytes of a step, the copy bandwidth and the floor."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

from optimbench import _format
from optimbench.errors import InvalidArgumentError, RecipeError
from optimbench.limits import bytes_per_step, cache_note, copy_bandwidth, floor_s, uncached_bytes_per_step
from optimbench.results import Bandwidth

# torch 2.11 warns of this whatever check_invariants is.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")

N = 1000


def parameter(dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.ones(N, dtype=dtype))
    made.grad = torch.ones_like(made)
    return made


OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], int]] = {
    "SGD": (torch.optim.SGD, 12),
    "SGD with momentum": (lambda p: torch.optim.SGD(p, momentum=0.9), 20),
    "SGD with Nesterov momentum": (lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True), 20),
    "Adam": (torch.optim.Adam, 28),
    "AdamW": (torch.optim.AdamW, 28),
    "AdamW amsgrad": (lambda p: torch.optim.AdamW(p, amsgrad=True), 36),
    "NAdam": (torch.optim.NAdam, 28),
    "RAdam": (torch.optim.RAdam, 28),
    "Adamax": (torch.optim.Adamax, 28),
    "RMSprop": (torch.optim.RMSprop, 20),
    "RMSprop centered": (lambda p: torch.optim.RMSprop(p, centered=True), 28),
    "RMSprop centered with momentum": (lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9), 36),
    "Adagrad": (torch.optim.Adagrad, 20),
    "Adadelta": (torch.optim.Adadelta, 28),
    "Rprop": (torch.optim.Rprop, 28),
    "ASGD": (torch.optim.ASGD, 16),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_bytes_in_float32(name: str) -> None:
    make, bytes_each = OPTIMIZERS[name]
    optimizer = make([parameter()])
    assert bytes_per_step(optimizer) == bytes_each * N
    optimizer.step()
    assert bytes_per_step(optimizer) == bytes_each * N, "the state that exists now changes the count"


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "ASGD"])
def test_bytes_agree_with_the_state_that_torch_makes(name: str) -> None:
    # Independent of any table: parameter and each state tensor read and written, gradient read.
    weight = parameter()
    optimizer = OPTIMIZERS[name][0]([weight])
    optimizer.step()
    full_size = [value for value in optimizer.state[weight].values() if value is not None and value.numel() == N]
    assert bytes_per_step(optimizer) == (2 + 1 + 2 * len(full_size)) * 4 * N


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_bfloat16_is_half(name: str) -> None:
    make, bytes_each = OPTIMIZERS[name]
    assert bytes_per_step(make([parameter(torch.bfloat16)])) == bytes_each * N // 2


def test_groups_and_data_types_add_up_and_missing_gradients_do_not_count() -> None:
    idle = torch.nn.Parameter(torch.ones(N))
    groups: list[dict[str, Any]] = [
        {"params": [parameter(), idle]},
        {"params": [parameter(torch.float64)], "momentum": 0.9},
    ]
    assert bytes_per_step(torch.optim.SGD(groups, lr=0.1)) == 12 * N + 40 * N


def test_asgd_reads_the_average_once_it_differs_from_the_parameter() -> None:
    optimizer = torch.optim.ASGD([parameter()], t0=1)
    for _ in range(4):
        optimizer.step()
    assert bytes_per_step(optimizer) == 20 * N


def test_state_kept_in_another_type_counts_with_its_own_size() -> None:
    weight = parameter(torch.bfloat16)
    optimizer = torch.optim.Adam([weight])
    optimizer.step()
    for name in ("exp_avg", "exp_avg_sq"):
        optimizer.state[weight][name] = optimizer.state[weight][name].float()
    assert bytes_per_step(optimizer) == (3 * 2 + 4 * 4) * N


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.Muon,
        torch.optim.Adafactor,
        torch.optim.LBFGS,
        type("Mine", (torch.optim.Adam,), {}),
    ],
    ids=["Muon", "Adafactor", "LBFGS", "a subclass"],
)
def test_unknown_traffic_is_refused(make: Callable[..., Optimizer]) -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.ones(2, 2)
    with pytest.raises(RecipeError, match="the least bytes of a step are not known for"):
        bytes_per_step(make([weight]))


def test_sparse_gradients_are_refused() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 2))
    weight.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 2), (4, 2), check_invariants=True)
    with pytest.raises(RecipeError, match="sparse"):
        bytes_per_step(torch.optim.SGD([weight]))


def test_floor_is_bytes_over_bandwidth() -> None:
    bandwidth = Bandwidth(device="cpu", moved_bytes=2_000, block_times_s=(1e-6, 2e-6, 3e-6), median_s=2e-6)
    assert math.isclose(floor_s(torch.optim.Adam([parameter()]), bandwidth), 28_000 / 1e9)


def test_copy_bandwidth_counts_both_directions() -> None:
    bandwidth = copy_bandwidth("cpu", copied_bytes=1 << 22)
    assert (bandwidth.device, bandwidth.moved_bytes, len(bandwidth.block_times_s)) == ("cpu", 1 << 23, 20)
    # Between a floppy disk and any memory there is: only that the unit is right.
    assert 1e6 < bandwidth.bytes_per_s < 1e14


def test_copy_bandwidth_refuses() -> None:
    with pytest.raises(InvalidArgumentError, match="device is 'meta'"):
        copy_bandwidth("meta")
    with pytest.raises(InvalidArgumentError, match="copied_bytes is 0"):
        copy_bandwidth("cpu", copied_bytes=0)


def test_no_cache_note_without_a_gpu() -> None:
    assert cache_note(torch.optim.Adam([parameter()])) is None


def test_uncached_bytes_are_told_where_a_cache_holds_less_than_half(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = torch.optim.Adam([parameter()])  # Touches 16 bytes an element: parameter, gradient and two moments.
    assert uncached_bytes_per_step(optimizer) is None  # A CPU: torch does not tell its caches.
    for cache_bytes, expected in ((8 * N, 28 * N), (8 * N + 1, None)):
        # What the driver would say of a GPU; none is at hand.
        monkeypatch.setattr("optimbench.limits._cache_bytes", lambda _, size=cache_bytes: size)
        assert uncached_bytes_per_step(optimizer) == expected
    monkeypatch.setattr("optimbench.limits._cache_bytes", lambda _: 1)
    assert uncached_bytes_per_step(torch.optim.LBFGS([parameter()])) is None

    class Spread(torch.Tensor):
        """Stands for a tensor of which this process holds a part."""

    spread = torch.ones(N).as_subclass(Spread).requires_grad_()
    spread.grad = torch.ones(N)
    assert uncached_bytes_per_step(torch.optim.Adam([spread])) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_bandwidth_and_cache_note() -> None:
    bandwidth = copy_bandwidth("cuda")
    assert 1e10 < bandwidth.bytes_per_s < 1e14
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    for n, fits in ((1000, True), (cache_bytes // 16 + 1000, False)):
        weight = torch.nn.Parameter(torch.ones(n, device="cuda"))
        weight.grad = torch.ones_like(weight)
        note = cache_note(torch.optim.Adam([weight]))
        assert (note is not None) is fits
        # A little more than the cache is touched, so it may serve more than half of it.
        assert uncached_bytes_per_step(torch.optim.Adam([weight])) is None
        if note is not None:
            assert _format.byte_count(16 * n) in note
