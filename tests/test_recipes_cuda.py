"""CUDA graphs and the other recipes where there is a GPU."""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR, OneCycleLR

from optimbench.errors import RecipeError, StaleGradientError
from optimbench.recipes import RECIPES, Step, build_step, check_sameness, possible_recipes, why_not
from optimbench.recipes._graph import WARM_UP_CALLS, CapturedUpdate
from optimizers import ELEMENTWISE, assert_same, make_small, parameters_of, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

GRAPHS = [name for name, recipe in RECIPES.items() if recipe.in_graph]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


def graph_of(step: Step) -> torch.cuda.CUDAGraph | None:
    assert step._worker is not None
    assert isinstance(step._worker.update, CapturedUpdate)
    return step._worker.update._graph


def test_adam_can_use_every_recipe() -> None:
    assert possible_recipes(torch.optim.Adam(make_small(device="cuda"))) == tuple(RECIPES)


@pytest.mark.parametrize("name", ["Adam", "SGD with momentum", "RMSprop"])
@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_recipe_equals_plain_torch(recipe: str, name: str) -> None:
    optimizer = ELEMENTWISE[name](make_small(device="cuda"))
    reference = ELEMENTWISE[name](make_small(device="cuda"))
    if problem := why_not(optimizer, recipe):
        assert "has no fused implementation" in problem
        pytest.skip(problem)  # Torch has nothing here that could be compared; why_not's sentence is the reason.
    train(optimizer, build_step(optimizer, recipe))
    train(reference, reference.step)
    assert_same(optimizer, reference)


@pytest.mark.parametrize("name", list(ELEMENTWISE))
def test_flat_compiled_graph_equals_plain_torch(name: str) -> None:
    optimizer = ELEMENTWISE[name](make_small(device="cuda"))
    reference = ELEMENTWISE[name](make_small(device="cuda"))
    if problem := why_not(optimizer, "flat_compiled_cudagraph"):
        assert problem == "Adagrad has no setting capturable, so its step cannot be captured in a CUDA graph"
        pytest.skip(problem)  # Adagrad alone, for the reason in the sentence above.
    step = build_step(optimizer, "flat_compiled_cudagraph")
    train(optimizer, step)
    assert graph_of(step) is not None
    train(reference, reference.step)
    assert_same(optimizer, reference)


@pytest.mark.parametrize("name", ["Adam", "SGD with Nesterov"])
def test_sameness_of_all_recipes(name: str) -> None:
    verdicts = check_sameness(ELEMENTWISE[name](make_small(device="cuda")))
    assert {verdict.recipe: verdict.reason for verdict in verdicts} == dict.fromkeys(RECIPES, "")


@pytest.mark.parametrize("recipe", GRAPHS)
def test_scheduler_takes_effect_in_the_graph_without_a_new_capture(recipe: str) -> None:
    optimizers = [torch.optim.AdamW(make_small(device="cuda"), lr=0.1) for _ in range(2)]
    step = build_step(optimizers[0], recipe)
    graphs = set()
    compiles = []
    ways: tuple[Callable[[], object], ...] = (step, lambda: optimizers[1].step())  # noqa: PLW0108 - a scheduler replaces it.
    for optimizer, take_step in zip(optimizers, ways, strict=True):
        scheduler = LinearLR(optimizer, total_iters=8)
        for index in range(10):
            take_step()
            if take_step is step:
                compiles.append(counters["stats"]["unique_graphs"])
                assert step.learning_rates == pytest.approx((optimizer.param_groups[0]["lr"],))
                if index >= WARM_UP_CALLS:
                    graphs.add(id(graph_of(step)))
            scheduler.step()
    assert len(graphs) == 1
    assert compiles[0] == compiles[-1]
    assert_same(*optimizers)


def test_lr_tensor_on_the_device() -> None:
    lr = torch.tensor(0.1, device="cuda")
    optimizer = torch.optim.Adam(make_small(device="cuda"), lr=lr, capturable=True)
    reference = torch.optim.Adam(make_small(device="cuda"), lr=0.1)
    step = build_step(optimizer, "flat_compiled_cudagraph")
    for index in range(8):
        lr.fill_(0.1 / (index + 1))
        reference.param_groups[0]["lr"] = 0.1 / (index + 1)
        step()
        reference.step()
    for parameter, expected in zip(parameters_of(optimizer), parameters_of(reference), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-3, atol=5e-5)


@pytest.mark.parametrize("recipe", ["fused_cudagraph", "flat_compiled_cudagraph"])
def test_constants_that_change_are_captured_anew(recipe: str) -> None:
    optimizer, reference = (torch.optim.AdamW(make_small(device="cuda"), weight_decay=0.1) for _ in range(2))
    step = build_step(optimizer, recipe)
    train(optimizer, step, 6)
    for both in (optimizer, reference):
        both.param_groups[0]["weight_decay"] = 0.0
    with pytest.warns(UserWarning, match="a hyperparameter other than lr changed, which a CUDA graph holds"):
        step()
    reference.param_groups[0]["weight_decay"] = 0.1
    train(reference, reference.step, 6)
    reference.param_groups[0]["weight_decay"] = 0.0
    for parameter, gradient in zip(parameters_of(reference), parameters_of(optimizer), strict=True):
        parameter.grad = gradient.grad.clone() if gradient.grad is not None else None
    reference.step()
    train(optimizer, step, 6, first=6)
    train(reference, reference.step, 6, first=6)
    assert_same(optimizer, reference)


