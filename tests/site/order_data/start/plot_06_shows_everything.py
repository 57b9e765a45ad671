"""
Shows everything
================

That another page may have left. It compiles with Inductor, too.
"""

import logging
import os
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

print("dynamo:", torch._dynamo.config.recompile_limit, dict(torch._dynamo.utils.counters["stats"]))
print("inductor:", torch._inductor.config.max_fusion_size)
print("torch:", torch.get_default_dtype(), torch.get_num_threads() > 1 or os.cpu_count() == 1)
print("deterministic:", torch.are_deterministic_algorithms_enabled(), "step:", torch.optim.SGD.step is None)
print("drawn:", f"{torch.rand(()).item():.6f} {np.random.rand():.6f}")
print("figures:", plt.get_fignums(), plt.rcParams["lines.linewidth"])
print("level:", logging.getLogger().level, "warnings:", len(warnings.filters))
print("left:", os.environ.get("OPTIMBENCH_LEFT"), "/nowhere" in sys.path, Path.cwd().name)


@torch.compile(dynamic=False)
def total(x):
    return x.sum()


# %%
# The same again.
for length in (2, 3, 4):
    total(torch.ones(length))
print("graphs:", torch._dynamo.utils.counters["stats"]["unique_graphs"])
