"""Recipes do what plain torch does, follow what the user changes, and say why where they cannot."""

import copy
import functools
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LinearLR, OneCycleLR

from optimbench.errors import (
    CompilerNotFoundError,
    InvalidArgumentError,
    NoGradientError,
    RecipeError,
    StaleGradientError,
)
from optimbench.recipes import (
    RECIPES,
    build_step,
    check_sameness,
    copy_optimizer,
    learning_rate_problems,
    possible_recipes,
    why_not,
)
from optimbench.recipes._gradients import GradientWatch
from optimizers import ELEMENTWISE, assert_same, make_small, parameters_of, train

# torch 2.11 warns of this whatever check_invariants is.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")

NO_GRAPH = [name for name, recipe in RECIPES.items() if not recipe.in_graph]
COMPILED = ["compiled", "flat_compiled"]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("recipe", NO_GRAPH)
@pytest.mark.parametrize("name", list(ELEMENTWISE))
def test_every_recipe_equals_plain_torch(name: str, recipe: str) -> None:
    optimizer, reference = ELEMENTWISE[name](make_small()), ELEMENTWISE[name](make_small())
    if problem := why_not(optimizer, recipe):
        assert problem.endswith("has no fused implementation")
        pytest.skip(problem)  # Torch has nothing here that could be compared; why_not's sentence is the reason.
    # Inductor itself is tried below, on a few: compiling C++ takes seconds each time.
    step = build_step(optimizer, recipe, backend="eager")
    train(optimizer, step)
    train(reference, reference.step)
    assert_same(optimizer, reference)


@pytest.mark.parametrize("recipe", COMPILED)
@pytest.mark.parametrize("name", ["Adam", "SGD with momentum"])
def test_inductor_equals_plain_torch_and_a_changing_lr_does_not_recompile(name: str, recipe: str) -> None:
    optimizer, reference = ELEMENTWISE[name](make_small()), ELEMENTWISE[name](make_small())
    step = build_step(optimizer, recipe)
    train(optimizer, step, 2)
    graphs = counters["stats"]["unique_graphs"]
    assert graphs >= 1
    train(optimizer, step, 6, first=2)
    assert counters["stats"]["unique_graphs"] == graphs
    train(reference, reference.step)
    assert_same(optimizer, reference)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_data_types(dtype: torch.dtype) -> None:
    verdicts = check_sameness(torch.optim.AdamW(make_small(dtype=dtype), lr=0.1), backend="eager")
    assert [verdict.recipe for verdict in verdicts] == NO_GRAPH
    assert [verdict.reason for verdict in verdicts] == [""] * len(NO_GRAPH)


@pytest.mark.parametrize("recipe", NO_GRAPH)
def test_the_given_optimizer_keeps_its_settings_and_its_step(recipe: str) -> None:
    optimizer = torch.optim.Adam(make_small())
    before = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    step = build_step(optimizer, recipe, backend="eager")
    step()
    assert {key: value for key, value in optimizer.param_groups[0].items() if key != "params"} == before
    assert "step" not in vars(optimizer)
    assert step.optimizer is optimizer


@pytest.mark.parametrize("recipe", NO_GRAPH)
def test_scheduler_on_the_given_optimizer(recipe: str) -> None:
    traces = []
    optimizers = [torch.optim.Adam(make_small(), lr=0.1) for _ in range(2)]
    step = build_step(optimizers[0], recipe, backend="eager")
    ways: tuple[Callable[[], object], ...] = (step, lambda: optimizers[1].step())  # noqa: PLW0108 - a scheduler replaces it.
    for optimizer, take_step in zip(optimizers, ways, strict=True):
        scheduler = LinearLR(optimizer, total_iters=5)
        trace = []
        for _ in range(6):
            take_step()
            trace.append(optimizer.param_groups[0]["lr"])
            if take_step is step:
                assert step.learning_rates == pytest.approx((trace[-1],))
            scheduler.step()
        traces.append(trace)
    assert traces[0] == traces[1]
    assert len(set(traces[0])) == 6
    assert_same(*optimizers)


