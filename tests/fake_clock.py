"""A clock that only steps move, so that timing is tested without a machine's noise."""

from collections.abc import Callable

import numpy as np


class FakeClock:
    """Seconds since the start of the test; `step` makes steps that take a known time on it."""

    def __init__(self, seed: int = 0) -> None:
        self.now_s = 0.0
        self._random = np.random.default_rng(seed)

    def __call__(self) -> float:
        return self.now_s

    def step(self, duration_s: float, *, first_s: float = 0.0) -> Callable[[], None]:
        """A step of exactly this duration, whose first call takes `first_s` more."""
        calls = 0

        def step() -> None:
            nonlocal calls
            self.now_s += duration_s + (first_s if calls == 0 else 0.0)
            calls += 1

        return step

    def noisy_step(self, duration_s: float, *, noise: float, drift: float, outliers: float) -> Callable[[], None]:
        """A step with normal noise, a slow drift common to all steps of this clock, and rare long calls."""

        def step() -> None:
            slow = 1 + drift * np.sin(self.now_s)
            factor = 1 + noise * self._random.standard_normal()
            if self._random.random() < outliers:
                factor += self._random.exponential(2.0)
            self.now_s += duration_s * slow * max(factor, 0.1)

        return step
