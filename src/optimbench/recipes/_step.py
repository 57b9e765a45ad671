"""A step built from an optimizer and a recipe, to be called by a training loop."""

import warnings
from typing import Any

import torch
from torch._dynamo.utils import counters

from optimbench.devices import missing_compiler
from optimbench.errors import NoGradientError, RecipeError
from optimbench.recipes._copies import parameters_of
from optimbench.recipes._names import recipe_named
from optimbench.recipes._possible import learning_rate_problems, why_not
from optimbench.recipes._worker import Backend, Worker

# Where an optimizer carries the step that works for it, so that two never do.
_ATTRIBUTE = "_optimbench_step"


def build_step(
    optimizer: torch.optim.Optimizer,
    recipe: str,
    *,
    backend: Backend = "inductor",
    elementwise: bool | None = None,
) -> "Step":
    """Build a step that updates the optimizer's parameters by a recipe.

    The given optimizer stays the one that a training loop talks to: schedulers are built on it, its `param_groups`
    hold the learning rate, its `state_dict` and `load_state_dict` save and restore, in the form of plain torch. Its
    settings, such as `foreach` or `capturable`, are not changed, nor is its `step` replaced. Another optimizer of its
    class, inside the step, does the work with the settings that the recipe needs. Until `close`, call the step
    instead of `optimizer.step`, which raises meanwhile.

    Nothing happens before the first call, which takes over the optimizer's state and compiles. Where a recipe uses
    flat buffers, the first call also moves the parameters and their gradients into them: the parameters stay the same
    objects, used as before, but may not move any more, as by `.to()`.

    Args:
        optimizer: Its parameters are updated.
        recipe: Its name: "forloop", "foreach", "fused", "fused_cudagraph", "compiled", "compiled_cudagraph",
            "flat_fused", "flat_compiled" or "flat_compiled_cudagraph". What each does is in
            ``optimbench.recipes.RECIPES[recipe].summary``.
        backend: The backend of torch.compile, for compiled recipes.
        elementwise: As in `why_not`.

    Raises:
        InvalidArgumentError: There is no such recipe, or it is not an optimizer.
        RecipeError: The recipe cannot be used with this optimizer, or a step that was built from it is still open.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(3))
        >>> optimizer = torch.optim.SGD([weight], lr=0.5)
        >>> step = ob.build_step(optimizer, "flat_fused")
        >>> weight.sum().backward()
        >>> step()
        >>> weight.data
        tensor([0.5000, 0.5000, 0.5000])
    """
    problem = why_not(optimizer, recipe, elementwise=elementwise)
    if problem is not None:
        raise RecipeError(f"recipe {recipe!r} cannot be used: {problem}")
    for said in learning_rate_problems(optimizer):
        # Other problems of a tensor lr do not reach a step, which keeps its own lr; a shared one is the scheduler's.
        if said.startswith("one lr tensor is shared"):
            warnings.warn(said, stacklevel=2)
    return Step(optimizer, recipe, backend)