@pytest.mark.parametrize("recipe", NO_GRAPH)
def test_scheduler_that_cycles_the_betas(recipe: str) -> None:
    optimizers = [torch.optim.Adam(make_small(), lr=0.1) for _ in range(2)]
    step = build_step(optimizers[0], recipe, backend="eager")
    ways: tuple[Callable[[], object], ...] = (step, lambda: optimizers[1].step())  # noqa: PLW0108 - a scheduler replaces it.
    for optimizer, take_step in zip(optimizers, ways, strict=True):
        scheduler = OneCycleLR(optimizer, max_lr=0.2, total_steps=8)
        betas = set()
        for _ in range(6):
            take_step()
            betas.add(optimizer.param_groups[0]["betas"])
            scheduler.step()
        assert len(betas) > 3
    assert_same(*optimizers)


@pytest.mark.parametrize("recipe", NO_GRAPH)
def test_lr_tensor_of_the_user_changed_in_place_and_replaced(recipe: str) -> None:
    lr = torch.tensor(0.1)
    optimizer, reference = torch.optim.Adam(make_small(), lr=lr), torch.optim.Adam(make_small(), lr=0.1)
    step = build_step(optimizer, recipe, backend="eager")
    for value in (0.1, 0.05, 0.025):
        lr.fill_(value)
        reference.param_groups[0]["lr"] = value
        step()
        reference.step()
    optimizer.param_groups[0]["lr"] = torch.tensor(0.3)
    reference.param_groups[0]["lr"] = 0.3
    step()
    reference.step()
    for parameter, expected in zip(parameters_of(optimizer), parameters_of(reference), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-5)


def test_eager_recipes_turn_a_tensor_lr_into_a_float() -> None:
    # With the tensor, torch would fall back to the for-loop without a word.
    optimizer = torch.optim.Adam(make_small(), lr=torch.tensor(0.1))
    assert "falls back to one parameter after the other" in learning_rate_problems(optimizer)[0]
    step = build_step(optimizer, "foreach")
    step()
    assert step._worker is not None
    (group,) = step._worker.optimizer.param_groups
    assert isinstance(group["lr"], float)
    assert group["foreach"] is True


def test_lr_tensor_that_torch_refuses_is_explained() -> None:
    with pytest.raises(ValueError, match="lr as a Tensor is not supported"):
        torch.optim.Adam(make_small(), lr=torch.tensor(0.1), foreach=True)
    optimizer = torch.optim.Adam(make_small(), lr=torch.tensor(0.1))
    optimizer.param_groups[0]["foreach"] = True
    (said,) = learning_rate_problems(optimizer)
    assert said.endswith("give lr as a float, or set capturable=True where the parameters are on CUDA")
    assert learning_rate_problems(torch.optim.Adam(make_small(), lr=0.1)) == ()


def test_shared_lr_tensor_is_warned_of() -> None:
    lr, (first, second, *_) = torch.tensor(1.0), make_small()
    optimizer = torch.optim.SGD([{"params": [first], "lr": lr}, {"params": [second], "lr": lr}])
    # One rate for the first group, another for the second, says the scheduler; both get the second's.
    scheduler = LambdaLR(optimizer, [lambda _: 0.5, lambda _: 0.25])
    with pytest.warns(UserWarning, match="one lr tensor is shared by several param groups"):
        step = build_step(optimizer, "foreach")
    step()
    assert step.learning_rates == (0.25, 0.25)
    assert scheduler.get_last_lr() == [0.25, 0.25]


def test_two_groups_follow_their_own_lr() -> None:
    def make() -> Optimizer:
        first, second, *rest = make_small()
        groups: list[dict[str, Any]] = [{"params": [first, second]}, {"params": rest, "lr": 0.5, "weight_decay": 0.2}]
        return torch.optim.AdamW(groups, lr=0.1)

    for recipe in NO_GRAPH:
        optimizer, reference = make(), make()
        train(optimizer, build_step(optimizer, recipe, backend="eager"))
        train(reference, reference.step)
        assert_same(optimizer, reference)


