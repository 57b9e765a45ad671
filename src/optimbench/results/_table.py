"""Plain tables and the copy bandwidth."""

import math
from typing import ClassVar

from optimbench import _format, _stats
from optimbench.errors import InvalidArgumentError
from optimbench.results._base import Result, check_summary, check_times

# From here on the general format writes four digits with an exponent.
_LARGE = 9999.5


class Table(Result, tag="table", frozen=True, kw_only=True):
    """Numbers and words that are neither a time nor a log, for example a learning rate step by step.

    Attributes:
        name: The table's caption.
        columns: The headers, with units.
        cells: Rows of cells, (n_rows, n_columns).
        remarks: Sentences below the table.

    Example:
        >>> import optimbench as ob
        >>> print(ob.Table(name="Rates", columns=("step", "lr"), cells=((1, 0.1), (2, 0.09)), remarks=("Why.",)))
        Rates
        <BLANKLINE>
          step    lr
        ------  ----
             1   0.1
             2  0.09
        * Why.
    """

    name: str
    columns: tuple[str, ...]
    cells: tuple[tuple[str | int | float | None, ...], ...]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a table that is not rectangular.

        Raises:
            InvalidArgumentError: A row has another number of cells than there are columns, or a number is
                not finite.
        """
        for index, row in enumerate(self.cells):
            if len(row) != len(self.columns):
                raise InvalidArgumentError(f"cells[{index}] has {len(row)} cells (expected {len(self.columns)})")
            for column, cell in enumerate(row):
                if isinstance(cell, float) and not math.isfinite(cell):
                    raise InvalidArgumentError(f"cells[{index}][{column}] is {cell} (expected a finite number)")

    def title(self) -> str:
        """The table's own name."""
        return self.name

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """The cells as text; a float has four significant digits."""
        return list(self.columns), [[_cell(value) for value in row] for row in self.cells]

    def notes(self) -> list[str]:
        """The remarks."""
        return list(self.remarks)


class Bandwidth(Result, tag="bandwidth", frozen=True, kw_only=True):
    """The copy bandwidth of a device: bytes read and bytes written, over the time of the copy.

    Attributes:
        device: "cuda" or "cpu".
        moved_bytes: Bytes read plus bytes written by one copy.
        block_times_s: Seconds a copy, one for each block, (n_blocks,).
        median_s: Their median, seconds.

    Example:
        >>> import optimbench as ob
        >>> bandwidth = ob.Bandwidth(device="cpu", moved_bytes=10**9, block_times_s=(0.1, 0.1, 0.2), median_s=0.1)
        >>> bandwidth.bytes_per_s
        10000000000.0
    """

    caption: ClassVar[str] = "Copy bandwidth"

    device: str
    moved_bytes: int
    block_times_s: tuple[float, ...]
    median_s: float

    def __post_init__(self) -> None:
        """Refuse what cannot be a bandwidth.

        Raises:
            InvalidArgumentError: Bytes or times are not positive, or the median is not that of the blocks.
        """
        if self.moved_bytes <= 0:
            raise InvalidArgumentError(f"moved_bytes is {self.moved_bytes} (expected more than 0)")
        if not self.block_times_s:
            raise InvalidArgumentError("block_times_s is empty (expected at least one block)")
        check_times("block_times_s", [*self.block_times_s, self.median_s], positive=True)
        check_summary("median_s", self.median_s, _stats.median(self.block_times_s))

    @property
    def bytes_per_s(self) -> float:
        """Bytes moved a second, read and written counted both."""
        return self.moved_bytes / self.median_s

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """One row."""
        moved = _format.byte_count(self.moved_bytes)
        rate = f"{_format.significant(self.bytes_per_s / 1e9)} GB/s"
        return ["device", "moved", "time", "bandwidth"], [[self.device, moved, _format.seconds(self.median_s), rate]]


def _cell(value: str | float | None) -> str:
    if value is None:
        return _format.MISSING
    if not isinstance(value, float):
        return str(value)
    # Large numbers without an exponent.
    return _format.significant(value, 4) if abs(value) >= _LARGE else f"{value:.4g}"
