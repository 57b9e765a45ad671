"""Compiles and recompiles, with reasons."""

import html
from typing import ClassVar

import msgspec

from optimbench import _format
from optimbench.errors import InvalidArgumentError
from optimbench.results._base import Result, check_times


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of torch.compile to compile a frame.

    Attributes:
        function: The compiled function's name, for example "step".
        location: Its file and line, relative to site-packages or to the script: "torch/optim/adam.py:213".
        is_recompile: Whether a guard of an earlier compile of the same function had failed.
        duration_s: Seconds it took, or None where torch does not say.
        reasons: Why it was recompiled, in words: "lr of param group 0 changed from 0.01 to 0.009".
        guards: The guards that failed as torch prints them, without paths and memory addresses.
        hint: What to do about it, or "".
        failure: Why it failed, or "".
        call: The watched step's call, counted from one, in which it happened; None if no step was watched.

    Example:
        >>> import optimbench as ob
        >>> compilation = ob.Compilation(
        ...     function="step", location="train.py:7", is_recompile=True, reasons=("lr changed from 0.01 to 0.009",)
        ... )
        >>> "; ".join(compilation.reasons)
        'lr changed from 0.01 to 0.009'
    """

    function: str
    location: str
    is_recompile: bool
    duration_s: float | None = None
    reasons: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    hint: str = ""
    failure: str = ""
    call: int | None = None


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for which torch.compile left the graph or ran a whole frame eagerly, and how often.

    Attributes:
        reason: In torch's words, first line, without paths.
        count: How often it happened.

    Example:
        >>> import optimbench as ob
        >>> broken = ob.GraphBreak(reason="call of print", count=3)
        >>> f"{broken.reason}: {broken.count} times"
        'call of print: 3 times'
    """

    reason: str
    count: int


class RecompileLog(Result, tag="recompile_log", frozen=True, kw_only=True):
    """Every compile and recompile that happened in a block of code.

    Attributes:
        compilations: In the order they happened.
        recompile_limit: How often torch compiles one function before it gives up.
        over_limit: The functions that passed the limit: torch has compiled no more of them since, and runs them eagerly
            wherever none of the compiles it has fits.
        eager_since_call: The first call of the watched step that ran eagerly for that reason, or None.
        calls: Calls of the watched step, or None if none was watched.
        graph_breaks: Where the graph broke.
        not_compiled: Why nothing was compiled, or "".

    Example:
        >>> import optimbench as ob
        >>> first = ob.Compilation(function="step", location="train.py:7", is_recompile=False, call=1)
        >>> log = ob.RecompileLog(compilations=(first,), recompile_limit=8, calls=5)
        >>> log.summary
        '1 compiled, 0 of them again because a guard failed.'
    """

    caption: ClassVar[str] = "Compiles and recompiles"

    compilations: tuple[Compilation, ...]
    recompile_limit: int
    over_limit: tuple[str, ...] = ()
    eager_since_call: int | None = None
    calls: int | None = None
    graph_breaks: tuple[GraphBreak, ...] = ()
    not_compiled: str = ""

    def __post_init__(self) -> None:
        """Refuse counts that cannot be.

        Raises:
            InvalidArgumentError: A count is negative, or a duration is not a finite time.
        """
        check_times("duration_s", [c.duration_s for c in self.compilations if c.duration_s is not None])
        counts = [self.recompile_limit, self.calls or 0, self.eager_since_call or 0]
        if min([*counts, *[broken.count for broken in self.graph_breaks]]) < 0:
            raise InvalidArgumentError(f"a count is negative: {self!r}")

    @property
    def n_compiles(self) -> int:
        """Successful compiles, recompiles among them."""
        return sum(not compilation.failure for compilation in self.compilations)

    @property
    def n_recompiles(self) -> int:
        """Successful compiles that a failed guard had caused."""
        return sum(c.is_recompile and not c.failure for c in self.compilations)

    @property
    def limit_hit(self) -> bool:
        """Whether a function passed the recompile limit, so that it has been eager since."""
        return bool(self.over_limit)

    @property
    def summary(self) -> str:
        """One sentence that never says "0 recompiles" of something that was not compiled."""
        if not self.n_compiles:
            return f"Not compiled. {self.not_compiled}".strip()
        said = f"{self.n_compiles} compiled, {self.n_recompiles} of them again because a guard failed."
        n_failed = len(self.compilations) - self.n_compiles
        if n_failed:
            said += f" {n_failed} more failed to compile."
        if self.limit_hit:
            since = f" since call {self.eager_since_call}" if self.eager_since_call else ""
            functions = ", ".join(self.over_limit)
            said += (
                f" The limit of {self.recompile_limit} compiles was passed: {functions} has been eager{since} wherever"
                " no earlier compile fits, so no time of this step is that of a compiled one."
            )
        return said

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """A row a compile, in order."""
        rows = []
        for number, c in enumerate(self.compilations, 1):
            call = _format.MISSING if c.call is None else str(c.call)
            took = _format.MISSING if c.duration_s is None else _format.seconds(c.duration_s)
            why = "; ".join(c.reasons) or ("" if c.is_recompile else "first compile")
            rows.append([f"{number}", call, f"{c.function} ({c.location})", took, c.failure or why])
        return ["compile", "call", "function", "took", "why"], rows

    def notes(self) -> list[str]:
        """The summary first, then hints and graph breaks."""
        hints = list(dict.fromkeys(c.hint for c in self.compilations if c.hint))
        breaks = [f"Graph break, {broken.count}x: {broken.reason}" for broken in self.graph_breaks]
        return [self.summary, *hints, *breaks]

    def __str__(self) -> str:
        return super().__str__() + "".join(f"\n    {guard}" for guard in self._guards())

    def _repr_html_(self) -> str:
        guards = "\n".join(self._guards())
        shown = super()._repr_html_()
        if not guards:
            return shown
        title = f"The {len(self._guards())} failed guards as torch prints them"
        return (
            f'{shown}<details class="ob-log"><summary>{title}</summary>'
            f'<pre tabindex="0">{html.escape(guards)}</pre></details>'
        )

    def _guards(self) -> list[str]:
        return [guard for compilation in self.compilations for guard in compilation.guards]
