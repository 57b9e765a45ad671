"""The recipes by name, and what each consists of."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from optimbench.errors import InvalidArgumentError

Implementation = Literal["forloop", "foreach", "fused", "compiled"]


class Recipe(NamedTuple):
    """What a recipe consists of.

    Attributes:
        implementation: Which of torch's implementations computes the update.
        is_flat: Whether the parameters of a group are views of one tensor, which is updated as a whole.
        in_graph: Whether the update is captured in a CUDA graph and replayed.
        summary: One sentence for readers.
    """

    implementation: Implementation
    is_flat: bool
    in_graph: bool
    summary: str


_GRAPH = "captured in a CUDA graph and replayed; gradients have to stay where they are"
_FLAT = "on flat buffers, where the parameters of a group are views of one tensor"

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "forloop": Recipe("forloop", False, False, "one parameter after the other, some kernels for each."),
        "foreach": Recipe("foreach", False, False, "each operation on all parameters at once; the default on CUDA."),
        "fused": Recipe("fused", False, False, "the whole update in one hand-written kernel."),
        "fused_cudagraph": Recipe("fused", False, True, f"fused, {_GRAPH}."),
        "compiled": Recipe("compiled", False, False, "under torch.compile, with the learning rate as a tensor."),
        "compiled_cudagraph": Recipe("compiled", False, True, f"compiled, {_GRAPH}."),
        "flat_fused": Recipe("fused", True, False, f"fused, {_FLAT}."),
        "flat_compiled": Recipe("compiled", True, False, f"compiled, {_FLAT}."),
        "flat_compiled_cudagraph": Recipe("compiled", True, True, f"compiled, {_FLAT}; {_GRAPH}."),
    }
)


def recipe_named(name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        InvalidArgumentError: There is none.
    """
    if not isinstance(name, str) or name not in RECIPES:  # type: ignore[redundant-expr]
        raise InvalidArgumentError(f"recipe is {name!r} (expected one of {', '.join(RECIPES)})")
    return RECIPES[name]
