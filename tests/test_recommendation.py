"""Which recipe is recommended, what is said of it, and the command line."""

import json
from typing import Any

import msgspec
import pytest
import torch

from optimbench.__main__ import main
from optimbench.comparison import compare_measurements
from optimbench.errors import InvalidArgumentError, NoGradientError, RecipeError
from optimbench.recommendation import Progress, _choose, recommend
from optimbench.results import Comparison, FirstCalls, Measurement, NotMeasured, Recommendation
from optimizers import make_small, parameters_of


def measured(name: str, wall_s: float, noise: float = 0.001) -> Measurement:
    blocks = tuple(wall_s * (1 + noise * (index - 10) / 10) for index in range(21))
    quartiles = (blocks[15] - blocks[5], wall_s)
    return Measurement(
        name=name,
        device="cpu",
        num_threads=1,
        calls_per_block=1,
        block_times_s=blocks,
        median_s=quartiles[1],
        iqr_s=quartiles[0],
        warm_up_calls=5,
        first_call_s=wall_s,
        warm_up_s=5 * wall_s,
    )


def comparison(**walls_s: float) -> Comparison:
    return compare_measurements([measured(name, wall_s) for name, wall_s in walls_s.items()], baseline="yours")


@pytest.mark.parametrize(
    ("walls_s", "chosen"),
    [
        ({"yours": 1.0, "fused": 0.5, "flat_compiled": 0.25}, "flat_compiled"),
        # About as fast, and it asks less of the training loop.
        ({"yours": 1.0, "fused": 0.254, "flat_compiled": 0.25}, "fused"),
        ({"yours": 1.0, "fused": 0.999, "flat_compiled": 1.5}, "yours"),
        ({"yours": 1.0}, "yours"),
    ],
)
def test_choice(walls_s: dict[str, float], chosen: str) -> None:
    assert _choose(comparison(**walls_s)) == chosen


def test_noise_is_no_reason_to_change() -> None:
    noisy = compare_measurements(
        [measured("yours", 1.0), Measurement(**{**_fields(measured("fused", 0.98)), **_wild(0.98)})], baseline="yours"
    )
    assert noisy.row("fused").median_s < noisy.row("yours").median_s
    assert _choose(noisy) == "yours"


def _fields(row: Measurement) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def _wild(median_s: float) -> dict[str, Any]:
    # Half of the blocks far below, half far above.
    blocks = tuple(median_s * factor for factor in [0.5] * 10 + [1.0] + [1.5] * 10)
    return {"block_times_s": blocks, "median_s": median_s, "iqr_s": median_s * 1.0}


def recommended() -> Recommendation:
    return Recommendation(
        optimizer="Adam",
        recipe="flat_compiled",
        comparison=comparison(yours=1.0, fused=2.0, flat_compiled=0.25),
        first_calls=(
            FirstCalls(name="fused", calls=5, total_s=10.0),
            FirstCalls(name="flat_compiled", calls=5, total_s=16.25),
        ),
        floor_s=0.2,
        not_used=(NotMeasured(name="fused_cudagraph", outcome="not possible", reason="there is no GPU"),),
        remarks=("said last",),
    )


def test_cost_and_gain() -> None:
    found = recommended()
    assert found.is_change
    # 16.25 s for five calls of 0.25 s is 15 s of getting ready, and each later step saves 0.75 s.
    assert found.break_even_steps("flat_compiled") == pytest.approx(20)
    assert found.break_even_steps("fused") is None
    headers, rows = found.headers_and_rows()
    assert headers[:2] == ["recipe", "wall [ms]"]
    assert [row[0] for row in rows] == ["yours", "fused", "flat_compiled", "fused_cudagraph"]
    assert [row[2] for row in rows] == ["baseline", "2.00x slower", "4.00x faster", "–"]  # noqa: RUF001
    assert [row[3] for row in rows] == ["0.20", "0.10", "0.80", "–"]  # noqa: RUF001
    assert [row[5] for row in rows] == ["–", "–", "20 steps", "–"]  # noqa: RUF001
    assert [row[6] for row in rows] == ["", "", "use this", "not possible"]
    assert found.notes()[-2:] == ["fused_cudagraph: not possible. there is no GPU", "said last"]


def test_code_to_paste_runs() -> None:
    (weight,) = make_small(shapes=[(3,)])
    weight.grad = None
    optimizer = torch.optim.SGD([weight], lr=0.5)
    before = weight.detach().clone()
    found = msgspec.structs.replace(recommended(), recipe="fused")
    exec(found.code, {"optimizer": optimizer, "loss": weight.sum()})
    torch.testing.assert_close(weight.detach(), before - 0.5)
    unchanged = msgspec.structs.replace(recommended(), recipe="yours")
    assert (unchanged.is_change, unchanged.code) == (False, "optimizer.step()")


