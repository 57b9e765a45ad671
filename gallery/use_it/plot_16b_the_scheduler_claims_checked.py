r"""
The claims about schedulers, checked
====================================

What the second half of PyTorch's recipe says of a learning rate that changes, claim by claim, against what happens.

**You will see**

* every claim, the line of code that tests it, and the verdict;
* a claim that holds for as many steps as its example takes, and no longer.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# The claims
# ----------
# They go on from the page before. Claim 14 names what surrounds the recipe (benchmarking, logs, how
# :func:`torch.compile` works, fusion) and has nothing to test.
CLAIMS = {
    "11": "a compiled step and a scheduler go together, with a tensor",
    "12a": "with a tensor lr no guard fails",
    "12b": "with a float lr each of 5 steps recompiles, foreach=True",
    "12c": "with a float lr each of 12 steps recompiles, foreach=True",
    "12d": "with a float lr each of 5 steps recompiles, foreach=False",
    "12e": "so does what else is no tensor: a weight decay, foreach=True",
    "13a": "set_logs(recompiles=True) shows recompiles",
    "13b": "TORCH_LOGS does the same from outside",
}
judged = {}


def judge(number, condition, evidence):
    verdict = "holds" if condition else "does not hold"
    judged[number] = (number, CLAIMS[number], verdict, evidence)


# %%
# A tensor
# --------
# Five compiled steps of :class:`~torch.optim.Adam` with a tensor as the learning rate and a ``LinearLR``, in one
# function, beside five eager ones with a float. Sizes do not matter for what is compiled how often: two small tensors.
import torch
from torch.optim.lr_scheduler import LinearLR

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")


def make_adam(lr, **options):
    parameters = ob.make_parameters([(16, 16)] * 2, device=device)
    return torch.optim.Adam(parameters, lr=lr, **options)


def make_scheduled(lr, calls, **options):
    opt = make_adam(lr, **options)
    sched = LinearLR(opt, total_iters=calls)

    def step():
        opt.step()
        sched.step()

    return opt, step


on_gpu = {"capturable": True} if device.type == "cuda" else {}
opt, step = make_scheduled(torch.tensor(0.01, device=device), 5, **on_gpu)
eager_opt, eager_step = make_scheduled(0.01, 5)
lrs = []


def compare_lrs(_):
    eager_step()
    lrs.append((float(opt.param_groups[0]["lr"]), eager_opt.param_groups[0]["lr"]))


tensor_log = ob.log_compiles(step, calls=5, after_each=compare_lrs)
torch.testing.assert_close(*[o.param_groups[0]["params"] for o in (opt, eager_opt)])
for compiled, eager in lrs:
    torch.testing.assert_close(compiled, eager)

n_compiles, n_again = tensor_log.n_compiles, tensor_log.n_recompiles
judge("11", n_compiles > 0, "as eager: lr " + ", ".join(f"{lr:.4f}" for lr, _ in lrs))
judge("12a", n_compiles > 0 and n_again == 0, f"{n_compiles} compiled, {n_again} again")
tensor_log

# %%
# A float
# -------
# In both of Adam's implementations: ``foreach=True`` is the default on a GPU, the other on a CPU. The backend
# ``"aot_eager"`` compiles as often as Inductor and generates no code.
for number, calls, foreach in (("12b", 5, True), ("12c", 12, True), ("12d", 5, False)):
    _, step = make_scheduled(0.01, calls, foreach=foreach)
    _log = ob.log_compiles(step, calls=calls, backend="aot_eager")
    eager = f", eager since step {_log.eager_since_call}" if _log.limit_hit else ""
    evidence = f"recompiles in {calls} steps: {_log.n_recompiles}{eager}"
    judge(number, _log.n_recompiles == calls - 1, evidence)

# %%
# The same with a weight decay that grows after each step, and a learning rate that stays.
decayed = make_adam(0.01, foreach=True)


def grow(_):
    decayed.param_groups[0]["weight_decay"] += 0.1


_log = ob.log_compiles(decayed.step, calls=5, after_each=grow, backend="aot_eager")
judge("12e", _log.n_recompiles == 4, f"recompiles in 5 steps: {_log.n_recompiles}")

# %%
# The log
# -------
# One program twice: here after :func:`torch._logging.set_logs`, and in a second Python under ``TORCH_LOGS``. Both write
# to the standard error stream.
import contextlib
import io
import os
import subprocess
import sys

assert "TORCH_LOGS" not in os.environ, "set_logs does nothing where TORCH_LOGS is set"
PROGRAM = """
import torch
weight = torch.nn.Parameter(torch.rand(4, 4))
weight.grad = torch.rand(4, 4)
sgd = torch.optim.SGD([weight], lr=0.01, foreach=True)
compiled_step = torch.compile(sgd.step, backend="aot_eager")
for lr in (0.01, 0.009, 0.0081):
    sgd.param_groups[0]["lr"] = lr
    compiled_step()
"""
torch.compiler.reset()
with contextlib.redirect_stderr(io.StringIO()) as inside:
    torch._logging.set_logs(recompiles=True)
    exec(PROGRAM, {})
torch._logging.set_logs()  # Back to the defaults.
outside = subprocess.run(
    [sys.executable, "-c", PROGRAM],
    env={**os.environ, "TORCH_LOGS": "recompiles"},
    capture_output=True,
    text=True,
    check=True,
)
logs = (inside.getvalue(), outside.stderr)
n_inside, n_outside = (log.count("Recompiling function") for log in logs)
judge("13a", n_inside == 2, f"recompiles shown: {n_inside}")
judge("13b", n_outside == n_inside, f"recompiles shown: {n_outside}")

# %%
# All of them
# -----------
scheduler_claims = ob.Table(
    name="The claims and what became of them",
    columns=("number", "claim", "verdict", "evidence"),
    cells=tuple(judged[number] for number in CLAIMS),  # Raises if one was not judged.
)
scheduler_claims

# %%
# What this does not show
# -----------------------
# * Other schedulers and other optimizers, which have pages of their own: some recompile where Adam does not.
# * What a recompile costs: about as much as a first call, which has a page of its own.
