"""Rests of a driver that others need inside MPI."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from workpool import clock
from workpool.driver import serving

#: What a flush takes that has nothing to do.
FLUSH_S = 2e-6


class Network:
    """A window that others want something of at some moments."""

    shared = False

    def __init__(self, *wanted_s: float) -> None:
        self.now = 0.0
        self.wanted_s = [*wanted_s]
        self.served_s: list[float] = []
        self.flushes = 0
        self.slept: list[float] = []

    def flush(self) -> None:
        self.flushes += 1
        self.now += FLUSH_S
        if self.wanted_s and self.wanted_s[0] < self.now:
            self.served_s.append(self.now - self.wanted_s.pop(0))
            self.now += 2 * serving.SERVED_S

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Any:
    def rest(window: Network, seconds: float) -> None:
        monkeypatch.setattr(serving, "monotonic", lambda: window.now)
        monkeypatch.setattr(serving, "sleep", window.sleep)
        serving.sleeping(window)(seconds)  # type: ignore[arg-type]

    return rest


def test_where_all_are_on_one_host_it_is_a_sleep() -> None:
    assert serving.sleeping(SimpleNamespace(shared=True)) is clock.sleep  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [50e-6, 1e-3, 5e-3, 10e-3])
def test_a_rest_takes_its_time(rest: Any, seconds: float) -> None:
    window = Network()
    window.now = 1.0
    rest(window, seconds)
    assert window.now - 1.0 == pytest.approx(seconds, abs=2 * FLUSH_S)
    assert window.flushes <= serving.ENTRIES + 2
    assert len(window.slept) == 1 or seconds <= serving.LONGEST_S


def test_who_has_been_served_is_served_again_at_once(rest: Any) -> None:
    """As the parts of a large put are, each of which waits until the last has come."""
    begin = 1.0 + 2e-3
    window = Network(*(begin + part * 0.8 * serving.AGAIN_S for part in range(12)))
    window.now = 1.0
    rest(window, 4e-3)
    assert len(window.served_s) == 12
    assert max(window.served_s[1:]) < 2 * serving.SERVED_S + 2 * FLUSH_S
