"""Signals to a launcher: what goes to the driver, and what ends a job that does not end."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Ended, Job
from launching import SIGNALS
from stand_in import launch

from workpool.launch.signals import Signals
from workpool.system.status import Watch

HANDLED = [*SIGNALS, signal.SIGUSR1, signal.SIGUSR2]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Give a launcher's half of the line, and leave signals as they were."""
    before = {signum: signal.getsignal(signum) for signum in HANDLED}
    with Watch(str(tmp_path)) as watch:
        yield watch
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_signals_are_the_launchers_for_a_while_if_they_are_not_ignored(watch: Watch) -> None:
    for signum in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)  # as nohup does
    before = [signal.getsignal(signum) for signum in HANDLED]
    with Signals(watch, grace_s=5):
        meanwhile = [signal.getsignal(signum) for signum in HANDLED]
    taken = [one is not other for one, other in zip(before, meanwhile, strict=True)]
    assert taken == [True, True, False, False, True]
    assert [signal.getsignal(signum) for signum in HANDLED] == before


@pytest.mark.parametrize(("signum", "limit_s"), [(signal.SIGTERM, 305), (signal.SIGHUP, 5)])
def test_it_is_sigterm_that_may_take_as_long_as_the_driver_says(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, signum: int, limit_s: float
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: told.append(given))
    watch.driver, watch.patience_s = 123, 300.0
    with Signals(watch, grace_s=5) as signals:
        signal.raise_signal(signum)
        assert signals.pass_on() == limit_s
    assert told == [(123, signum)]


@pytest.mark.parametrize(("interactive", "second_s"), [(False, 0), (True, math.inf)])
def test_a_second_interrupt_ends_what_is_no_shell(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, interactive: bool, second_s: float
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: told.append(given))
    watch.driver = 123
    with Signals(watch, grace_s=5, interactive=interactive) as signals:
        for limit_s in (math.inf, second_s):
            signal.raise_signal(signal.SIGINT)
            assert signals.pass_on() == limit_s
    assert told == [(123, signal.SIGINT)] * (2 if interactive else 1)


def test_any_signal_after_the_one_that_ends_the_job_waits_no_longer(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *given: None)
    watch.driver = 123
    with Signals(watch, grace_s=5) as signals:
        for signum, limit_s in ((signal.SIGHUP, 5), (signal.SIGTERM, 0)):
            signal.raise_signal(signum)
            assert (signals.pass_on(), signals.asked) == (limit_s, signal.SIGHUP)
        assert not signals.overdue


def test_a_signal_that_comes_with_the_end_is_what_the_job_has_ended_for(watch: Watch) -> None:
    with Signals(watch, grace_s=5) as signals:
        signal.raise_signal(signal.SIGTERM)
        signals.judge(driver_gone=False)
    assert signals.asked == signal.SIGTERM


@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_before_the_driver_begins(tmp_path: Path, signum: int) -> None:
    with Job(launch(tmp_path, "", before="echo started; sleep 30")) as started:
        started.signal(signum, after="started")
        assert started.wait(5) == (128 + signum, "started\n", "")


@pytest.mark.parametrize("signum", HANDLED)
def test_signal_goes_to_the_driver(tmp_path: Path, signum: int) -> None:
    program = (
        f"signal.signal({signum}, lambda *_: (reporter.ended(9), sys.exit()))\n"
        "print('ready', flush=True); time.sleep(30)"
    )
    with Job(launch(tmp_path, program)) as started:
        started.signal(signum, after="ready")
        assert started.wait(5).status == 9


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_driver_that_does_not_end_is_ended(tmp_path: Path, signum: int) -> None:
    program = f"signal.signal({signum}, signal.SIG_IGN); print('deaf', flush=True); time.sleep(30)"
    with Job(launch(tmp_path, program, grace_s=0.3)) as started:
        started.signal(signum, after="deaf")
        ended = started.wait(5)
    assert ended.status == 128 + signum
    assert "did not end in time" in ended.err


def test_a_driver_that_a_signal_has_ended_was_not_late(tmp_path: Path) -> None:
    with Job(launch(tmp_path, "print('ready', flush=True); time.sleep(30)")) as started:
        started.signal(signal.SIGTERM, after="ready")
        assert started.wait(5) == Ended(143, "begun\nready\n", "")