def raising_backend(*_: object) -> Callable[..., object]:
    raise ZeroDivisionError("no code today")


@pytest.mark.parametrize("suppress_errors", [False, True])
@pytest.mark.parametrize("recipe", COMPILED)
def test_failed_compile_leaves_the_optimizer_as_it_was(recipe: str, suppress_errors: bool) -> None:
    optimizer, reference = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    parameters = parameters_of(optimizer)
    step = build_step(optimizer, recipe, backend=raising_backend)
    with (
        torch._dynamo.config.patch(suppress_errors=suppress_errors),
        pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no code today"),
    ):
        step()
    assert not optimizer.state
    assert all(a is b for a, b in zip(parameters, parameters_of(optimizer), strict=True))
    assert len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == len(parameters)
    with pytest.raises(RecipeError, match="is closed: build it again"):
        step()
    train(optimizer, optimizer.step)
    train(reference, reference.step)
    assert_same(optimizer, reference)


@pytest.mark.parametrize("recipe", COMPILED)
def test_no_cpp_compiler_is_one_sentence(recipe: str) -> None:
    optimizer = torch.optim.Adam(make_small())
    config = {"cpp.cxx": ("/nonexistent/c++",), "fx_graph_cache": False}
    with (
        torch._inductor.config.patch(config),
        pytest.raises(CompilerNotFoundError, match=r"needs a C\+\+ compiler"),
    ):
        build_step(optimizer, recipe)()
    assert not optimizer.state


def test_twelve_optimizers_compile_once_each() -> None:
    for _ in range(12):
        graphs = counters["stats"]["unique_graphs"]
        optimizer = torch.optim.Adam(make_small())
        train(optimizer, build_step(optimizer, "compiled", backend="eager"), 3)
        assert counters["stats"]["unique_graphs"] == graphs + 1


def test_nothing_compiled_is_an_error() -> None:
    class Disabled(torch.optim.SGD):
        @torch._dynamo.disable  # type: ignore[untyped-decorator]
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    with pytest.raises(RecipeError, match=r"compiled nothing of Disabled\.step: it ran eagerly"):
        build_step(Disabled(make_small()), "compiled", backend="eager")()


def test_optimizer_step_raises_while_a_step_works_for_it() -> None:
    optimizer, reference = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    step = build_step(optimizer, "fused")
    train(optimizer, step, 4)
    with pytest.raises(RecipeError, match=r"optimizer\.step was called while the step 'fused'"):
        optimizer.step()
    with pytest.raises(RecipeError, match=r"the step 'fused' built from this optimizer is still open"):
        build_step(optimizer, "foreach")
    step.close()
    step.close()
    train(optimizer, optimizer.step, 4, first=4)
    train(reference, reference.step)
    assert_same(optimizer, reference)


def test_recipes_one_after_the_other_go_on_from_the_same_state() -> None:
    optimizer, reference = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    for index, recipe in enumerate(NO_GRAPH):
        step = build_step(optimizer, recipe, backend="eager")
        train(optimizer, step, 2, first=2 * index)
        step.close()
    train(reference, reference.step, 2 * len(NO_GRAPH))
    assert_same(optimizer, reference)


def test_no_gradient_then_one() -> None:
    optimizer = torch.optim.SGD(make_small(), lr=0.1)
    gradients = [parameter.grad for parameter in parameters_of(optimizer)]
    for recipe in NO_GRAPH:
        optimizer.zero_grad()
        step = build_step(optimizer, recipe, backend="eager")
        with pytest.raises(NoGradientError, match="no parameter has a gradient"):
            step()
        for parameter, gradient in zip(parameters_of(optimizer), gradients, strict=True):
            parameter.grad = gradient
        step()
        step.close()


def test_added_param_group_is_an_error() -> None:
    first, second, *_ = make_small()
    optimizer = torch.optim.SGD([first], lr=0.1)
    step = build_step(optimizer, "foreach")
    step()
    optimizer.add_param_group({"params": [second]})
    with pytest.raises(RecipeError, match="built for 1 param groups, now 2: close it and build it again"):
        step()


