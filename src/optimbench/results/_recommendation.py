"""Which recipe to use, and what it gains and costs."""

from typing import ClassVar

import msgspec

from optimbench import _format
from optimbench.errors import InvalidArgumentError
from optimbench.results._base import Result, check_times
from optimbench.results._comparison import Comparison, NotMeasured


class FirstCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What getting a step ready costs.

    Attributes:
        name: The step, as in the comparison.
        calls: How many calls were timed.
        total_s: Seconds of those calls together, compiling included.

    Example:
        >>> import optimbench as ob
        >>> ob.FirstCalls(name="compiled", calls=5, total_s=12.5).total_s
        12.5
    """

    name: str
    calls: int
    total_s: float


class Recommendation(Result, tag="recommendation", frozen=True, kw_only=True):
    """The recipe to use for an optimizer on this machine, and what speaks for it.

    Attributes:
        optimizer: The optimizer's class.
        recipe: The recipe to use, or the baseline's name where none is better.
        comparison: The possible recipes, measured against the optimizer's own step.
        first_calls: What getting ready cost, one for each measured recipe.
        floor_s: Seconds a step takes at least, from its least bytes and the copy bandwidth; None where that is not
            known.
        not_used: The recipes that were not measured, and why.
        remarks: Sentences below the table.

    Example:
        >>> import optimbench as ob
        >>> steps = {"yours": lambda: sum(range(9999)), "fused": lambda: sum(range(99))}
        >>> comparison = ob.compare(steps, baseline="yours", min_run_time_s=0.01)
        >>> found = ob.Recommendation(optimizer="Adam", recipe="fused", comparison=comparison)
        >>> found.is_change
        True
        >>> print(found.code.splitlines()[0])
        from optimbench import build_step
    """

    caption: ClassVar[str] = "Recipes for this optimizer"

    optimizer: str
    recipe: str
    comparison: Comparison
    first_calls: tuple[FirstCalls, ...] = ()
    floor_s: float | None = None
    not_used: tuple[NotMeasured, ...] = ()
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a recommendation of what was not measured.

        Raises:
            InvalidArgumentError: The recipe is not a row of the comparison, or a time is not one.
        """
        self.comparison.row(self.recipe)
        check_times("floor_s", [] if self.floor_s is None else [self.floor_s], positive=True)
        for index, first in enumerate(self.first_calls):
            check_times(f"first_calls[{index}].total_s", [first.total_s])
            if first.calls < 1:
                raise InvalidArgumentError(f"first_calls[{index}].calls is {first.calls} (expected at least 1)")

    @property
    def is_change(self) -> bool:
        """Whether anything is better than the optimizer's own step."""
        return self.recipe != self.comparison.baseline

    @property
    def code(self) -> str:
        """Lines to paste into a training loop."""
        if not self.is_change:
            return "optimizer.step()"
        return "\n".join(
            [
                "from optimbench import build_step",
                "",
                f'step = build_step(optimizer, "{self.recipe}")  # schedulers and checkpoints use the optimizer',
                "",
                "loss.backward()",
                "step()  # instead of optimizer.step()",
                "step.zero_grad()  # instead of optimizer.zero_grad(): gradients stay where they are",
            ]
        )

    def break_even_steps(self, name: str) -> float | None:
        """After how many steps a recipe's first calls have paid for themselves against the optimizer's own step.

        Args:
            name: Of the recipe.

        Returns:
            A number of steps, or None where the recipe is not clearly faster, or its first calls were not timed.

        Raises:
            InvalidArgumentError: No row has this name.
        """
        if not self.comparison.speedup(name).wall.is_faster:
            return None
        saved_s = self.comparison.row(self.comparison.baseline).median_s - self.comparison.row(name).median_s
        for first in self.first_calls:
            if first.name == name and saved_s > 0:
                return max(0.0, first.total_s - first.calls * self.comparison.row(name).median_s) / saved_s
        return None

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """A row a measured recipe, the recommended one marked, then those that were not measured."""
        rows = self.comparison.rows
        time_header, times = _format.time_column("wall", [row.median_s for row in rows])
        headers = ["recipe", time_header, "against yours", "floor / wall", "first calls", "pays after", ""]
        first_s = {first.name: first.total_s for first in self.first_calls}
        cells = []
        for row, time in zip(rows, times, strict=True):
            share = _format.MISSING if self.floor_s is None else f"{self.floor_s / row.median_s:.2f}"
            verdict = self.comparison.speedup(row.name).wall.verdict
            steps = self.break_even_steps(row.name)
            cells.append(
                [
                    row.name,
                    time,
                    "baseline" if row.name == self.comparison.baseline else verdict,
                    share,
                    _format.seconds(first_s[row.name]) if row.name in first_s else _format.MISSING,
                    _format.MISSING if steps is None else f"{_format.significant(max(steps, 1), 2)} steps",
                    "use this" if row.name == self.recipe else "",
                ]
            )
        empty = [_format.MISSING] * 5
        cells += [[step.name, *empty, step.outcome] for step in (*self.comparison.not_measured, *self.not_used)]
        return headers, cells

    def notes(self) -> list[str]:
        """How it was timed, why recipes were not measured, and the remarks."""
        return [
            *self.comparison.notes(),
            *[f"{step.name}: {step.outcome}. {step.reason}" for step in self.not_used],
            *self.remarks,
        ]

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.code}"