def test_a_program_that_catches_an_interrupt_goes_on(tmp_path: Path) -> None:
    program = (
        "try:\n    print('ready', flush=True); time.sleep(30)\n"
        "except KeyboardInterrupt:\n    time.sleep(1)\n"
        "reporter.ended(5)"
    )
    with Job(launch(tmp_path, program, grace_s=0.9)) as started:
        started.signal(signal.SIGINT, after="ready")
        assert started.wait(10) == Ended(5, "begun\nready\n", "")


CATCHES = """\
try:
    print('ready', flush=True); time.sleep(30)
except KeyboardInterrupt:
    print('caught', flush=True)
"""


def test_sigterm_after_an_interrupt_that_was_caught(tmp_path: Path) -> None:
    program = (
        "signal.signal(15, lambda *_: (time.sleep(0.5), reporter.ended(75), sys.exit()))\n"
        f"{CATCHES}time.sleep(30)"
    )
    with Job(launch(tmp_path, program, grace_s=10)) as started:
        started.signal(signal.SIGINT, after="ready")
        started.signal(signal.SIGTERM, after="caught")
        assert started.wait(10).status == 75


@pytest.mark.parametrize(("end", "status"), [("os._exit(6)", 6), ("os.kill(os.getpid(), 9)", 137)])
def test_a_failure_long_after_an_interrupt_is_told(tmp_path: Path, end: str, status: int) -> None:
    program = f"{CATCHES}time.sleep(1); {end}"
    with Job(launch(tmp_path, program, grace_s=0.2)) as started:
        started.signal(signal.SIGINT, after="ready")
        ended = started.wait(10)
    assert ended.status == status
    assert "never told how it ended: mpiexec" in ended.err


def hears_two(signum: int) -> str:
    """Return a program that says of each signal that it has heard it, and ends after two."""
    return (
        "heard = []\n"
        "def hear(*_): heard.append(1); print('heard', len(heard), flush=True)\n"
        f"signal.signal({signum:d}, hear)\n"
        "print('ready', flush=True)\n"
        "while len(heard) < 2: time.sleep(0.01)\n"
        "reporter.ended(5)"
    )


@pytest.mark.parametrize("signum", [signal.SIGUSR1, signal.SIGQUIT])
def test_a_signal_of_the_programs_own_ends_nothing(tmp_path: Path, signum: int) -> None:
    with Job(launch(tmp_path, hears_two(signum), grace_s=0)) as started:
        started.signal(signum, after="ready")
        started.signal(signum, after="heard 1\n")
        assert started.wait(5).status == 5


def test_a_signal_that_ends_the_program_leaves_nothing_behind(tmp_path: Path) -> None:
    program = "print('ready', flush=True)\ntime.sleep(30)"
    with Job(launch(tmp_path, program)) as started:
        started.signal(signal.SIGQUIT, after="ready")
        ended = started.wait()
        assert ended.status > 0
        assert not list(started.place.glob("workpool-*"))


def test_second_signal_does_not_wait(tmp_path: Path) -> None:
    program = (
        "signal.signal(2, lambda *_: print('heard', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(30)"
    )
    with Job(launch(tmp_path, program, grace_s=30)) as started:
        started.signal(signal.SIGINT, after="ready")
        started.signal(signal.SIGINT, after="heard")
        assert started.wait(5).status == 130


def test_a_signal_an_hour_later_is_not_the_second_one(tmp_path: Path) -> None:
    with Job(launch(tmp_path, hears_two(signal.SIGINT), grace_s=0.2)) as started:
        started.signal(signal.SIGINT, after="ready")
        started.until("heard 1")
        time.sleep(0.3)
        started.signal(signal.SIGINT)
        assert started.wait(5).status == 5


def test_a_signal_ends_the_wait_for_what_ranks_have_started(tmp_path: Path) -> None:
    command = launch(tmp_path, "reporter.ended(0)", before="setsid sleep 100 &", grace_s=60)
    with Job(command) as started:
        started.until("begun")
        while len(started.members()) > 2:  # the launcher, and what is left
            time.sleep(0.02)
        started.signal(signal.SIGTERM)
        assert started.wait(10).status == 0