class Step:
    """A step of an optimizer by a recipe; made by `build_step`. Call it after `backward`, in one thread.

    It has the `param_groups`, `step` and `zero_grad` of an optimizer, so it can be given to a `torch.amp.GradScaler`.

    Args:
        backend: As in `build_step`.

    Attributes:
        optimizer: The optimizer it was built from; schedulers and checkpoints use this one.
        recipe: The name of the recipe.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(3))
        >>> optimizer = torch.optim.SGD([weight], lr=0.5)
        >>> step = ob.build_step(optimizer, "foreach")
        >>> for _ in range(2):
        ...     weight.sum().backward()
        ...     step()
        ...     step.zero_grad()
        >>> step.learning_rates
        (0.5,)
        >>> step.close()  # optimizer.step works again.
    """

    optimizer: torch.optim.Optimizer
    recipe: str

    def __init__(self, optimizer: torch.optim.Optimizer, recipe: str, backend: Backend) -> None:
        if hasattr(optimizer, _ATTRIBUTE):
            open_step: Step = getattr(optimizer, _ATTRIBUTE)
            raise RecipeError(
                f"the step {open_step.recipe!r} built from this optimizer is still open: close it first, or build this"
                " one from copy_optimizer(optimizer)"
            )
        self.optimizer = optimizer
        self.recipe = recipe
        self._backend = backend
        self._worker: Worker | None = None
        self._is_closed = False
        # Whether load_state_dict was called on the optimizer since the last step.
        self._has_new_state = False
        self._has_warned = False
        self._hooks = [
            optimizer.register_state_dict_pre_hook(self._before_state_dict),
            optimizer.register_load_state_dict_post_hook(self._after_load_state_dict),
            optimizer.register_step_pre_hook(self._before_optimizer_step),
        ]
        setattr(optimizer, _ATTRIBUTE, self)

    def __repr__(self) -> str:
        return f"<Step {self.recipe!r} of {type(self.optimizer).__name__}>"

    def __call__(self) -> None:
        """Take one step.

        Raises:
            StaleGradientError: A gradient moved or vanished, and the recipe reads it where it was.
            RecipeError: A parameter moved, param groups were added, torch compiled nothing, memory does not fit the
                recipe, or the step is closed.
            NoGradientError: No parameter has a gradient at the first call.
            CompilerNotFoundError: The step needs a C++ compiler and there is none.
        """
        worker = self._worker
        if worker is None or self._has_new_state:
            worker = self._prepared()
            if worker is None:
                return
        if worker.hyperparameters.follow() and worker.reset():
            self._warn_of_capture()
        if worker.look_at_gradients is not None:
            worker.look_at_gradients()
        worker.update()

    def step(self) -> None:
        """Take one step, as calling it does."""
        self()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The param groups of the optimizer."""
        return self.optimizer.param_groups

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The learning rates that the last update used, one for each param group; waits for the device."""
        return () if self._worker is None else self._worker.hyperparameters.learning_rates()

    def zero_grad(self) -> None:
        """Set all gradients to zero where they are; with flat buffers that is one operation for each buffer.

        Raises:
            StaleGradientError: A gradient moved or vanished, and the recipe reads it where it was.
        """
        if self._worker is None:
            self.optimizer.zero_grad(set_to_none=False)
        else:
            self._worker.zero_gradients()

    def close(self) -> None:
        """Give the optimizer its state back, after which its own `step` works again, and free what the step holds.

        Parameters and gradients stay where they are, also in flat buffers.
        """
        if not self._is_closed:
            self._store_state()
            self._detach()

    def _prepared(self) -> Worker | None:
        """The worker, with the optimizer's state; None where the first call was taken already while preparing it."""
        if self._is_closed:
            raise RecipeError(f"the step {self.recipe!r} is closed: build it again")
        if self._worker is not None:
            self._has_new_state = False
            if self._worker.load_state():
                return self._worker
            self._worker = None
        self._take_first_step()
        return None

    def _take_first_step(self) -> None:
        if all(parameter.grad is None for parameter in parameters_of(self.optimizer)):
            raise NoGradientError("no parameter has a gradient; call backward() before the first step")
        recipe = recipe_named(self.recipe)
        graphs = counters["stats"]["unique_graphs"]
        worker = None
        try:
            worker = Worker(self.optimizer, recipe, self._backend)
            # With suppress_errors a failed compile would pass for a compiled step.
            with torch._dynamo.config.patch(suppress_errors=False):
                worker.update()
        except Exception as error:
            if worker is not None:
                worker.undo()
            self._detach()
            missing = missing_compiler(error)
            if missing is not None:
                raise missing from error
            raise
        self._worker = worker
        self._has_new_state = False
        # Frees the state's old tensors where flat buffers hold it now.
        self._store_state()
        # What a scheduler looks at to warn of being called before the optimizer.
        self.optimizer._opt_called = True  # type: ignore[attr-defined]
        if recipe.implementation == "compiled" and counters["stats"]["unique_graphs"] == graphs:
            self.close()
            raise RecipeError(f"torch.compile compiled nothing of {type(self.optimizer).__name__}.step: it ran eagerly")

    def _store_state(self) -> None:
        if self._worker is not None and not self._has_new_state:
            self._worker.store_state()

    def _detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        if getattr(self.optimizer, _ATTRIBUTE, None) is self:
            delattr(self.optimizer, _ATTRIBUTE)
        self._worker = None
        self._is_closed = True

    def _warn_of_capture(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "a hyperparameter other than lr changed, which a CUDA graph holds as a constant: the step is captured"
                " again, which takes some calls after every change (with OneCycleLR or CyclicLR, pass"
                " cycle_momentum=False)",
                stacklevel=3,
            )

    def _before_state_dict(self, _: torch.optim.Optimizer) -> None:
        self._store_state()

    def _after_load_state_dict(self, _: torch.optim.Optimizer) -> None:
        self._has_new_state = True

    def _before_optimizer_step(self, *_: Any) -> None:
        raise RecipeError(
            f"optimizer.step was called while the step {self.recipe!r} built from it works for it: call the step"
            " instead, or close it first"
        )
