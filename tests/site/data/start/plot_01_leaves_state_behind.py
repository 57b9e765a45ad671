"""
A page that leaves state behind
===============================

It compiles a function, turns a log on and changes settings.

Requirements: none.
"""

# %%
# We see every recompile from here on.
import matplotlib.pyplot as plt
import torch

import optimbench

torch._logging.set_logs(recompiles=True)
torch._dynamo.config.recompile_limit = 3
plt.rcParams["lines.linewidth"] = 7.5


@torch.compile(backend="eager", dynamic=False)
def total(x):
    return x.sum()


# %%
# Every new length is a recompile.
for length in (2, 3, 4):
    total(torch.ones(length))
print("graphs:", torch._dynamo.utils.counters["stats"]["unique_graphs"])
print(f"random: {torch.rand(()).item():.6f}")
print(f"width: {plt.rcParams['lines.linewidth']}, limit: {torch._dynamo.config.recompile_limit}")

# %%
# The device, and a result.
device, reason = optimbench.pick_device()
optimbench.Table(name="Lengths & <names>", columns=("name", "length"), cells=(("<two>", 2), ("three", 3.0)))