def test_zero_grad_keeps_gradients_in_place() -> None:
    for recipe in NO_GRAPH:
        optimizer = torch.optim.SGD(make_small(), lr=0.1)
        step = build_step(optimizer, recipe, backend="eager")
        step()
        gradients = [parameter.grad for parameter in parameters_of(optimizer)]
        step.zero_grad()
        for parameter, gradient in zip(parameters_of(optimizer), gradients, strict=True):
            assert parameter.grad is gradient
            assert gradient is not None
            assert not gradient.any()


@pytest.mark.parametrize("recipe", ["fused", "flat_fused"])
def test_a_grad_scaler_scales_back_skips_what_is_not_finite_and_goes_on(recipe: str) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    step = build_step(optimizer, recipe)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def iterate(loss: torch.Tensor) -> list[float]:
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.unscale_(step)  # type: ignore[arg-type]
        scaler.step(step)  # type: ignore[arg-type]
        scaler.update()
        step.zero_grad()
        return weight.tolist()

    assert iterate(weight.sum()) == [0.5, 0.5, 0.5]
    assert iterate(weight.sum() * float("inf")) == [0.5, 0.5, 0.5]
    assert scaler.get_scale() == 512.0
    assert iterate(weight.sum()) == [0.0, 0.0, 0.0]


def test_copy_is_independent() -> None:
    optimizer, reference = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    step = build_step(optimizer, "flat_fused")
    train(optimizer, step, 3)
    twin = copy_optimizer(optimizer)
    for parameter, copied in zip(parameters_of(optimizer), parameters_of(twin), strict=True):
        assert parameter.grad is not None
        assert copied.grad is not None
        assert torch.equal(parameter.grad, copied.grad)
        assert parameter.grad.data_ptr() != copied.grad.data_ptr()
    train(twin, twin.step, 3, first=3)
    train(reference, reference.step, 3)
    assert_same(optimizer, reference)
    train(reference, reference.step, 3, first=3)
    assert_same(twin, reference)


# What cannot be used, and why.


def test_everything_possible_on_a_cpu() -> None:
    assert possible_recipes(torch.optim.Adam(make_small())) == tuple(NO_GRAPH)
    assert possible_recipes(torch.optim.RMSprop(make_small())) == (
        "forloop",
        "foreach",
        "compiled",
        "flat_compiled",
    )


class HalfStep(Optimizer):
    """A user's optimizer, which updates element by element and counts its steps in a Python number."""

    def __init__(self, params: Any, rate: float = 0.5) -> None:
        super().__init__(params, {"lr": rate})
        self.scale = 0.5

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - the signature that torch gives.
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
                parameter.sub_(parameter.grad * group["lr"] * self.scale)


def test_a_users_optimizer() -> None:
    optimizer, reference = HalfStep(make_small()), HalfStep(make_small())
    assert possible_recipes(optimizer) == ("forloop", "compiled")
    assert why_not(optimizer, "flat_compiled") == (
        "it is not known whether HalfStep updates element by element: if it does, pass elementwise=True"
    )
    step = build_step(optimizer, "flat_compiled", backend="eager", elementwise=True)
    train(optimizer, step, 4)
    train(reference, reference.step, 4)
    assert_same(optimizer, reference)
    assert optimizer.state_dict()["state"][0] == {"count": 4}


def sparse_gradient() -> list[torch.nn.Parameter]:
    weight = torch.nn.Parameter(torch.ones(4, 2))
    weight.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 2), (4, 2), check_invariants=True)
    return [weight]


def with_hook() -> Optimizer:
    optimizer = torch.optim.SGD(make_small())
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


def overlapping() -> Optimizer:
    memory = torch.ones(6)
    return torch.optim.SGD([torch.nn.Parameter(memory[:4]), torch.nn.Parameter(memory[3:])])


def channels_last_parameter() -> list[torch.nn.Parameter]:
    """One whose gradient lies in memory in another order."""
    (parameter,) = make_small(shapes=[(2, 3, 4, 5)])
    parameter.data = parameter.data.to(memory_format=torch.channels_last)
    return [parameter]


