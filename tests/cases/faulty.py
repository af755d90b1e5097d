"""Cases that go wrong in every way: what the harness says of them is tested in test_harness."""

from __future__ import annotations

import os
import sys
import threading
import time

from runner import Skip, limit, main


def case_passes():
    pass


def case_fails():
    raise KeyError("on purpose")


def case_skips():
    raise Skip("for a reason")


@limit(3)
def case_hangs():
    threading.Event().wait()


def case_passes_after_a_hang():
    pass


def case_takes_the_job_down():
    sys.stdout.flush()
    os.kill(os.getpid(), 9)
    time.sleep(10)


def case_exits():
    sys.exit(3)


def case_passes_at_last():
    pass


if __name__ == "__main__":
    sys.exit(main(globals()))
