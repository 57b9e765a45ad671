r"""
Reading the recompile log
=========================

What PyTorch logs while it compiles an optimizer's step, with the learning rate as a float and as a tensor.

**You will see**

* which words turn on which log, and how much each of them says about the same few steps;
* one recompile record taken apart, piece by piece;
* what was fused, and the generated kernel: a learning rate in it as a number is why a new one needs new code.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# A step that is compiled again
# -----------------------------
# One weight, :class:`~torch.optim.SGD` with momentum, since its kernel is short enough to print, and a scheduler that
# changes the learning rate after every step. ``foreach=True`` is the default on a GPU, and we ask for it on any device.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
STEPS = 2 if "OPTIMBENCH_QUICK" in os.environ else 3  # The tests take fewer.

# %%
# Turning the logs on
# -------------------
# :func:`torch._logging.set_logs` takes a keyword for each log. From outside, the environment variable ``TORCH_LOGS``
# takes the same words for a program that knows nothing of logs, and wins over ``set_logs``:
#
# .. code-block:: text
#
#    TORCH_LOGS=recompiles,graph_breaks,fusion,output_code python train.py
#
# The records go to the standard error stream, where we collect them. What belongs to one run alone (date, time, process
# id, folders) is left out of all records on this page: they are cleaned, not raw. The compiler's caches are off: code
# that comes out of a cache is not fused again, so nothing would be logged of it.
import contextlib
import io
import re
from collections import namedtuple

from torch._inductor import config as inductor_config

assert "TORCH_LOGS" not in os.environ, "set_logs does nothing where TORCH_LOGS is set"
ANSWERS = {
    "recompiles": "why was it compiled again?",
    "graph_breaks": "where did the compiler leave the graph?",
    "fusion": "which operations share a kernel?",
    "output_code": "what code was generated?",
}
PREFIX = re.compile(
    r"[A-Z]\d{4} [\d:.]+ \d+ (?P<logged_by>\S+)\] "
    r"(?:\[(?P<compile>\d+/\w+)\] )?(?:\[__(?P<word>\w+)\] ?)?(?P<text>.*)"
)
FOLDERS = re.compile(r"[\w.@/-]*-packages/|(?<![\w.:/])/[^\s'\"]*?(?=[\w-]+\.py\b)")
Line = namedtuple("Line", "logged_by compile word text")


def log_of(lr):
    (weight,) = ob.make_parameters([(16, 16)], device=device)
    opt = torch.optim.SGD([weight], lr=lr, momentum=0.9, foreach=True)
    opt.step()  # Creates the momentum, whose absence would be one more reason.
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)

    @torch.compile
    def compiled_step():
        opt.step()

    torch.compiler.reset()
    with (
        contextlib.redirect_stderr(io.StringIO()) as raw,
        inductor_config.patch(force_disable_caches=True),
    ):
        torch._logging.set_logs(**dict.fromkeys(ANSWERS, True))
        for _ in range(STEPS):
            compiled_step()
            sched.step()
    torch._logging.set_logs()  # Back to the defaults.
    matches = map(PREFIX.fullmatch, FOLDERS.sub("", raw.getvalue()).splitlines())
    return [Line(*match.groups("")) for match in matches if match]


def show(lines, word, keep=""):
    for line in lines:
        if line.word == word and re.match(keep, line.text):
            print(f"[{line.compile}] {re.sub(r' {3,}#', '  #', line.text)}"[:150])


float_log = log_of(0.01)
words = [line.word for line in float_log]
log_words = ob.Table(
    name=f"What each word logs of the same {STEPS} steps, learning rate a float",
    columns=("word", "lines", "what it answers"),
    cells=tuple((word, words.count(word), answer) for word, answer in ANSWERS.items()),
)
log_words

# %%
# Recompiles, piece by piece
# --------------------------
# The first line of a record names the function, the others the *guards* that failed, conditions that the code relies
# on, and where. There is one for each earlier compile of the frame, the newest first: none of them fits the new value.
show(float_log, "recompiles", keep=r"Recompiling| +triggered| +- ")

# %%
# We take the first record apart.
headline, _, first = [line for line in float_log if line.word == "recompiles"][:3]
failed, _, condition = first.text.strip(" -").partition(": ")
guard, _, source = condition.partition("#")
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
        (guard.strip(), "the guard: true when that was compiled, false now"),
        (source.strip(), "the source that made the compiler rely on it"),
    ),
)
record_pieces

# %%
# Frames are numbered in the order in which they are met. Our function and the wrapper that PyTorch puts around every
# ``step`` come first. The graph breaks in both, so the arithmetic is in a frame of its own.
show(float_log, "graph_breaks", keep="Graph break in|Call to|Attempted")

# %%
# Fusion, and the generated kernel
# --------------------------------
# The step is a handful of operations: the buffer times 0.9, plus the gradient, times the learning rate, from the
# weight. The log says which share a kernel. We show the first compile, without the long lists of candidates.
compiled_first = float_log[words.index("fusion")].compile
lines = [line for line in float_log if line.compile == compiled_first]
show(lines, "fusion", keep="=====|fusing|completed|cannot")

# %%
# ``output_code`` logs a whole Python module. The kernel is a string in it: Triton on a GPU, C++ on a CPU. This is the
# one of the first compile.
KERNEL = re.compile(r"(?:extern \"C\"|@triton\.jit).*?(?=\s*''')", re.DOTALL)


def kernels_in(lines):
    code = [line.text for line in lines if line.word == "output_code"]
    return KERNEL.findall("\n".join(code))


float_kernels = kernels_in(float_log)
print(float_kernels[0])

# %%
# Weight, buffer and gradient are loaded once, weight and buffer stored once, and nothing between them is written to
# memory. The learning rate is in there as a number. That is what the guard is for: with another rate this code is
# wrong. As a tensor the learning rate is one more pointer, and the kernel loads it. The same steps need one kernel.
tensor_log = log_of(torch.tensor(0.01, device=device))
tensor_kernels = kernels_in(tensor_log)
print(tensor_kernels[0])
assert "0.01" in float_kernels[0]
assert "0.01" not in tensor_kernels[0]
assert not any(line.word == "recompiles" for line in tensor_log)
print(f"in {STEPS} steps: float {len(float_kernels)}, tensor {len(tensor_kernels)}")

# %%
# What this does not show
# -----------------------
# * There are more words; ``TORCH_LOGS=help`` lists them.
# * A kernel that is generated once may still be slow; the pages that measure say so.
# * Logs of long runs are long. Turn on ``recompiles`` first: where it is silent and something was compiled, nothing was
#   compiled twice.
