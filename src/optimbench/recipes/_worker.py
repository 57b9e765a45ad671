"""The optimizer that does the work of a step, and the way its state comes from the user's optimizer and back."""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from optimbench.errors import RecipeError
from optimbench.recipes._copies import adopted_state, make_worker
from optimbench.recipes._flat import FlatBuffer, lay_out
from optimbench.recipes._gradients import GradientWatch, new_gradient
from optimbench.recipes._graph import CapturedUpdate
from optimbench.recipes._hyperparameters import Hyperparameters
from optimbench.recipes._names import Recipe
from optimbench.recipes._possible import layout_problem

Backend = str | Callable[..., Any]

# Where torch defines what it wraps the steps of its optimizers in.
_WRAPPERS = ("torch.optim", "torch.utils._contextlib")


class Worker:
    """An optimizer of the user's class over the same parameters or their flat buffers, with settings of its own.

    Attributes:
        optimizer: The one that is stepped.
        hyperparameters: Carries them over from the user's optimizer.
        update: Takes the step.
        look_at_gradients: Called before each update; raises where a gradient is not where it has to be, or copies it
            there. None where gradients may be anywhere.
    """

    def __init__(self, user: torch.optim.Optimizer, recipe: Recipe, backend: Backend) -> None:
        """Set all up; flat buffers are laid out here, nothing of the user's optimizer changes otherwise.

        Raises:
            NoGradientError: No parameter has a gradient.
            RecipeError: State or gradients do not fit the recipe.
        """
        if recipe.implementation == "fused" and not recipe.is_flat and (problem := layout_problem(user)):
            raise RecipeError(problem)  # Gradients may not have been there when the step was built.
        self._user = user
        self._recipe = recipe
        self._buffers: list[list[FlatBuffer]] | None = lay_out(user) if recipe.is_flat else None
        try:
            self._set_up(backend)
        except Exception:
            self.undo()
            raise

    def undo(self) -> None:
        """Give the parameters memory of their own again."""
        for buffer in self._all_buffers():
            buffer.dissolve()

    def load_state(self) -> bool:
        """Overwrite the state with that of the user's optimizer, in place, so that graphs stay valid.

        Returns:
            Whether that was possible; if not, the worker has to be made anew.
        """
        if not all(buffer.is_uniform(self._user.state) for buffer in self._all_buffers()):
            return False
        return all(_overwrite(self.optimizer.state.get(tensor, {}), state) for tensor, state in self._adopted())

    def store_state(self) -> None:
        """Put the state into the user's optimizer, in the form that plain torch has; large tensors are shared."""
        state = self.optimizer.state
        for index, group in enumerate(self._user.param_groups):
            if self._buffers is None:
                for parameter in group["params"]:
                    if parameter in state:
                        self._user.state[parameter] = adopted_state(state[parameter], group, parameter)
            else:
                for buffer in self._buffers[index]:
                    if buffer.values in state:
                        self._user.state.update(buffer.unpack_state(state[buffer.values], group))

    def zero_gradients(self) -> None:
        """Set all gradients to zero where they are."""
        if self._buffers is None:
            self._user.zero_grad(set_to_none=False)
            return
        if self.look_at_gradients is not None:
            self.look_at_gradients()
        for buffer in self._all_buffers():
            buffer.gradient.zero_()

    def reset(self) -> bool:
        """Forget what was captured, because a constant changed; returns whether there was anything to forget."""
        if isinstance(self.update, CapturedUpdate):
            self.update.reset()
            return True
        return False

    def _set_up(self, backend: Backend) -> None:
        groups = self._user.param_groups
        tensors = [group["params"] for group in groups]
        if self._buffers is not None:
            tensors = [[buffer.values for buffer in buffers] for buffers in self._buffers]
        self.optimizer = make_worker(self._user, self._recipe, tensors)
        for tensor, state in self._adopted():
            if state:
                self.optimizer.state[tensor] = state
        is_eager = self._recipe.implementation != "compiled"
        self.hyperparameters = Hyperparameters(
            self._user, self.optimizer, tensor_lr=self._recipe.in_graph or not is_eager
        )
        self.update: Callable[[], object] = self.optimizer.step
        if not is_eager:
            self.update = _compiled(self.optimizer, backend, in_graph=self._recipe.in_graph)
        self.look_at_gradients: Callable[[], None] | None = None
        for buffer in self._all_buffers():
            buffer.attach_gradients(may_move=not self._recipe.in_graph)
        parameters = [parameter for group in groups for parameter in group["params"]]
        self._left_out = [(i, parameter) for i, parameter in enumerate(parameters) if parameter.grad is None]
        if self._recipe.in_graph:
            self.update = CapturedUpdate(self.update, parameters[0].device)
            self.look_at_gradients = GradientWatch(parameters)
        elif self._buffers is not None:
            self.look_at_gradients = self._gather_gradients

    def _gather_gradients(self) -> None:
        for buffer in self._all_buffers():
            buffer.gather_gradients()
        for index, parameter in self._left_out:
            if parameter.grad is not None:
                raise new_gradient(index, parameter)

    def _adopted(self) -> list[tuple[torch.Tensor, dict[str, Any]]]:
        """The user's state in the worker's form, for each tensor that the worker updates."""
        states, adopted = self._user.state, []
        for index, group in enumerate(self.optimizer.param_groups):
            if self._buffers is None:
                adopted += [(p, adopted_state(states.get(p, {}), group, p)) for p in group["params"]]
            else:
                adopted += [(buffer.values, buffer.pack_state(states, group)) for buffer in self._buffers[index]]
        return adopted

    def _all_buffers(self) -> list[FlatBuffer]:
        return [buffer for buffers in self._buffers or () for buffer in buffers]