class Subclass(torch.nn.Parameter):
    pass


@pytest.mark.parametrize(
    ("make", "recipe", "reason"),
    [
        (lambda: torch.optim.Muon(make_small()[:1]), "foreach", "Muon has no foreach implementation"),
        (lambda: torch.optim.Muon(make_small()[:1]), "flat_compiled", "Muon does not update element by element"),
        (lambda: torch.optim.Adafactor(make_small()), "flat_compiled", "Adafactor reads numbers back to the host"),
        (lambda: torch.optim.Adafactor(make_small()), "flat_fused", "Adafactor has no fused implementation"),
        (lambda: torch.optim.LBFGS(make_small()), "forloop", "LBFGS.step needs closure"),
        (lambda: torch.optim.LBFGS(make_small()), "flat_compiled", "torch disables torch.compile for LBFGS"),
        (lambda: torch.optim.SparseAdam(sparse_gradient()), "compiled", "torch disables torch.compile for SparseAdam"),
        (lambda: torch.optim.SparseAdam(sparse_gradient()), "flat_fused", "SparseAdam has no fused implementation"),
        (lambda: torch.optim.SGD(sparse_gradient()), "flat_fused", "a gradient is sparse"),
        (lambda: torch.optim.SGD(sparse_gradient()), "compiled", "a gradient is sparse"),
        (lambda: torch.optim.RMSprop(make_small()), "fused", "RMSprop has no fused implementation"),
        (lambda: torch.optim.Adam(make_small(dtype=torch.complex64)), "fused", "no fused implementation for"),
        (lambda: torch.optim.Adam(make_small()), "fused_cudagraph", "needs all parameters on a CUDA device"),
        (lambda: torch.optim.Adam(make_small(), differentiable=True), "foreach", "differentiable=True keeps"),
        (with_hook, "forloop", "this SGD has step hooks, which a recipe would not call"),
        (overlapping, "flat_fused", "parameters 0 and 1 share memory"),
        (lambda: torch.optim.SGD([Subclass(torch.ones(2))]), "flat_fused", "parameter 0 is a Subclass"),
        (
            lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(4, 4)[:, :2])]),
            "flat_fused",
            "parameter 0 has gaps or overlaps in memory",
        ),
        (lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(4, 4)[:, :2])]), "fused", "parameter 0 has gaps"),
        (
            lambda: torch.optim.Adam(channels_last_parameter()),
            "fused",
            "parameter 0 and its grad lie in memory in different orders",
        ),
        (
            lambda: torch.optim.SGD(make_small(shapes=[()], dtype=torch.float64)),
            "compiled",
            "torch.compile takes a float64 tensor without dimensions for a number",
        ),
    ],
)
def test_why_not(make: Callable[[], Optimizer], recipe: str, reason: str) -> None:
    optimizer = make()
    said = why_not(optimizer, recipe)
    assert said is not None
    assert reason in said
    assert recipe not in possible_recipes(optimizer)
    with pytest.raises(RecipeError) as caught:
        build_step(optimizer, recipe)
    assert str(caught.value) == f"recipe {recipe!r} cannot be used: {said}"


def test_a_layout_that_fused_kernels_disregard_is_found_at_the_first_call() -> None:
    (parameter,) = channels_last_parameter()
    gradient, parameter.grad = parameter.grad, None
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    step = build_step(optimizer, "fused")
    parameter.grad = gradient
    before = parameter.detach().clone()
    with pytest.raises(RecipeError, match="parameter 0 and its grad lie in memory in different orders"):
        step()
    assert torch.equal(parameter, before)
    optimizer.step()  # It is the user's again.


def test_sparse_adam_takes_its_own_loop() -> None:
    (weight,), (expected,) = sparse_gradient(), sparse_gradient()
    build_step(torch.optim.SparseAdam([weight]), "forloop")()
    reference = torch.optim.SparseAdam([expected])
    reference.step()  # type: ignore[no-untyped-call]
    assert torch.equal(weight, expected)