def test_round_trip() -> None:
    found = recommended()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Recommendation) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": "foreach"}, "no row is named 'foreach'"),
        ({"floor_s": 0.0}, "floor_s is 0.0"),
        ({"first_calls": (FirstCalls(name="fused", calls=5, total_s=-1.0),)}, r"first_calls\[0\]\.total_s is -1"),
        ({"first_calls": (FirstCalls(name="fused", calls=0, total_s=1.0),)}, r"first_calls\[0\]\.calls is 0"),
    ],
)
def test_impossible_recommendations_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        msgspec.structs.replace(recommended(), **change)


def test_recommend_on_copies() -> None:
    optimizer = torch.optim.RMSprop(make_small(shapes=[(50, 20), (30,)]), lr=0.01)
    before = [parameter.detach().clone() for parameter in parameters_of(optimizer)]
    told: list[Progress] = []
    found = recommend(optimizer, min_run_time_s=0.05, progress=told.append)
    names = ["yours", "forloop", "foreach", "compiled", "flat_compiled"]
    assert [row.name for row in found.comparison.rows] == names
    assert [first.name for first in found.first_calls] == names[1:]
    assert all(first.total_s > 0 for first in found.first_calls)
    reasons = {step.name: step.reason for step in found.not_used}
    assert reasons["fused"] == "RMSprop has no fused implementation"
    assert "needs all parameters on a CUDA device" in reasons["compiled_cudagraph"]
    assert found.recipe in names
    is_described = any(note.startswith(f"{found.recipe}: ") for note in found.remarks)
    assert is_described is found.is_change
    assert found.floor_s is not None
    assert found.floor_s > 0
    assert [step.done for step in told] == list(range(len(names) + 2))
    assert told[-1].done == told[-1].total
    assert not optimizer.state
    for parameter, value in zip(parameters_of(optimizer), before, strict=True):
        assert torch.equal(parameter, value)


def test_recommend_without_gradients() -> None:
    optimizer = torch.optim.SGD(make_small())
    optimizer.zero_grad()
    with pytest.raises(NoGradientError):
        recommend(optimizer, min_run_time_s=0.05)


def test_recommend_refuses_before_anything_is_measured() -> None:
    told: list[Progress] = []
    with pytest.raises(InvalidArgumentError, match="min_run_time_s is 0"):
        recommend(torch.optim.SGD(make_small()), min_run_time_s=0, progress=told.append)
    with pytest.raises(RecipeError, match=r"LBFGS\.step needs closure, so it cannot be measured as it is"):
        recommend(torch.optim.LBFGS(make_small()), progress=told.append)
    with pytest.raises(InvalidArgumentError, match=r"optimizer is a Linear \(expected a torch\.optim\.Optimizer\)"):
        recommend(torch.nn.Linear(2, 2), progress=told.append)  # type: ignore[arg-type]
    assert not told


class WithoutRate(torch.optim.Optimizer):
    """A user's own, whose only setting has another name."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"rate": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - the signature that torch gives.
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad * group["rate"])


class NotCompiled(torch.optim.SGD):
    """A user's own, which torch.compile passes over."""

    step = torch.compiler.disable(torch.optim.SGD.step)  # type: ignore[no-untyped-call]


def test_recommend_leaves_out_what_cannot_be_used_and_says_why() -> None:
    found = recommend(WithoutRate(make_small()), min_run_time_s=0.05)
    assert found.recipe == "yours"
    assert {step.reason for step in found.not_used if step.name == "forloop"} == {
        "a param group of this WithoutRate has no lr, which a recipe carries over"
    }
    found = recommend(NotCompiled(make_small()), min_run_time_s=0.05)
    (compiled,) = (step for step in found.not_used if step.name == "compiled")
    assert (compiled.outcome, compiled.reason[:9]) == ("failed", "it failed")


def test_recommend_for_parameters_without_elements() -> None:
    found = recommend(torch.optim.SGD(make_small(shapes=[(0,)])), min_run_time_s=0.05)
    assert found.floor_s is None
    assert "the parameters that have a gradient have no elements, so a step moves no bytes" in found.remarks


def test_command_line_recommends(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "recommend --workload ten_layers --optimizer SGD --device cpu --scale 0.001 --min-run-time 0.05 --json"
    assert main(arguments.split()) == 0
    shown = capsys.readouterr()
    found = msgspec.json.decode(shown.out, type=Recommendation)
    assert found.optimizer == "SGD"
    assert "[########################] 8/8 done" in shown.err


def test_command_line_describes_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["torch"] == torch.__version__
    assert main(["env"]) == 0
    assert torch.__version__ in capsys.readouterr().out


def test_command_line_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optimbench.recommendation.recommend", interrupt)
    assert main(["recommend", "--scale", "0.001", "--device", "cpu"]) == 130
    assert capsys.readouterr().err == "\noptimbench: interrupted\n"


def test_command_line_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--scale", "2", "--device", "cpu"]) == 1
    assert capsys.readouterr().err == "optimbench: scale is 2.0 (expected more than 0 and at most 1)\n"
    with pytest.raises(SystemExit) as caught:
        main(["recommend", "--workload", "resnet"])
    assert caught.value.code == 2
