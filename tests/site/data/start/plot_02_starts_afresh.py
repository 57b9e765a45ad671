"""
A page that starts afresh
=========================

It compiles a function of the same name and shows what it finds.
"""

import matplotlib.pyplot as plt
import torch


@torch.compile(backend="eager", dynamic=False)
def total(x):
    return x.sum()


for length in (2, 3, 4):
    total(torch.ones(length))
print("graphs:", torch._dynamo.utils.counters["stats"]["unique_graphs"])
print(f"random: {torch.rand(()).item():.6f}")
print(f"width: {plt.rcParams['lines.linewidth']}, limit: {torch._dynamo.config.recompile_limit}")

# %%
# A figure.
figure, axes = plt.subplots()
axes.plot([1, 2], [1, 2])
axes.set_title("Two points")
plt.show()
