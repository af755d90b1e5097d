"""A launcher with a stand-in for mpiexec, which starts one driver that only reports: no MPI."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from workpool.launch.mpiexec import library

FAKE = """\
#!/bin/sh
[ "$1" = --version ] && echo "{version}" && exit
while [ "$1" != -n ]; do shift; done
shift 2
{before}
exec "$@"
"""

DRIVER = """\
import os, signal, sys, time
from workpool.system.status import Reporter
reporter = Reporter()
reporter.begin()
print("begun", flush=True)
"""

LAUNCH = """\
import json, sys
from workpool.launch import launcher
fake, program, options, limits = sys.argv[1:]
vars(launcher).update(json.loads(limits))
command = [sys.executable, "-c", program]
sys.exit(launcher.run(command, 1, mpiexec=fake, **json.loads(options)))
"""


def launch(
    place: Path,
    program: str,
    before: str = "",
    grace_s: float = 5,
    survive: bool = False,
    **limits: float,
) -> list[str]:
    """Return a command that launches `program` as the driver, under a stand-in for mpiexec.

    `limits` are those of the launcher, by their names, so that a test need not wait for long.
    """
    fake = place / "mpiexec"
    version = library().version if survive else "unknown"
    fake.write_text(FAKE.format(version=version, before=before))
    fake.chmod(0o755)
    given = ({"grace_s": grace_s, "survive": survive}, limits)
    return [sys.executable, "-c", LAUNCH, str(fake), DRIVER + program, *map(json.dumps, given)]