def negating(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def negated(self: Optimizer) -> None:
        for parameter in parameters_of(self):
            if parameter.grad is not None:
                parameter.grad.neg_()
        step(self)

    return negated


class Ascending(torch.optim.SGD):
    """A user's own, which wraps torch's step."""

    step = negating(torch.optim.SGD.step)


def test_what_a_user_wraps_a_step_in_is_compiled_with_it() -> None:
    optimizer = Ascending(make_small(), lr=0.1)
    before = [parameter.detach().clone() for parameter in parameters_of(optimizer)]
    gradients = [parameter.grad.clone() for parameter in parameters_of(optimizer) if parameter.grad is not None]
    build_step(optimizer, "compiled", backend="eager")()
    for parameter, start, gradient in zip(parameters_of(optimizer), before, gradients, strict=True):
        assert torch.allclose(parameter, start + 0.1 * gradient)


def test_what_is_no_optimizer_is_refused() -> None:
    model: Any = torch.nn.Linear(2, 2)
    for use in (possible_recipes, check_sameness, copy_optimizer, lambda given: build_step(given, "fused")):
        with pytest.raises(InvalidArgumentError, match=r"optimizer is a Linear \(expected a torch\.optim\.Optimizer\)"):
            use(model)


def test_unknown_recipe() -> None:
    with pytest.raises(InvalidArgumentError, match=r"recipe is 'fast' \(expected one of forloop, foreach"):
        build_step(torch.optim.SGD(make_small()), "fast")


# Gradients that a captured graph would miss.


def test_watch_is_quiet_while_nothing_moves() -> None:
    parameters = make_small(shapes=[(2,)] * 30)
    parameters[3].grad = None
    watch = GradientWatch(parameters)
    for _ in range(20):
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.add_(1)
        watch()


def test_watch_on_gradients_that_backward_made() -> None:
    # No Python object stands for them until somebody asks for one.
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(10)])
    data = torch.ones(3)
    model(data).sum().backward()
    watch = GradientWatch(list(model.parameters()))
    for _ in range(5):
        gc.collect()
        watch()
        model(data).sum().backward()
    model.zero_grad()
    model(data).sum().backward()
    with pytest.raises(StaleGradientError, match=r"step\.zero_grad"):
        watch()


def replace(parameter: torch.nn.Parameter) -> None:
    parameter.grad = torch.ones_like(parameter)


def clear(parameter: torch.nn.Parameter) -> None:
    parameter.grad = None


@pytest.mark.parametrize("index", [0, 29])
@pytest.mark.parametrize("change", [replace, clear])
def test_watch_tells_one_changed_gradient_at_once(change: Callable[[torch.nn.Parameter], None], index: int) -> None:
    parameters = make_small(shapes=[(2,)] * 30)
    watch = GradientWatch(parameters)
    watch()
    change(parameters[index])
    with pytest.raises(StaleGradientError, match=r"gradient|step\.zero_grad"):
        watch()
    with pytest.raises(StaleGradientError, match=r"step\.zero_grad"):
        watch()


def test_watch_finds_a_gradient_whose_old_tensor_is_kept() -> None:
    parameters = make_small(shapes=[(2,)] * 30)
    watch = GradientWatch(parameters)
    kept = parameters[17].grad
    replace(parameters[17])
    # It is told within one round through all parameters.
    with pytest.raises(StaleGradientError, match=r"the gradient of parameter 17, of shape \(2,\), is another tensor"):
        [watch() for _ in range(30)]  # type: ignore[func-returns-value]
    assert kept is not None


def test_watch_looks_at_more_where_an_update_takes_longer() -> None:
    parameters = make_small(shapes=[(2**22,), (1,), (1,), (1,)])
    watch = GradientWatch(parameters)
    kept = parameters[2].grad
    replace(parameters[2])
    with pytest.raises(StaleGradientError, match=r"the gradient of parameter 2, of shape \(1,\), is another tensor"):
        watch()
    assert kept is not None