def _overwrite(old: dict[str, Any], new: Mapping[str, Any]) -> bool:
    """Copy one state into another; returns False, with nothing done, where they do not hold the same things."""
    tensors = [name for name, value in new.items() if isinstance(value, torch.Tensor)]
    if old.keys() != new.keys() or any(new[name] != old[name] for name in new.keys() - set(tensors)):
        return False
    if any(not isinstance(old[name], torch.Tensor) or old[name].shape != new[name].shape for name in tensors):
        return False
    for name in tensors:
        old[name].copy_(new[name])
    return True


def _compiled(worker: torch.optim.Optimizer, backend: Backend, *, in_graph: bool) -> Callable[[], None]:
    """The worker's step under torch.compile.

    What torch.compile compiles belongs to the code object of a function, and it compiles one at most
    `recompile_limit` times: the ninth Adam of a process would be eager. So each step compiles a copy of its own. And
    it leaves out the wrappers of `Optimizer.step`, which break the graph on purpose: one graph, less for the host.

    In a CUDA graph the gap between two kernels counts: programmatic dependent launch, which GPUs have since compute
    capability 9.0, starts a kernel while the one before ends. Inductor leaves it off where a GPU lacks it.
    """
    # A wrapper takes over the name of the module that it wraps, but not the globals.
    step = inspect.unwrap(type(worker).step, stop=lambda it: not it.__globals__["__name__"].startswith(_WRAPPERS))
    if not step.__globals__["__name__"].startswith("torch.optim"):
        # The decorators of somebody else's step may matter; torch's own hook is the outermost and is skipped.
        outermost = type(worker).step
        step = _stepping(getattr(outermost, "__wrapped__", outermost) if hasattr(outermost, "hooked") else outermost)
    own = types.FunctionType(
        step.__code__.replace(), step.__globals__, step.__name__, step.__defaults__, step.__closure__
    )
    options: dict[str, str | int | bool | Callable[..., Any]] = {"triton.enable_pdl": True}
    compiled = torch.compile(own, backend=backend, options=options if in_graph and backend == "inductor" else None)

    def update() -> None:
        with torch.no_grad():
            compiled(worker)

    return update


def _stepping(step: Callable[[torch.optim.Optimizer], object]) -> types.FunctionType:
    def take_step(optimizer: torch.optim.Optimizer) -> None:
        step(optimizer)

    assert isinstance(take_step, types.FunctionType)
    return take_step
