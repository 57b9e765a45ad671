"""The kernels' own time, from torch's profiler."""

import os
from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

# Tells Kineto, torch's profiler, to detach when it ends.
_TEARDOWN = "TEARDOWN_CUPTI"


def kernel_times(step: Callable[[], object], calls: int) -> tuple[float, float]:
    """Seconds that kernels, copies and memory sets ran on the device for each call, and their number.

    From `torch.profiler` (CUPTI): the sum over the activities of a device, so gaps between them do not count.
    """
    # Without the CPU's operators: there are many more of them than kernels, and reading them can take seconds.
    # acc_events only keeps torch from warning that it could clear events which are never cleared here.
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiled:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    ran = [
        event for event in profiled.events() if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    ]
    return sum(event.self_device_time_total for event in ran) / 1e6 / calls, len(ran) / calls


def detach_profiler() -> None:
    """Detach CUPTI from a process that has profiled CUDA, so that launches take no longer than before.

    CUPTI stays attached when a profile has ended, and every later launch takes longer: on an H200 a replay that took
    5 us took 7 to 12. Detaching and attaching again in quick succession is not safe, so this comes after a series of
    profiles, not after each (https://github.com/pytorch/pytorch/issues/144455, pytorch/kineto pull request 1554).
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    before = os.environ.get(_TEARDOWN)
    os.environ[_TEARDOWN] = "1"
    try:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True):
            torch.cuda.synchronize()
        # It detaches as the next call of CUDA returns.
        torch.cuda.synchronize()
    finally:
        del os.environ[_TEARDOWN]
        if before is not None:
            os.environ[_TEARDOWN] = before
