r"""
Reading the recompile log
=========================

What PyTorch logs while it compiles an optimizer's step, with the learning rate as a float and as a tensor.

**You will see**

* which words turn on which log, and how much each of them says about the same few steps;
* one recompile record taken apart, piece by piece;
* what was fused, and the whole kernel that was generated;
* the learning rate inside that kernel as a number, which is why a new one needs new code.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# A step that is compiled again
# -----------------------------
# One weight, :class:`~torch.optim.SGD` with momentum, and a scheduler that changes the learning rate after every step.
# We take SGD because its kernel is short enough to print. ``foreach=True`` is the default on a GPU, and we ask for it
# so that the page shows the same on a CPU. The first step is eager: it creates the momentum buffer, whose absence would
# be one more reason to compile again.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")

# The automated tests of this page set OPTIMBENCH_QUICK.
STEPS = 2 if "OPTIMBENCH_QUICK" in os.environ else 3


def make_step(lr):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.rand(16, 16, device=device))
    weight.grad = torch.rand(16, 16, device=device)
    opt = torch.optim.SGD([weight], lr=lr, momentum=0.9, foreach=True)
    opt.step()
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)

    @torch.compile
    def compiled_step():
        opt.step()

    def step():
        compiled_step()
        sched.step()

    return step


# %%
# Turning the logs on
# -------------------
# :func:`torch._logging.set_logs` takes a keyword for each log. The records go to the standard error stream, where we
# collect them. We turn the compiler's caches off for these steps: code that comes out of a cache is not fused again,
# so nothing would be logged of it.
import contextlib
import io

from torch._inductor import config as inductor_config

assert "TORCH_LOGS" not in os.environ, "set_logs does nothing where TORCH_LOGS is set"
ANSWERS = {
    "recompiles": "why was it compiled again?",
    "graph_breaks": "where did the compiler leave the graph?",
    "fusion": "which operations share a kernel?",
    "output_code": "what code was generated?",
}


def log_of(step):
    torch._dynamo.reset()
    stream = io.StringIO()
    with (
        contextlib.redirect_stderr(stream),
        inductor_config.patch(force_disable_caches=True),
    ):
        torch._logging.set_logs(**dict.fromkeys(ANSWERS, True))
        for _ in range(STEPS):
            step()
    torch._logging.set_logs()  # Back to the defaults.
    return stream.getvalue()


# %%
# Every line starts with where it comes from. A pattern names the pieces. What belongs to one run alone (date, time,
# process id, folders) is left out of all records on this page: they are cleaned, not raw.
import re
from collections import namedtuple

PREFIX = re.compile(
    r"[A-Z]\d{4} [\d:.]+ \d+ (?P<logged_by>\S+)\] "
    r"(?:\[(?P<compile>\d+/\w+)\] )?(?:\[__(?P<word>\w+)\] ?)?(?P<text>.*)"
)
FOLDERS = re.compile(r"(?<![\w.:/])/[^\s'\"]*?(?:-packages/|(?=[\w-]+\.py\b))")
Line = namedtuple("Line", "logged_by compile word text")


def cleaned(raw_log):
    matches = map(PREFIX.fullmatch, FOLDERS.sub("", raw_log).splitlines())
    return [Line(*match.groups("")) for match in matches if match]


def show(lines, word, keep=""):
    for line in lines:
        if line.word == word and re.match(keep, line.text):
            text = re.sub(r" {3,}#", "  #", line.text)
            print(f"[{line.compile}] {text}"[:150])


float_log = cleaned(log_of(make_step(0.01)))
words = [line.word for line in float_log]

log_words = ob.Table(
    name=f"What each word logs of the same {STEPS} steps, learning rate a float",
    columns=("word", "lines", "what it answers"),
    cells=tuple((word, words.count(word), answer) for word, answer in ANSWERS.items()),
)
log_words

# %%
# From outside, the environment variable ``TORCH_LOGS`` takes the same words, separated by commas, and wins over
# ``set_logs``. Here a second Python runs a program that knows nothing of logs.
import subprocess
import sys

PROGRAM = """
import torch
weight = torch.nn.Parameter(torch.rand(4, 4))
weight.grad = torch.rand(4, 4)
opt = torch.optim.SGD([weight], lr=0.01, foreach=True)
compiled_step = torch.compile(opt.step, backend="aot_eager")
for lr in (0.01, 0.009):
    opt.param_groups[0]["lr"] = lr
    compiled_step()