def test_watch_tells_a_new_gradient_and_a_moved_parameter() -> None:
    parameters = make_small(shapes=[(2,)] * 3)
    clear(parameters[1])
    watch = GradientWatch(parameters)
    replace(parameters[1])
    with pytest.raises(
        StaleGradientError, match=r"parameter 1, of shape \(2,\), had no gradient at the step's first call"
    ):
        [watch() for _ in parameters]  # type: ignore[func-returns-value]
    clear(parameters[1])
    watch()
    parameters[2].data = parameters[2].data.clone()
    with pytest.raises(RecipeError, match=r"parameter 2, of shape \(2,\), moved to other memory"):
        [watch() for _ in parameters]  # type: ignore[func-returns-value]


def test_watch_keeps_no_gradient_alive() -> None:
    (parameter,) = make_small(shapes=[(2,)])
    storage = parameter.grad.untyped_storage() if parameter.grad is not None else None
    assert storage is not None
    before = torch._C._storage_Use_Count(storage._cdata)
    watch = GradientWatch([parameter])
    assert torch._C._storage_Use_Count(storage._cdata) == before
    watch()


# The sameness check has to find what it is there for.


class KeepsOldRate(torch.optim.SGD):
    """Wrong when compiled: it uses the learning rate of the first step for good."""

    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - the signature that torch gives.
        for group in self.param_groups:
            for parameter in group["params"]:
                lr = 0.1 if torch.compiler.is_compiling() else group["lr"]
                parameter.data.sub_(parameter.grad * lr)


class LosesCount(torch.optim.SGD):
    """Wrong when compiled: it does not count its steps."""

    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - the signature that torch gives.
        for group in self.param_groups:
            for parameter in group["params"]:
                count = self.state[parameter].setdefault("step", torch.zeros(()))
                if not torch.compiler.is_compiling():
                    count += 1
                parameter.data.sub_(parameter.grad * group["lr"])


def test_sameness_finds_an_old_learning_rate() -> None:
    forloop, compiled = check_sameness(KeepsOldRate(make_small(), lr=0.1), ["forloop", "compiled"], backend="eager")
    assert (forloop.recipe, forloop.is_same, forloop.difference) == ("forloop", True, 0.0)
    assert (compiled.recipe, compiled.is_same) == ("compiled", False)
    assert compiled.difference is not None
    assert compiled.difference > 10
    assert compiled.reason.startswith("parameter ")


def test_sameness_finds_a_wrong_step_count() -> None:
    (compiled,) = check_sameness(LosesCount(make_small(), lr=0.1), ["compiled"], backend="eager")
    assert not compiled.is_same
    assert compiled.reason.startswith("step of parameter ")


def test_sameness_reports_what_failed_and_goes_on() -> None:
    optimizer = torch.optim.Adam(make_small())
    before = copy.deepcopy([parameter.detach() for parameter in parameters_of(optimizer)])
    with warnings.catch_warnings():
        verdicts = check_sameness(optimizer, ["compiled", "foreach", "fused_cudagraph"], backend=raising_backend)
    compiled, foreach, graph = verdicts
    assert (compiled.is_same, foreach.is_same, graph.is_same) == (False, True, False)
    assert "no code today" in compiled.reason
    assert "needs all parameters on a CUDA device" in graph.reason
    assert not optimizer.state
    for parameter, value in zip(parameters_of(optimizer), before, strict=True):
        assert torch.equal(parameter, value)


def test_muon_compiled_is_the_same() -> None:
    _, compiled = check_sameness(torch.optim.Muon(make_small(shapes=[(8, 4)])), backend="eager")
    assert (compiled.recipe, compiled.reason) == ("compiled", "")


def test_gradients_in_another_order_of_memory_are_the_same_gradients() -> None:
    for verdict in check_sameness(torch.optim.Adam(channels_last_parameter()), backend="eager"):
        assert (verdict.recipe, verdict.reason) == (verdict.recipe, "")


def test_sameness_needs_enough_steps() -> None:
    with pytest.raises(InvalidArgumentError, match="n_steps is 4"):
        check_sameness(torch.optim.SGD(make_small()), n_steps=4)
