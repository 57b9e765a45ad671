r"""
Graph breaks and fullgraph=True
===============================

What a compiled step is made of where the compiler leaves its graph, and where ``fullgraph=True`` forbids it to.

**You will see**

* that ``fullgraph=True`` on a step of PyTorch's own optimizers raises, and why it has to;
* that the arithmetic of the step is one graph all the same;
* what a ``print`` or an ``item()`` in the step does to it, depending on where it stands;
* how to make a later recompile an error.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Asking for one graph
# --------------------
# ``fullgraph=True`` promises that everything is compiled into one graph, or an exception. Older recipes name it as an
# option for the optimizer's step. We ask for it, with a function that calls ``step`` and with ``step`` itself.
import logging
import re

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")

# PyTorch warns of each graph break by ``item()``; this page tells it in words.
torch._logging.set_logs(dynamo=logging.ERROR)


def make_parameters():
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.rand(4, 4, device=device)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.rand(4, 4, device=device)
    return parameters


def make_adam(lr=0.01, **options):
    return torch.optim.Adam(make_parameters(), lr=lr, **options)


def without_folders(text):
    return re.sub(r"(?<![\w.:/])/[^\s'\"]*?(?:-packages/|(?=[\w-]+\.py\b))", "", text)


opt = make_adam(foreach=True)


def wrapped_step():
    opt.step()


for step in (wrapped_step, opt.step):
    try:
        torch.compile(step, fullgraph=True)()
    except torch._dynamo.exc.Unsupported as error:
        message = without_folders(str(error))
        print(f"{step.__name__}: {message.splitlines()[0]}")
    else:
        print(f"{step.__name__}: one graph; this release of PyTorch does not break it")

# %%
# The rest of the message says where:
print(message[message.find("from user code") : message.find("Set TORCHDYNAMO")].strip())

# %%
# Why the graph is broken
# -----------------------
# This is the code around that place. ``step`` runs with gradients switched off, and the break comes right after the
# switch: what follows is compiled on its own, as a graph that needs no backward pass. Its authors say why in a comment:
# in one graph with the switch the compiler would allocate every parameter anew instead of updating it in place.
import inspect

print(inspect.getsource(torch.optim.Adam.step.__wrapped__.__code__))


# %%
# So the break does not cut the arithmetic. The proof: we take the function inside the wrappers, switch gradients off
# ourselves, and ask for one graph of that. A backend of our own counts the operations of each graph it is given.
def count_operations(graph_module, _example_inputs):
    nodes = graph_module.graph.nodes
    operations.append(sum(node.op.startswith("call_") for node in nodes))
    return graph_module.forward


operations = []
inner_step = inspect.unwrap(torch.optim.Adam.step)
with torch.no_grad():
    torch.compile(inner_step, fullgraph=True, backend=count_operations)(opt)
print(f"graphs: {len(operations)}, operations in it: {operations[0]}")
assert len(operations) == 1

# %%
# What else breaks it, and what that costs
# ----------------------------------------
# Now steps as people write them, without ``fullgraph``. Each is taken three times eagerly and three times compiled,
# must give the same parameters, and gets a row: the graphs it was compiled into, the operations in each, the breaks
# other than the one on purpose, and whether ``fullgraph=True`` would have allowed it.
import contextlib
import io

ON_PURPOSE = "torch._dynamo.graph_break()"
rows, logs = [], {}


def with_fullgraph(step):
    try:
        torch.compile(step, fullgraph=True, backend="eager")()
    except torch._dynamo.exc.TorchDynamoException:
        return "raises"
    return "one graph"


def add_row(name, make):
    (eager_opt, eager_step), (opt, step) = make(), make()
    operations.clear()
    with contextlib.redirect_stdout(io.StringIO()):
        with ob.capture_recompiles() as capture:
            compiled_step = torch.compile(step, backend=count_operations)
            for _ in range(3):
                eager_step()
                compiled_step()
        allowed = with_fullgraph(make()[1])
    for group, eager_group in zip(
        opt.param_groups, eager_opt.param_groups, strict=True
    ):
        torch.testing.assert_close(group["params"], eager_group["params"])
    logs[name] = capture.log
    breaks = [found.reason for found in capture.log.graph_breaks]
    others = "; ".join(why for why in breaks if ON_PURPOSE not in why)
    counts = " + ".join(map(str, operations))
    rows.append((name, len(operations), counts, others or None, allowed))


# %%
# First around Adam's step: a line that prints afterwards, and a step that is skipped where the gradients are too large.
# For that ``item()`` brings a number to the host, where no graph can follow it. Scaling the gradients by a tensor needs
# no number.
def around_adam(before=lambda _: True, after=lambda: None):
    def make():
        opt = make_adam(foreach=True)
        parameters = opt.param_groups[0]["params"]

        def step():
            if before(parameters):
                opt.step()
            after()

        return opt, step

    return make


def norm_of(parameters):
    return torch.stack([p.grad.norm() for p in parameters]).norm()


def is_small(parameters):
    return norm_of(parameters).item() < 100


def scale(parameters):
    factor = torch.clamp(100 / norm_of(parameters), max=1.0)
    for parameter in parameters:
        parameter.grad.mul_(factor)
    return True


add_row("Adam", around_adam())
add_row("Adam, print() after it", around_adam(after=lambda: print("stepped")))
add_row("Adam, item() before it", around_adam(before=is_small))
add_row("Adam, a tensor instead of item()", around_adam(before=scale))


# %%
# Then inside the loop of an optimizer of one's own, where the same lines stand between the updates.
def own_sgd(update):
    class OwnSGD(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                update(parameter)

    def make():
        opt = OwnSGD(make_parameters(), {})
        return opt, opt.step

    return make


def plain(parameter):
    parameter.sub_(0.01 * parameter.grad)


def printing(parameter):
    print("updating")
    plain(parameter)


def asking(parameter):
    if parameter.grad.norm().item() < 100:
        plain(parameter)


def choosing(parameter):
    rate = torch.where(parameter.grad.norm() < 100, 0.01, 0.0)
    parameter.sub_(rate * parameter.grad)


add_row("own SGD", own_sgd(plain))
add_row("own SGD, print() in the loop", own_sgd(printing))
add_row("own SGD, item() in the loop", own_sgd(asking))
add_row("own SGD, a tensor instead of item()", own_sgd(choosing))

graphs_of_a_step = ob.Table(
    name="What a compiled step is made of",
    columns=("step", "graphs", "operations", "breaks", "fullgraph=True"),
    cells=tuple(rows),
)
graphs_of_a_step

# %%
# Reading the table
# -----------------
# Around Adam the additions cost a graph at most; the step itself stays whole. Inside a loop they take it apart: the
# loop runs eagerly, and what it calls is compiled for each tensor again. With hundreds of tensors that ends at the
# recompile limit.
#
# For an optimizer of one's own ``fullgraph=True`` is worth having: the wrapper that breaks the graph is put around
# PyTorch's own steps only.
adam_rows, own_rows = rows[:4], rows[4:]
assert len({operations.split(" + ")[-1] for _, _, operations, *_ in adam_rows}) == 1
assert [graphs for _, graphs, *_ in own_rows] == [1, 2, 4, 1]

own_print_log = logs["own SGD, print() in the loop"]
own_print_log

# %%
# Forbidding a recompile
# ----------------------
# What ``fullgraph=True`` is for graph breaks, a *stance* is for recompiles. Under ``"fail_on_recompile"`` a call that
# would compile raises instead, the first compile included, so we set it after a first step. The learning rate changes
# after every step, once as a float and once as a tensor.
for name, lr, options in (
    ("float", 0.01, {"foreach": True}),
    (
        "tensor",
        torch.tensor(0.01, device=device),
        {"capturable": device.type == "cuda"},
    ),
):
    torch.compiler.reset()
    opt = make_adam(lr, **options)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)
    compiled_step = torch.compile(wrapped_step, backend="aot_eager")
    compiled_step()
    sched.step()
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            for _ in range(3):
                compiled_step()
                sched.step()
    except RuntimeError as error:
        assert name == "float"
        print(f"{name}:", without_folders(str(error)))
    else:
        assert name == "tensor"
        print(f"{name}: three more steps without a compile")

torch._logging.set_logs()  # Back to the defaults.

# %%
# In a training loop the stance turns a silent loss into an exception with a reason, which is a good test and a harsh
# rule: for a long run, count with :func:`optimbench.capture_recompiles` over its first steps.
#
# What this does not show
# -----------------------
# More graphs are not slower by a fixed amount: each has its own guards and kernels, and what that costs is a matter of
# measuring. Distributed and compiled-autograd training have breaks of their own.
