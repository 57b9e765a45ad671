"""The statistics of block times: plain numpy, no torch, no text."""

from collections.abc import Sequence

import numpy as np

# Resamples of a bootstrap: enough for the 0.5 % and 99.5 % points to rest on 20 resamples each.
_RESAMPLES = 4_000
# The interval's confidence. At 99 %, and with the verdict read from it, A against A leaves one out in
# about two comparisons of a hundred (simulated); at 95 % it would be one in twenty, too many for a page of twenty rows.
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
    """The typical ratio of two steps' times, and its interval, from samples taken in the same rounds.

    The statistic is the median over the rounds of the ratio within a round: what slows a whole round slows both
    sides of it and cancels. The interval is a percentile bootstrap over the rounds (Efron and Tibshirani, An
    Introduction to the Bootstrap, 1993, chapter 13). The seed is fixed: the same samples give the same interval.

    Args:
        numerators: Times of one step, (n_rounds,).
        denominators: Times of the other in the same rounds, (n_rounds,).

    Returns:
        Ratio, lower and upper bound.
    """
    ratios = np.asarray(numerators, float) / np.asarray(denominators, float)
    rounds = np.random.default_rng(0).integers(0, ratios.size, (_RESAMPLES, ratios.size))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(ratios[rounds], axis=1), [tail, 1 - tail])
    value = float(np.median(ratios))
    # Few rounds can leave the median just outside the percentiles of its own resamples.
    return value, min(float(low), value), max(float(high), value)


def unpaired_ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of two medians, and its interval, from samples that were not taken in the same rounds.

    Both sides are resampled on their own (percentile bootstrap, as in `ratio_interval`). What changed between the two
    occasions and not within them, for example the machine's temperature, is not in the interval.

    Args:
        numerators: Times on one occasion, (n,).
        denominators: Times on the other, (m,).

    Returns:
        Ratio, lower and upper bound.
    """
    random = np.random.default_rng(0)
    above, below = (np.asarray(samples, float) for samples in (numerators, denominators))
    medians = [np.median(s[random.integers(0, s.size, (_RESAMPLES, s.size))], axis=1) for s in (above, below)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians[0] / medians[1], [tail, 1 - tail])
    value = float(np.median(above) / np.median(below))
    return value, min(float(low), value), max(float(high), value)