"""
ended = subprocess.run(
    [sys.executable, "-c", PROGRAM],
    env={**os.environ, "TORCH_LOGS": "recompiles"},
    capture_output=True,
    text=True,
    check=True,
)
variable_log = cleaned(ended.stderr)
show(variable_log, "recompiles")

# %%
# Recompiles, piece by piece
# --------------------------
# Now the recompiles of our own step. The first line of a record names the function, the others the *guards* that
# failed: conditions that were true when the code was compiled, and that it relies on.
show(float_log, "recompiles")

# %%
# We take the first record apart.
GUARD = re.compile(r"\s*- (\d+/\d+): (.*?)(?:\s+# (.*))?")


def guards_in(lines):
    found = (GUARD.fullmatch(line.text) for line in lines if line.word == "recompiles")
    return [match.groups() for match in found if match]


headline = float_log[words.index("recompiles")]
failed, guard, source = guards_in(float_log)[0]

record_pieces = ob.Table(
    name="One recompile record",
    columns=("piece", "what it is"),
    cells=(
        ("V, date, time, process", "V: level debug; the rest is left out on this page"),
        (headline.logged_by, "the line of PyTorch that wrote the record"),
        (f"[{headline.compile}]", "number of the frame / number of this compile of it"),
        (f"[__{headline.word}]", "the word that turned the record on"),
        (headline.text, "the function, and the file and line where it starts"),
        (f"{failed}:", "the earlier compile whose guard failed"),
        (guard, "the guard: true when that was compiled, false now"),
        (source, "the source that made the compiler rely on it"),
    ),
)
record_pieces

# %%
# A record has one such line for each earlier compile of the frame, the newest first: none of them fits the new value.
# The variable and ``set_logs`` lead to the same guard.
assert guard in [text for _, text, _ in guards_in(variable_log)]
print(guard)

# %%
# Frames are numbered in the order in which they are met. Our function and the wrapper that PyTorch puts around every
# ``step`` come first. The graph breaks in both, so the arithmetic is in a frame of its own.
show(float_log, "graph_breaks", keep="Graph break in|Call to|Attempted")

# %%
# :func:`optimbench.capture_recompiles` takes the same recompiles from PyTorch's metrics, counts them and puts the
# guards into words. Reading the log needs no package, and also works on a program one cannot change.
with ob.capture_recompiles() as capture:
    watched = capture.watch(make_step(0.01))
    for _ in range(STEPS):
        watched()

sgd_float_log = capture.log
n_logged = sum(line.text.startswith("Recompiling function") for line in float_log)
assert sgd_float_log.n_recompiles == n_logged == STEPS - 1
sgd_float_log

# %%
# Fusion
# ------
# The step is a handful of operations: the buffer times 0.9, plus the gradient, times the learning rate, from the
# weight. This log says which of them share a kernel. We show the first compile, without the long lists of candidates.
first_compile = float_log[words.index("fusion")].compile
show(
    [line for line in float_log if line.compile == first_compile],
    "fusion",
    keep="=====|fusing|completed|cannot",
)

# %%
# The generated kernel
# --------------------
# ``output_code`` logs a whole Python module. The kernel is a string in it: Triton on a GPU, C++ on a CPU. This is the
# one of the first compile.
KERNEL = re.compile(r"(?:extern \"C\"|@triton\.jit).*?(?=\s*''')", re.DOTALL)


def kernels_in(lines):
    code = "\n".join(line.text for line in lines if line.word == "output_code")
    return KERNEL.findall(code)


float_kernels = kernels_in(float_log)
print(float_kernels[0])

# %%
# Weight, buffer and gradient are loaded once, weight and buffer stored once, and nothing between them is written to
# memory. The learning rate is in there as a number. That is what the guard is for: with another rate this code is
# wrong.
assert "0.01" in float_kernels[0]

# %%
# As a tensor the learning rate is one more pointer, and the kernel loads it. The same steps need one kernel.
tensor_log = cleaned(log_of(make_step(torch.tensor(0.01, device=device))))
tensor_kernels = kernels_in(tensor_log)
print(tensor_kernels[0])

# %%
assert "0.01" not in tensor_kernels[0]
assert not any(line.word == "recompiles" for line in tensor_log)
print(
    f"kernels generated in {STEPS} steps:"
    f" float {len(float_kernels)}, tensor {len(tensor_kernels)}"
)

# %%
# What this does not show
# -----------------------
# * There are more words; ``TORCH_LOGS=help`` lists them.
# * A kernel that is generated once may still be slow; the pages that measure say so.
# * Logs of long runs are long. Turn on ``recompiles`` first: where it is silent and something was compiled, nothing was
#   compiled twice.
