"""Notice gradients and parameters that left the memory which a step works on."""

import itertools
import weakref
from collections.abc import Sequence

import torch

from optimbench.errors import RecipeError, StaleGradientError

# Each call looks at one parameter, and at one more for every so many elements. Looking at one takes about half a
# microsecond of a host whose replay of a small graph takes five; a GPU of 2024 updates so many elements in fifteen.
_ELEMENTS_A_LOOK = 2**21


class GradientWatch:
    """Notices gradients that moved or vanished, at a cost that is small beside the update's.

    A gradient which is replaced or set to None is freed, unless something else refers to it; a weak reference tells
    that at once. In every call some parameters are looked at, in turn, so that a single one whose old gradient
    somebody keeps, or that moved, is found within a few calls where the parameters are large, and within as many calls
    as there are parameters where they are small. All of them moving is found at once.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        freed: list[object] = []
        self._freed = freed
        # The references must not refer to this object: a cycle would keep gradients alive until it is collected.
        self._references = [weakref.ref(p.grad, freed.append) for p in parameters if p.grad is not None]
        # An id stands for its gradient as long as that one has not been freed.
        self._seen = [(parameter, id(parameter.grad), parameter.data_ptr()) for parameter in parameters]
        looks = 1 + sum(parameter.numel() for parameter in parameters) // _ELEMENTS_A_LOOK
        self._chunks = itertools.cycle([self._seen[i : i + looks] for i in range(0, len(self._seen), looks)])

    def __call__(self) -> None:
        """Look at the next parameters, and whether any gradient was freed.

        Raises:
            StaleGradientError: A gradient is not where it was; the message names the parameter.
            RecipeError: A parameter is not where it was.
        """
        if self._freed:
            self._look_at(self._seen)
        for parameter, gradient, address in next(self._chunks):
            if id(parameter.grad) != gradient or parameter.data_ptr() != address:
                self._look_at(self._seen)

    def _look_at(self, seen: Sequence[tuple[torch.Tensor, int, int]]) -> None:
        for index, (parameter, gradient, address) in enumerate(seen):
            if parameter.data_ptr() != address:
                raise moved_parameter(index, parameter)
            if id(parameter.grad) != gradient:
                if gradient == id(None):
                    raise new_gradient(index, parameter)
                raise stale_gradient(index, parameter)
        # A gradient was freed, and a new one was made at the same address.
        raise stale_gradient(None, None)


def stale_gradient(index: int | None, parameter: torch.Tensor | None) -> StaleGradientError:
    """The error for a gradient that is not where the step reads it."""
    if parameter is None:
        what = "a gradient was replaced by another tensor"
    elif parameter.grad is None:
        what = f"the gradient of parameter {index}, of shape {tuple(parameter.shape)}, is None"
    else:
        what = f"the gradient of parameter {index}, of shape {tuple(parameter.shape)}, is another tensor"
    return StaleGradientError(
        f"{what}, but the step reads gradients where they were at its first call: clear them with step.zero_grad() or"
        " optimizer.zero_grad(set_to_none=False), or use a recipe without a CUDA graph or flat buffers"
    )


def new_gradient(index: int, parameter: torch.Tensor) -> StaleGradientError:
    """The error for a gradient that was not there when the step was prepared."""
    return StaleGradientError(
        f"parameter {index}, of shape {tuple(parameter.shape)}, had no gradient at the step's first call and has one"
        " now, which the step does not read: close the step and build it again"
    )


def moved_parameter(index: int, parameter: torch.Tensor) -> RecipeError:
    """The error for a parameter that is not where the step writes it."""
    return RecipeError(
        f"parameter {index}, of shape {tuple(parameter.shape)}, moved to other memory after the step was built, for"
        " example by .to() or .half(), so the step would not update it: close the step and build it again"
    )
