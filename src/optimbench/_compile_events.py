"""From torch's compilation metrics to a `RecompileLog`: what counts as a compile, and why there was none."""

import collections
import re
from collections.abc import Sequence
from typing import NamedTuple

from optimbench import _guards
from optimbench.devices import missing_compiler
from optimbench.results import RecompileLog
from optimbench.results._recompile_log import Compilation, GraphBreak

# After one of these torch runs one frame eagerly and goes on to compile the functions that it calls.
_SOFT_FAILURES = ("Unsupported", "UserError")
_PASSED_LIMIT = re.compile(r"recompile[_ ]?limit", re.IGNORECASE)
_LIMIT_NUMBER = re.compile(r"currently set to (\d+)")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
_DISABLED = re.compile(r"torch\.compiler\.disable.*?\(reason: (?P<reason>.+?)\)\s*$", re.DOTALL | re.MULTILINE)
_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>")
_SKIPPED = re.compile(r"the function (`[\w.<>]+`) in file")
# Optimizer.step breaks the graph on purpose, so this break explains nothing.
_DELIBERATE = "Call to `torch._dynamo.graph_break()`"
_NOTHING_TO_COMPILE = "A compiled function ran, but torch found no tensor operation in it: are there gradients?"


class Event(NamedTuple):
    """One entry of torch's compilation metrics, by names that do not change between its releases.

    Attributes:
        compile_id: Torch's number of the frame and of its compile, for example "2/0".
        name: The code's name; "" where torch gave up before it looked at the code.
        filename: Its file.
        line: Its first line.
        n_operations: Operations in the graph; 0 for a frame without one.
        duration_s: Seconds it took, or None.
        recompile_reason: The guard of an earlier compile that failed, or "".
        failure_type: The exception's class, or "".
        failure: The exception's text.
        suppressed: Whether torch swallows exceptions and runs eagerly instead.
        call: The watched step's call in which it happened, or None.
    """

    compile_id: str
    name: str
    filename: str
    line: int
    n_operations: int
    duration_s: float | None
    recompile_reason: str
    failure_type: str
    failure: str
    suppressed: bool
    call: int | None

    @classmethod
    def of(cls, metrics: object, call: int | None) -> "Event":
        """Read an entry; a field that this release of torch lacks counts as empty."""
        duration_us = getattr(metrics, "duration_us", None)
        return cls(
            compile_id=str(getattr(metrics, "compile_id", None) or ""),
            name=getattr(metrics, "co_name", None) or "",
            filename=getattr(metrics, "co_filename", None) or "",
            line=getattr(metrics, "co_firstlineno", None) or 0,
            n_operations=getattr(metrics, "graph_op_count", None) or 0,
            duration_s=None if duration_us is None else duration_us / 1e6,
            recompile_reason=getattr(metrics, "recompile_reason", None) or "",
            failure_type=getattr(metrics, "fail_type", None) or "",
            failure=getattr(metrics, "fail_reason", None) or "",
            suppressed=bool(getattr(metrics, "config_suppress_errors", False)),
            call=call,
        )

    @property
    def passed_limit(self) -> bool:
        """Whether torch refused to compile because it had compiled this code too often."""
        return bool(self.failure_type and _PASSED_LIMIT.search(self.failure_type + self.failure))

    @property
    def failed(self) -> bool:
        """Whether an exception ended the compile that is neither a graph break nor the limit."""
        return bool(self.failure_type) and self.failure_type not in _SOFT_FAILURES and not self.passed_limit

    @property
    def code(self) -> tuple[str, int, str]:
        """What identifies the code; torch's own numbers start again after a reset."""
        return self.filename, self.line, self.name


def build_log(
    events: Sequence[Event],
    *,
    breaks: dict[str, int],
    recompile_limit: int,
    calls: int | None,
    switched_off: bool,
) -> RecompileLog:
    """The log of a block.

    A frame counts if one of its compiles put at least one operation into a graph: an optimizer's step is wrapped in
    functions that torch compiles to nothing but a call, and they would hide a step that is not compiled.

    Args:
        events: In the order they happened.
        breaks: How often the graph broke, by torch's reason.
        recompile_limit: How often torch compiles one function.
        calls: Calls of the watched step, or None if none was watched.
        switched_off: Whether torch.compile does nothing in this process.
    """
    with_graph = {event.code for event in events if event.n_operations}
    counted = [
        index
        for index, event in enumerate(events)
        if event.failed or (event.code in with_graph and not event.failure_type)
    ]
    past_limit = [index for index, event in enumerate(events) if event.passed_limit]
    said_limit = next((found for i in past_limit if (found := _LIMIT_NUMBER.search(events[i].failure))), None)
    since = [call for index in past_limit if (call := events[index].call) is not None]
    return RecompileLog(
        compilations=tuple(_compilation(events, index) for index in counted),
        recompile_limit=int(said_limit[1]) if said_limit else recompile_limit,
        over_limit=tuple(dict.fromkeys(_name(_frame_of(events, index).name) for index in past_limit)),
        eager_since_call=min(since, default=None),
        calls=calls,
        graph_breaks=_graph_breaks(events, breaks),
        not_compiled="" if with_graph else _why_not(events, breaks, switched_off=switched_off),
    )


