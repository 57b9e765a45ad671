r"""
What else recompiles a step
===========================

Six things other than the learning rate that make a compiled optimizer step compile again, each with its remedy.

**You will see**

* how often each of them recompiles the step, and PyTorch's reason in words;
* the same steps with the remedy, compiled once;
* that each remedy computes what the original would have, or how it differs;
* two obvious remedies that do not help.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# How we look
# -----------
# A few small parameters, a few steps, and before each step something that may change. We count with the backend
# ``"aot_eager"``, which compiles for the same values as Inductor and generates no code; the page on schedulers checks
# that they count the same. ``foreach=True`` is the default on a GPU and asked for here on any device.
import copy
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
# The automated tests of this page set OPTIMBENCH_QUICK.
CALLS = 3 if "OPTIMBENCH_QUICK" in os.environ else 4


def make_parameters(n=2):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.rand(4, 4, device=device)) for _ in range(n)]
    for parameter in parameters:
        parameter.grad = torch.rand(4, 4, device=device)
    return parameters


def make_adam(**options):
    return torch.optim.Adam(make_parameters(), lr=0.01, foreach=True, **options)


def log_of(step, change=lambda _: None):
    """Compile a step and take it some times, each time after a change."""
    with ob.capture_recompiles() as capture:
        watched = capture.watch(torch.compile(step, backend="aot_eager"))
        for call in range(CALLS):
            change(call)
            watched()
    return capture.log


rows = []


def add_row(change, log, remedy, remedied):
    """Check that there was something to remedy, and that it was remedied; then add both counts to the table."""
    assert log.n_recompiles > 0, f"{change} does not recompile the step here"
    assert remedied.n_compiles > 0, "nothing was compiled, so nothing was remedied"
    assert remedied.n_recompiles == 0, f"{remedy}: recompiled all the same"
    reasons = [why for compilation in log.compilations for why in compilation.reasons]
    rows.append((change, log.n_recompiles, reasons[0], remedy, remedied.n_recompiles))


def parameters_of(opt):
    return opt.param_groups[0]["params"]


# %%
# Gradients that are None
# -----------------------
# A parameter without a gradient is skipped. Where another part of the model is used in every step, the set of
# parameters that have one changes, and the code with it. Here the gradients of three parameters are missing in turn.
def taking_turns(opt, missing):
    gradients = [parameter.grad for parameter in parameters_of(opt)]

    def change(call):
        for index, parameter in enumerate(parameters_of(opt)):
            absent = index == call % len(gradients)
            parameter.grad = missing(gradients[index]) if absent else gradients[index]

    return change


def adam_of_three():
    opt = torch.optim.Adam(make_parameters(3), lr=0.01, foreach=True)
    opt.step()  # Creates the state of all three.
    return opt


with_none, with_zeros = adam_of_three(), adam_of_three()
gradients_log = log_of(with_none.step, taking_turns(with_none, lambda _: None))
gradients_log

# %%
# A set that was there before fits the compile made for it, but each new one is compiled. The remedy is zeros instead of
# ``None``, as ``zero_grad(set_to_none=False)`` leaves them. It is not quite the same computation: Adam moves a
# parameter whose gradient is zero by its momentum, and decays it where there is weight decay.
_remedied = log_of(with_zeros.step, taking_turns(with_zeros, torch.zeros_like))
add_row("gradients None in turn", gradients_log, "zeros instead of None", _remedied)

difference = max(
    (a - b).abs().max().item()
    for a, b in zip(parameters_of(with_none), parameters_of(with_zeros), strict=True)
)
print(f"parameters differ by up to {difference:.1e} after {CALLS} steps")


# %%
# A checkpoint that is loaded
# ---------------------------
# :meth:`~torch.optim.Optimizer.load_state_dict` puts new tensors into the optimizer's state, and compiled code belongs
# to the tensors it was compiled with. When training resumes this costs nothing: load before the first compiled step.
# Where a run goes back to a checkpoint, copy the values into the tensors that are there.
def copy_state(opt, state_dict):
    """Load a state without replacing its tensors. Options such as the learning rate are left alone."""
    own = opt.state_dict()["state"]
    for index, loaded in state_dict["state"].items():
        for name, tensor in loaded.items():
            own[index][name].copy_(tensor)


def going_back(opt, load):
    opt.step()
    checkpoint = copy.deepcopy(opt.state_dict())
    return lambda call: load(opt, checkpoint) if call == 2 else None


loaded, copied = make_adam(), make_adam()
_log = log_of(loaded.step, going_back(loaded, torch.optim.Adam.load_state_dict))
_remedied = log_of(copied.step, going_back(copied, copy_state))
add_row("load_state_dict", _log, "copy into the state's tensors", _remedied)
torch.testing.assert_close(parameters_of(loaded), parameters_of(copied))

# %%
# A param group that is added
# ---------------------------
# As when a layer is unfrozen. Give the optimizer all groups from the start, and those that wait a learning rate of
# zero, as a tensor, so that it may change later. Their gradients must exist, if only as zeros, and their moments and
# step count run from the start.
first, second = make_parameters()
growing = torch.optim.Adam([first], lr=0.01, foreach=True)


def add_group(call):
    if call == 2:
        growing.add_param_group({"params": [second]})


_log = log_of(growing.step, add_group)

first, waiting = make_parameters()
groups = [
    {"params": [first], "lr": torch.tensor(0.01, device=device)},
    {"params": [waiting], "lr": torch.tensor(0.0, device=device)},
]
complete = torch.optim.Adam(groups, capturable=device.type == "cuda")
before = waiting.detach().clone()


def unfreeze(call):
    if call == 2:
        assert torch.equal(waiting, before)
        complete.param_groups[1]["lr"].fill_(0.01)


_remedied = log_of(complete.step, unfreeze)
assert not torch.equal(waiting, before)
add_row("add_param_group", _log, "all groups from the start", _remedied)


# %%
# A weight decay that changes
# ---------------------------
# A Python float like the learning rate, so one compile for each value.
def make_adamw(**options):
    return torch.optim.AdamW(make_parameters(), lr=0.01, foreach=True, **options)


def decay(call):
    return 0.1 * 0.5**call


def change_decay(call):
    decayed.param_groups[0]["weight_decay"] = decay(call)


decayed = make_adamw()
_log = log_of(decayed.step, change_decay)

# %%
# A tensor is no remedy here: Adam asks whether the weight decay is zero, the answer depends on data, and the graph
# breaks. The step does not recompile, but its arithmetic is not compiled either.
tensor_decay = make_adamw(weight_decay=torch.tensor(0.1, device=device))
weight_decay_log = log_of(tensor_decay.step)
assert any("branching" in found.reason for found in weight_decay_log.graph_breaks)
weight_decay_log

# %%
# AdamW's decay is a factor on the parameter before the update. We write that line ourselves, with a tensor, and leave
# AdamW's own at zero.
undecayed = make_adamw(weight_decay=0.0)
factor = torch.tensor(1.0, device=device)


def decay_and_step():
    with torch.no_grad():
        for parameter in parameters_of(undecayed):
            parameter.mul_(factor)
    undecayed.step()


_remedied = log_of(decay_and_step, lambda call: factor.fill_(1 - 0.01 * decay(call)))
add_row("weight_decay", _log, "decay by a tensor, outside AdamW", _remedied)
torch.testing.assert_close(parameters_of(decayed), parameters_of(undecayed))


# %%
# Another optimizer
# -----------------
# Compiled code belongs to one optimizer: its parameters are part of it. A sweep that makes one optimizer after the
# other compiles ``Adam.step`` once for each, and they share its limit, also where each has a function of its own.
def sweep(before_each=lambda: None):
    with ob.capture_recompiles() as capture:
        for opt in [make_adam() for _ in range(CALLS)]:
            before_each()
            compiled_step = torch.compile(opt.step, backend="aot_eager")
            compiled_step()
            compiled_step()
    return capture.log


_log = sweep()
_remedied = sweep(before_each=torch.compiler.reset)
add_row("a new optimizer", _log, "torch.compiler.reset() before it", _remedied)


# %%
# Every optimizer is still compiled, but anew: the limit counts from zero. Where several are used in turn, as in an
# adversarial training, do not reset. Each is compiled once, and ``torch._dynamo.config.recompile_limit`` must be at
# least their number.
#
# A number in the state
# ---------------------
# An optimizer of one's own often counts its steps in Python. We count with a float, an integer and a tensor. An integer
# that changes becomes an input of the code; this float does not.
class DecayingSGD(torch.optim.Optimizer):
    def __init__(self, params, lr, zero):
        super().__init__(params, {"lr": lr})
        for parameter in parameters_of(self):
            self.state[parameter]["step"] = zero

    @torch.no_grad()
    def step(self):
        for parameter in parameters_of(self):
            state = self.state[parameter]
            state["step"] = state["step"] + 1
            parameter.sub_(parameter.grad * (self.defaults["lr"] / state["step"]))


zeros = (0.0, 0, torch.tensor(0.0, device=device))
own = [DecayingSGD(make_parameters(), lr=0.1, zero=zero) for zero in zeros]
_float_log, _int_log, _remedied = [log_of(opt.step) for opt in own]
add_row("a float step count", _float_log, "a tensor step count", _remedied)
print(f"recompiles with an integer: {_int_log.n_recompiles}")
torch.testing.assert_close(parameters_of(own[0]), parameters_of(own[2]))

# %%
# All of them
# -----------
remedies = ob.Table(
    name=f"Recompiles in {CALLS} steps, backend aot_eager",
    columns=("what changes", "recompiles", "first reason", "remedy", "recompiles then"),
    cells=tuple(rows),
)
remedies

# %%
# The rule behind all six: what is not a tensor is part of the code, and which tensors there are is part of it too. The
# remedy is to keep the objects and to change their values in place; for another optimizer it is to start over.
#
# What this does not show
# -----------------------
# A few recompiles at the start of a long run cost seconds once, and no remedy is worth much then. It is the changes
# that never end which lead to the limit, and from there to an eager step.
