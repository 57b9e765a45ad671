"""Recipes on any of torch's optimizers, as `python -m optimbench compare` measures them."""

from typing import Any

import msgspec
import pytest
import torch

from optimbench.__main__ import main
from optimbench._chosen_recipes import compare_recipes, make_optimizer, own_step
from optimbench.errors import InvalidArgumentError
from optimbench.isolation import run_isolated
from optimbench.results import Comparison
from optimizers import parameters_of


def tiny(name: str, **settings: Any) -> torch.optim.Optimizer:
    return make_optimizer(name, "ten_layers", "cpu", 0.001, 2, **settings)


def compared(optimizer: torch.optim.Optimizer, *recipes: str, has_check: bool = True) -> Comparison:
    return compare_recipes(optimizer, recipes, has_check=has_check, min_run_time_s=0.02, turn=None)


def outcomes(found: Comparison) -> dict[str, str]:
    return {missing.name: missing.outcome for missing in found.not_measured}


def test_settings_and_tensors() -> None:
    optimizer = tiny("Adam", lr=0.5, amsgrad=True)
    assert [tuple(parameter.shape) for parameter in parameters_of(optimizer)] == [(2, 1024)] * 2
    assert (optimizer.defaults["lr"], optimizer.defaults["amsgrad"]) == (0.5, True)
    assert len(parameters_of(make_optimizer("Adam", "ten_layers", "cpu", 0.001))) == 10


@pytest.mark.parametrize("settings", [{"lr": -1.0}, {"unheard_of": 1}])
def test_refused_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="Adam cannot be made: "):
        tiny("Adam", **settings)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "Adafactor", "Muon"])
def test_unusual_optimizers_are_measured_and_left_alone(name: str) -> None:
    optimizer = tiny(name)
    before = [parameter.detach().clone() for parameter in parameters_of(optimizer)]
    found = compared(optimizer, "fused", "fused_cudagraph")
    assert [row.name for row in found.rows] == ["eager"]
    assert found.row("eager").warnings == tuple(w for w in found.row("eager").warnings if "finite" not in w)
    assert outcomes(found) == {"fused": "not possible", "fused_cudagraph": "not possible"}
    for parameter, value in zip(parameters_of(optimizer), before, strict=True):
        assert torch.equal(parameter, value)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "Adafactor", "Muon"])
def test_their_own_step_updates_every_time(name: str) -> None:
    # A closure whose loss stays as it is could as well end the step before the update.
    optimizer = tiny(name)
    step = own_step(optimizer)
    for _ in range(3):
        before = [parameter.detach().clone() for parameter in parameters_of(optimizer)]
        step()
        for parameter, value in zip(parameters_of(optimizer), before, strict=True):
            assert not torch.equal(parameter, value)


def test_recipe_that_cannot_be_compiled_has_failed() -> None:
    config = {"cpp.cxx": ("/nonexistent/c++",), "fx_graph_cache": False}
    with torch._inductor.config.patch(config):
        found = compared(tiny("Adam"), "fused", "flat_compiled")
    assert [row.name for row in found.rows] == ["eager", "fused"]
    assert outcomes(found) == {"flat_compiled": "failed"}
    assert "needs a C++ compiler" in found.not_measured[0].reason


def test_recipe_that_does_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = torch._fused_sgd_

    def twice(*arguments: Any, **settings: Any) -> None:
        fused(*arguments, **settings)
        fused(*arguments, **settings)

    monkeypatch.setattr(torch, "_fused_sgd_", twice)
    found = compared(tiny("SGD"), "fused")
    assert outcomes(found) == {"fused": "different result"}
    assert [row.name for row in compared(tiny("SGD"), "fused", has_check=False).rows] == ["eager", "fused"]


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--device", "cpu", "--tensors", "1", "--scale", "0.001", "--min-run-time", "0.02"]
    words = ["compare", *small, "--recipes", "fused", "--settings"]
    assert main([*words, '{"amsgrad": true}', "--no-check"]) == 0
    assert "fused" in capsys.readouterr().out
    assert main([*words, '{"lr": 0.5}', "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Comparison)
    assert [row.name for row in found.rows] == ["eager", "fused"]
    assert main([*words, "[1]"]) == 1
    assert "settings is '[1]' (expected a JSON object)" in capsys.readouterr().err
    for option in ("tensors", "threads"):
        assert main([*words, "{}", f"--{option}", "0"]) == 1
        assert f"{option} is 0 (expected at least 1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("tpu", "device is 'tpu' (expected"),
        ("meta", "device is 'meta' (expected"),
        ("", "device is '' (expected"),
        ("cpu:1", "device is 'cpu:1' (expected"),
        ("cuda:999", "CUDA device"),
    ],
)
def test_a_device_that_is_none_is_refused(device: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("compare", "recommend"):
        assert main([command, "--device", device, "--scale", "0.001"]) == 1
        shown = capsys.readouterr().err
        assert shown.startswith("optimbench: ")
        assert said in shown


@pytest.mark.parametrize("seconds", ["0", "nan", "inf"])
def test_a_time_that_is_none_is_refused_before_anything_is_compiled(
    seconds: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("_chosen_recipes", "recommendation"):
        monkeypatch.setattr(f"optimbench.{module}.check_sameness", lambda *_, **__: pytest.fail("too late"))
    for command in ("compare", "recommend"):
        words = [command, "--device", "cpu", "--scale", "0.001", "--min-run-time", seconds]
        assert main(words) == 1
        assert "min_run_time_s is" in capsys.readouterr().err


def test_threads() -> None:
    words = ["compare", "--device", "cpu", "--tensors", "1", "--scale", "0.001", "--min-run-time", "0.02"]
    # In a process of its own, since the number stays as it is set.
    found = run_isolated("it", [*words, "--recipes", "fused", "--threads", "1"])
    assert isinstance(found, Comparison), found
    assert {row.num_threads for row in found.rows} == {1}