def _compilation(events: Sequence[Event], index: int) -> Compilation:
    event, code = events[index], _frame_of(events, index)
    guard = _guards.parse(event.recompile_reason) if event.recompile_reason else None
    failure = _describe_failure(event) if event.failed else ""
    return Compilation(
        function=_name(code.name),
        location=f"{_guards.shorten_path(code.filename)}:{code.line}",
        is_recompile=guard is not None,
        duration_s=event.duration_s,
        reasons=(guard.told(_value_compiled_for(events, index, guard.subject)),) if guard else (),
        guards=(guard.text,) if guard else (),
        hint=guard.hint if guard else "",
        failure=f"fell back to eager: {failure}" if failure and event.suppressed else failure,
        call=event.call,
    )


def _value_compiled_for(events: Sequence[Event], index: int, subject: str) -> str:
    """The value that a compile has built in, which torch tells only when a guard on it fails later; "" if none does."""
    for later in events[index + 1 :]:
        if later.compile_id == events[index].compile_id:
            break  # Torch was reset and numbers from the start.
        guard = _guards.parse(later.recompile_reason)
        if subject and guard.subject == subject and guard.entry == events[index].compile_id:
            return guard.value
    return ""


def _frame_of(events: Sequence[Event], index: int) -> Event:
    """The event that names the code: where torch refuses to compile, it gives the frame's number alone."""
    frame = events[index].compile_id.rpartition("/")[0]
    same_frame = (event for event in reversed(events[: index + 1]) if event.compile_id.rpartition("/")[0] == frame)
    return next((event for event in same_frame if event.name), events[index])


def _name(code_name: str) -> str:
    resumed = _RESUMED.fullmatch(code_name)
    return f"{resumed[1]}, resumed at line {resumed[2]}" if resumed else code_name or "a function"


def _first_line(text: str) -> str:
    return _guards.clean(text.strip().splitlines()[0]) if text.strip() else ""


def _describe_failure(event: Event) -> str:
    missing = missing_compiler(RuntimeError(event.failure))
    if missing is not None:
        return str(missing)
    # "backend='inductor' raised:" says nothing; what it raised stands on the next line.
    lines = event.failure.strip().splitlines()
    telling = lines[1] if len(lines) > 1 and lines[0].endswith("raised:") else (lines or [""])[0]
    return f"{event.failure_type}: {_first_line(telling)}"


def _disabled_because(reason: str) -> str:
    """Why torch's authors disabled a function for the compiler, or ""."""
    found = _DISABLED.search(reason)
    return _CLASS.sub(r"\1", found["reason"]) if found else ""


def _break_in_words(reason: str) -> str:
    """The first line of torch's reason, with the name of the function it is about or why that is disabled."""
    about = _disabled_because(reason) or ((found := _SKIPPED.search(reason)) and found[1])
    return _first_line(reason) + (f" ({about})" if about else "")


def _graph_breaks(events: Sequence[Event], breaks: dict[str, int]) -> tuple[GraphBreak, ...]:
    counts: collections.Counter[str] = collections.Counter()
    for reason, count in breaks.items():
        counts[_break_in_words(reason)] += count
    # Where torch cannot resume after a break, it runs the whole frame eagerly and does not count that as a break.
    counted = set(counts)
    for event in events:
        reason = _break_in_words(event.failure)
        if event.failure_type in _SOFT_FAILURES and not event.passed_limit and reason not in counted:
            counts[reason] += 1
    return tuple(GraphBreak(reason=reason, count=count) for reason, count in counts.items())


def _why_not(events: Sequence[Event], breaks: dict[str, int], *, switched_off: bool) -> str:
    """One or two sentences on why no operation was compiled."""
    failed = next((event for event in events if event.failed), None)
    if failed is not None:
        told = f"Compiling failed: {_describe_failure(failed)}."
        suppressing = " The step fell back to eager, since torch._dynamo.config.suppress_errors is set."
        return told + (suppressing if failed.suppressed else "")
    if breaks:
        return _why_broken(breaks)
    unsupported = next((event for event in events if event.failure_type), None)
    if unsupported is not None:
        return f"Compiling failed: {unsupported.failure_type}: {_first_line(unsupported.failure)}."
    if switched_off:
        return "torch.compile is switched off (TORCH_COMPILE_DISABLE or torch._dynamo.config.disable)."
    return _NOTHING_TO_COMPILE if events else "No function made by torch.compile ran."


def _why_broken(breaks: dict[str, int]) -> str:
    disabled = next((because for reason in breaks if (because := _disabled_because(reason))), "")
    if disabled:
        return f"torch.compile passes over this step, and it runs eagerly ({disabled})."
    telling = [told for reason in breaks if (told := _break_in_words(reason)) != _DELIBERATE]
    return f"The graph broke before an operation was compiled: {telling[0]}." if telling else _NOTHING_TO_COMPILE