def test_scheduler_that_cycles_the_betas() -> None:
    optimizers = [torch.optim.Adam(make_small(device="cuda"), lr=0.1) for _ in range(2)]
    step = build_step(optimizers[0], "fused_cudagraph")
    ways: tuple[Callable[[], object], ...] = (step, lambda: optimizers[1].step())  # noqa: PLW0108 - a scheduler replaces it.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for optimizer, take_step in zip(optimizers, ways, strict=True):
            scheduler = OneCycleLR(optimizer, max_lr=0.2, total_steps=8)
            for _ in range(6):
                take_step()
                scheduler.step()
    assert len([warning for warning in warned if "cycle_momentum=False" in str(warning.message)]) == 1
    assert_same(*optimizers)


def kept_elsewhere(parameters: list[torch.Tensor]) -> list[Any]:
    kept = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return kept


@pytest.mark.parametrize("n_steps", [1, 6], ids=["while warming up", "captured"])
@pytest.mark.parametrize(
    "change",
    [
        lambda o: o.zero_grad(),
        lambda o: setattr(parameters_of(o)[1], "grad", None),
        lambda o: setattr(parameters_of(o)[-1], "grad", torch.ones_like(parameters_of(o)[-1])),
        lambda o: kept_elsewhere(parameters_of(o)),
    ],
    ids=["zero_grad", "one is None", "one is new", "all are new and the old kept"],
)
@pytest.mark.parametrize("recipe", ["fused_cudagraph", "flat_compiled_cudagraph"])
def test_moved_gradients_raise(recipe: str, change: Callable[[Optimizer], object], n_steps: int) -> None:
    optimizer = torch.optim.Adam(make_small(device="cuda"))
    step = build_step(optimizer, recipe)
    train(optimizer, step, n_steps)
    before = [parameter.detach().clone() for parameter in parameters_of(optimizer)]
    kept = change(optimizer)
    with pytest.raises(StaleGradientError, match=r"clear them with step\.zero_grad\(\)"):
        step()
    for parameter, value in zip(parameters_of(optimizer), before, strict=True):
        assert torch.equal(parameter, value)
    del kept


@pytest.mark.parametrize("recipe", GRAPHS)
def test_a_model_trains_with_gradients_kept_in_place(recipe: str) -> None:
    results = []
    for use_recipe in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        step = build_step(optimizer, recipe) if use_recipe else None
        generator = torch.Generator("cuda").manual_seed(0)
        for _ in range(10):
            model(torch.randn(4, 6, device="cuda", generator=generator)).square().sum().backward()
            if step is None:
                optimizer.step()
                optimizer.zero_grad()
            else:
                step()
                step.zero_grad()
        results.append(optimizer)
    assert_same(*results)


def test_a_moved_model_raises() -> None:
    model = torch.nn.Linear(3, 3).cuda()
    model(torch.ones(3, device="cuda")).sum().backward()
    step = build_step(torch.optim.Adam(model.parameters()), "flat_compiled_cudagraph")
    step()
    model.cpu()
    with pytest.raises(RecipeError, match="moved to other memory"):
        step()


@pytest.mark.parametrize("recipe", ["fused_cudagraph", "flat_compiled_cudagraph"])
def test_loading_a_checkpoint_keeps_the_graph(recipe: str) -> None:
    optimizer, reference = (torch.optim.Adam(make_small(device="cuda")) for _ in range(2))
    step = build_step(optimizer, recipe)
    train(reference, reference.step, 3)
    checkpoint = copy.deepcopy(reference.state_dict())
    train(optimizer, step, 6)
    graph = graph_of(step)
    assert graph is not None
    train(reference, reference.step, 3, first=3)
    for both in (optimizer, reference):
        both.load_state_dict(copy.deepcopy(checkpoint))
    train(optimizer, step, 4)
    train(reference, reference.step, 4)
    assert graph_of(step) is graph
    assert_same(optimizer, reference)
    step.close()
    train(optimizer, optimizer.step, 2)
    train(reference, reference.step, 2)
    assert_same(optimizer, reference)


def test_parameters_on_two_devices() -> None:
    on_cpu, on_cuda = make_small()[:1], make_small(device="cuda")[1:2]
    optimizer = torch.optim.Adam([*on_cpu, *on_cuda])
    reason = why_not(optimizer, "fused_cudagraph")
    assert reason == "a CUDA graph needs all parameters on a CUDA device, and some are on cpu"
    verdicts = check_sameness(optimizer, ["foreach", "flat_fused"])
    assert [verdict.reason for verdict in verdicts] == ["", ""]
