"""The ways to take an optimizer step, and a step built from any of them.

A recipe is a name, for example "fused" or "flat_compiled_cudagraph"; `build_step` makes a step of it that a training
loop can call, `why_not` says why one cannot be used, and `check_sameness` shows that all do the same.
"""

from optimbench.recipes._copies import copy_optimizer, require_optimizer
from optimbench.recipes._names import RECIPES
from optimbench.recipes._possible import learning_rate_problems, possible_recipes, required_arguments, why_not
from optimbench.recipes._sameness import Sameness, check_sameness
from optimbench.recipes._step import Step, build_step

__all__ = [
    "RECIPES",
    "Sameness",
    "Step",
    "build_step",
    "check_sameness",
    "copy_optimizer",
    "learning_rate_problems",
    "possible_recipes",
    "require_optimizer",
    "required_arguments",
    "why_not",
]
