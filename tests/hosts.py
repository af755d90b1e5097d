"""Three hosts on one machine: network namespaces with names and addresses of their own.

They share the file system, /dev/shm and the process ids, but no memory of MPI: what crosses from
one to another goes through TCP.  Made with ``ip`` and ``nsenter`` (Debian: iproute2, util-linux),
which need root.

    python tests/hosts.py 1,2 sh scripts/bench --workers 2 --rows submit

measures between two of them, the driver on the first: it runs a command there with the option
``--mpi-args``, for so many ranks on each.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs import Job

from workpool.launch.mpiexec import Kind, find

#: In the place of ssh: drops the options, goes to the host, and runs the words there, with hardly
#: anything of our environment.
_SSH = """\
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
for name in PATH HOME TMPDIR PYTHONPATH WORKPOOL_TEST_JOB WORKPOOL_TEST_STACKS; do
    kept+=("$name=${{!name}}")
done
ip netns exec "$host" nsenter --uts="{place}/$host" env -i "${{kept[@]}}" /bin/bash -c "$*"
"""

_MPICH = "-launcher ssh -launcher-exec {ssh} -iface eth0 -hosts {hosts}"
_OPENMPI = (
    "--prtemca plm_ssh_agent {ssh} --prtemca prte_if_include eth0 --mca pml ob1 "
    "--mca btl tcp,self,sm --mca btl_tcp_if_include eth0 --mca osc ^ucx "
    "--map-by node:OVERSUBSCRIBE --host {hosts}"
)


def missing() -> str:
    """Return what this machine lacks for hosts; "" if it can have them."""
    if os.geteuid():
        return "hosts on one machine need root"
    if lacking := [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]:
        return f"hosts on one machine need {', '.join(lacking)}"
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("netns", "add", f"wp{os.getpid()}probe")
        _ip("netns", "del", f"wp{os.getpid()}probe")
        return ""
    return "this machine makes no network namespaces"


class Hosts:
    """Three hosts, joined by a network.

    Parameters
    ----------
    place : Path
        A directory for what belongs to them.

    Attributes
    ----------
    names : list of str
    """

    def __init__(self, place: Path) -> None:
        self.names = [f"wp{os.getpid()}h{i}" for i in range(3)]
        self._place = place
        self._hub = f"wp{os.getpid()}hub"
        self._ssh = place / "ssh"

    def make(self) -> None:
        """Make them."""
        subprocess.run(["mount", "--bind", self._place, self._place], check=True)
        subprocess.run(["mount", "--make-private", self._place], check=True)
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "br0", "up")
        known = "".join(f"10.77.0.{i + 1} {name}\n" for i, name in enumerate(self.names))
        for i, name in enumerate(self.names):
            _ip("netns", "add", name)
            Path("/etc/netns", name).mkdir(parents=True)
            Path("/etc/netns", name, "hosts").write_text(f"127.0.0.1 localhost\n{known}")
            plug = ("type", "veth", "peer", "name", f"port{i}", "netns", self._hub)
            _ip("link", "add", "eth0", "netns", name, *plug)
            _ip("-n", self._hub, "link", "set", f"port{i}", "master", "br0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            (self._place / name).touch()
            subprocess.run(["unshare", f"--uts={self._place / name}", "hostname", name], check=True)
        self._ssh.write_text(_SSH.format(place=self._place))
        self._ssh.chmod(0o755)

    def remove(self) -> None:
        """Take down what there is of them."""
        for name in (*self.names, self._hub):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["umount", self._place / name], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(Path("/etc/netns", name), ignore_errors=True)
            for left in Path("/dev/shm").glob(f"*.{name}.*"):  # Open MPI's, of ranks that we killed
                left.unlink(missing_ok=True)
        subprocess.run(["umount", self._place], check=False)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a job: MPICH would take whatever is the quickest on this machine."""
        return {**os.environ, "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}

    def mpi_args(self, ranks: Sequence[int]) -> str:
        """Return the options of mpiexec for so many ranks on each."""
        options = _OPENMPI if find().kind is Kind.OPENMPI else _MPICH
        places = [f"{name}:{count}" for name, count in zip(self.names, ranks, strict=False)]
        return options.format(ssh=self._ssh, hosts=",".join(places))

    def on_first(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one on the first host."""
        first = self.names[0]
        there = ["ip", "netns", "exec", first, "nsenter", f"--uts={self._place / first}"]
        return [*there, *command]

    def run(self, *words: str, survive: bool = False) -> Job:
        """Start ``workpool run`` on the first host: two ranks on each."""
        command = [sys.executable, "-m", "workpool.launch.cli", "run", "-w", "5"]
        command += ["--mpi-args", self.mpi_args([2, 2, 2]), *["--survive"] * survive]
        return Job(self.on_first([*command, *words]), self.environment, lasting=True)

    def kill(self) -> None:
        """Kill everything that runs on the second host."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.names[1]], check=True, capture_output=True, text=True
        )
        for pid in map(int, done.stdout.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Take the second host off the network for a while."""
        _ip("-n", self.names[1], "link", "set", "eth0", "down")
        try:
            yield
        finally:
            _ip("-n", self.names[1], "link", "set", "eth0", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def main(ranks: str, *command: str) -> int:
    """Run a command on the first of them; return its status."""
    with tempfile.TemporaryDirectory() as place:
        hosts = Hosts(Path(place))
        try:
            hosts.make()
            mpi_args = hosts.mpi_args([int(count) for count in ranks.split(",")])
            words = hosts.on_first([*command, "--mpi-args", mpi_args])
            return subprocess.run(words, env=hosts.environment, check=False).returncode
        finally:
            hosts.remove()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
