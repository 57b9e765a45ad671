"""What a measurement gives: frozen values that print as a table, show as HTML and encode as JSON.

Every result has the same four views: `repr` names the fields, `str` is an aligned table, `_repr_html_` is the
same table for notebooks and pages, and `msgspec.json.encode` writes the fields under their own names.
Seconds and bytes are stored; units are chosen when shown.
"""

from optimbench.results._base import Result
from optimbench.results._comparison import Comparison, NotMeasured, Ratio, Speedup
from optimbench.results._measurement import Measurement
from optimbench.results._recommendation import FirstCalls, Recommendation
from optimbench.results._recompile_log import Compilation, GraphBreak, RecompileLog
from optimbench.results._table import Bandwidth, Table

__all__ = [
    "Bandwidth",
    "Comparison",
    "Compilation",
    "FirstCalls",
    "GraphBreak",
    "Measurement",
    "NotMeasured",
    "Ratio",
    "Recommendation",
    "RecompileLog",
    "Result",
    "Speedup",
    "Table",
]
