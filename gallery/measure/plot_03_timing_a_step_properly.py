r"""
Timing a step properly
======================

The same optimizer steps timed carelessly and timed properly, each careless number beside the right one.

**You will see**

* what :class:`torch.utils.benchmark.Timer` does for you, and what it leaves to you;
* eight ways to a number that misleads, and how far off each is on this machine, if at all: not all do on each.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler. ``optimbench`` is a wheel served by the site this page comes
from (see *Install* there).
"""

# %%
# On a GPU ten square tensors, so wide that kernels take longer than Python needs to launch them; on a CPU two.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ  # The tests of this page take two tiny ones.
layers, width = (10, 2048) if device.type == "cuda" else (2, 1024)
layers, width = (2, 64) if quick else (layers, width)


def make_adam(width=width, lr=0.01, **options):
    parameters = ob.make_parameters([(width, width)] * layers, device=device)
    return torch.optim.Adam(parameters, lr=lr, **options)


# %%
# 1. No warm-up
# -------------
# A clock, ten calls, a division: the obvious way. But the first call of a compiled step runs the compiler, here with
# an empty cache, and the first call of any step makes its state.
import time

from torch._inductor.utils import fresh_cache

eager = make_adam()
compiled_step = torch.compile(make_adam().step)


def mean_of_ten_ms(step, *, waits=True):
    start = time.perf_counter()
    for _ in range(10):
        step()
    if waits and device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / 10 * 1e3


with fresh_cache():
    first_ms = mean_of_ten_ms(compiled_step)
pairs = [("no warm-up", "ms a compiled call", first_ms, mean_of_ten_ms(compiled_step))]

# %%
# 2. No synchronisation
# ---------------------
# On a GPU a call returns when its work is *queued*. A clock read then has timed the queueing. A CPU has no queue.
mean_of_ten_ms(eager.step)  # Makes its state.
if device.type == "cuda":
    done_ms = mean_of_ten_ms(eager.step)
    queued_ms = mean_of_ten_ms(eager.step, waits=False)
    torch.cuda.synchronize()
    pairs.append(("no synchronisation", "ms a call", queued_ms, done_ms))

# %%
# 3 to 5. One block, the mean, one thread
# ---------------------------------------
# :class:`torch.utils.benchmark.Timer` waits for the device at both ends of a block of calls, and makes two calls or
# more before it starts its clock. How many blocks there are it leaves to you. ``timeit`` times one, and one block has
# no spread: its interquartile range (IQR) is zero whatever happened. ``blocked_autorange`` stops after a fifth of a
# second; where it chose a large block, that can be one too. Both compute on one CPU thread unless told otherwise, which
# on a GPU changes little: Python launches from one thread anyway. And something always interrupts. We do it ourselves:
# one call sleeps. The mean of ten blocks carries that, the median not.
import itertools
import statistics

import numpy as np
from torch.utils import benchmark

auto = benchmark.Timer("step()", globals={"step": eager.step}).blocked_autorange()
print(f"{len(auto.times)} blocks of {auto.number_per_run}, {auto.num_threads} thread")
threads = torch.get_num_threads()


def block_of(step, num_threads=threads):
    timer = benchmark.Timer("step()", globals={"step": step}, num_threads=num_threads)
    return timer.timeit(3)


def disturbed(disturbance):
    calls = itertools.count()
    return lambda: (eager.step(), disturbance(next(calls)))


one_block = block_of(eager.step)
# The fifteenth call is the last of the third block: two calls before the clock, three after.
interrupted = disturbed(lambda call: time.sleep(30 * one_block.mean * (call == 14)))
blocks_s = [block_of(interrupted).mean for _ in range(10)]
one_thread_s = statistics.median(block_of(eager.step, 1).mean for _ in range(10))
mean_s, median_s = statistics.mean(blocks_s), statistics.median(blocks_s)
iqr_s = np.subtract(*np.percentile(blocks_s, [75, 25]))
pairs += [
    ("one block", "its IQR, ms", one_block.iqr * 1e3, iqr_s * 1e3),
    ("the mean", "ms a call", mean_s * 1e3, median_s * 1e3),
    ("one thread", f"ms a call; all: {threads}", one_thread_s * 1e3, median_s * 1e3),
]

# %%
# 6. One after the other
# ----------------------
# Machines slow down when they get warm. This step does it to order: after fifty calls it does its work twice. We time
# it against itself: ten blocks and then ten, and once more with the blocks taken in turn.
twice = [disturbed(lambda call: call >= 50 and eager.step()) for _ in range(2)]
first, then = ([block_of(twice[0]).mean for _ in range(10)] for _ in range(2))
in_turn = [block_of(twice[1]).mean / block_of(twice[1]).mean for _ in range(10)]
ratios = statistics.median(first) / statistics.median(then), statistics.median(in_turn)
pairs.append(("one after the other", "a step / itself", *ratios))

# %%
# 7. Another baseline than you think
# ----------------------------------
# A compiled step wants a tensor as its learning rate. Give the eager one the same, and Adam drops without a word to its
# loop over single tensors. That is a CPU's default anyway; on a GPU it launches many more kernels, and compiling looks
# good against it. We take a sixteenth of the parameters, so that launches count, and all must give the same ones.
small = width // 4
opts = {"eager": make_adam(small), "compiled": make_adam(small)}
opts["eager, tensor lr"] = make_adam(small, lr=torch.tensor(0.01))
steps = {name: opt.step for name, opt in opts.items()}
steps["compiled"] = torch.compile(steps["compiled"])
for name, opt in opts.items():
    mean_of_ten_ms(steps[name])
    found, wanted = (each.param_groups[0]["params"] for each in (opt, opts["eager"]))
    torch.testing.assert_close(found, wanted)

# %%
# :func:`optimbench.compare` does what all of this asks for: warm-up, waiting, all threads, many blocks, in turn and in
# random order, medians, an interval. One step is in it twice, to see what it says of a step and itself.
steps["eager again"] = steps["eager"]
comparison = ob.compare(steps, baseline="eager", min_run_time_s=0.1 if quick else 1.0)
comparison

# %%
# "No clear difference" is right for the same step; by chance about one such comparison in a hundred says otherwise.
print(comparison.conclusion("eager again"))
names = ("eager, tensor lr", "eager")
times_ms = (comparison.row(name).median_s * 1e3 for name in names)
pairs.append(("tensor lr in the baseline", "ms an eager call", *times_ms))

# %%
# 8. A warmer cache than in training
# ----------------------------------
# A step that is called again at once finds its numbers in the cache, if they fit; after a backward pass they may be
# gone. ``cold_cache=True`` writes over the cache before every call. On a GPU it reads the time between two events on
# the device, so there we set it beside the kernels' time. Adam with ``fused=True`` passes over the numbers once.
step = make_adam(small, fused=True).step
_warm = ob.measure(step, name="warm", min_run_time_s=0.3)
_cold = ob.measure(step, name="cold", min_run_time_s=0.3, cold_cache=True)
warm_s = _warm.kernel_time_s or _warm.median_s
pairs.append(("a warm cache", "ms a fused call", warm_s * 1e3, _cold.median_s * 1e3))

wrong_numbers = ob.Table(
    name="The same question, asked carelessly and carefully",
    columns=("pitfall", "number", "careless", "careful"),
    cells=tuple(pairs),
)
wrong_numbers

# %%
# What this does not show
# -----------------------
# * Whether the time goes into Python or into kernels: that is the next page.
# * How numbers vary from day to day: a result belongs to its machine and its date.
