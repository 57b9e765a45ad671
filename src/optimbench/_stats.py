"""The statistics of block times: plain numpy, no torch, no text."""

from collections.abc import Sequence

import numpy as np

# Resamples of a bootstrap: enough for the 0.5 % and 99.5 % points to rest on 20 resamples each.
_RESAMPLES = 4_000
# The interval's confidence. At 99 %, and with the verdict read from it, A against A is called different in
# about one comparison of a hundred; at 95 % it would be one in twenty, too many for a page of twenty rows.
CONFIDENCE = 0.99
# Tukey's fences: samples farther than this many IQRs from the quartiles are counted as outliers.
_FENCE_IQRS = 1.5


def median(samples: Sequence[float]) -> float:
    """The median of the samples, in their unit."""
    return float(np.median(samples))


def interquartile_range(samples: Sequence[float]) -> float:
    """The distance between the first and the third quartile, in the samples' unit."""
    low, high = np.percentile(samples, [25, 75])
    return float(high - low)


def count_outliers(samples: Sequence[float]) -> int:
    """How many samples lie outside Tukey's fences; they are counted, never dropped."""
    values = np.asarray(samples)
    low, high = np.percentile(values, [25, 75])
    reach = _FENCE_IQRS * (high - low)
    return int(np.count_nonzero((values < low - reach) | (values > high + reach)))


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of two medians and its interval, from samples that were taken in the same rounds.

    Rounds are resampled, not samples, so that a drift which hit both sides of a round alike cancels
    (a paired percentile bootstrap, Efron and Tibshirani 1993, chapter 13). The seed is fixed: the same
    samples give the same interval.

    Args:
        numerators: Times of one step, (n_rounds,).
        denominators: Times of the other in the same rounds, (n_rounds,).

    Returns:
        Ratio, lower and upper bound.
    """
    over, under = np.asarray(numerators, float), np.asarray(denominators, float)
    rounds = np.random.default_rng(0).integers(0, over.size, (_RESAMPLES, over.size))
    ratios = np.median(over[rounds], axis=1) / np.median(under[rounds], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return float(np.median(over) / np.median(under)), float(low), float(high)
