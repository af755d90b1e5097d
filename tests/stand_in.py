"""A launcher with a stand-in for mpiexec, which starts one driver that only reports: no MPI."""

from __future__ import annotations

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
import sys
from workpool.launch import launcher
command = [sys.executable, "-c", sys.argv[2]]
fake, _, grace_s, survive = sys.argv[1:]
options = {"grace_s": float(grace_s), "survive": survive == "True"}
sys.exit(launcher.run(command, 1, mpiexec=fake, **options))
"""


def launch(
    place: Path, program: str, before: str = "", grace_s: float = 5, survive: bool = False
) -> list[str]:
    """Return a command that launches `program` as the driver, under a stand-in for mpiexec."""
    fake = place / "mpiexec"
    version = library().version if survive else "unknown"
    fake.write_text(FAKE.format(version=version, before=before))
    fake.chmod(0o755)
    return [sys.executable, "-c", LAUNCH, str(fake), DRIVER + program, str(grace_s), str(survive)]
