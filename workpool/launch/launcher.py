"""Runs a job under mpiexec, and answers for its end.

What a caller may rely on, whatever the MPI:

* The exit status is the driver's, told by the driver itself (see ``status``).
* A signal goes to the driver, as it would to any program: Ctrl-C is a KeyboardInterrupt there.
  The driver is ended, with all its ranks, by a second Ctrl-C within the grace; after SIGTERM or
  SIGHUP, when the grace is over or any further signal comes.
* No process of the job outlives it, nor any that a rank has started.  They are found by a mark in
  their environment: MPICH's hydra gives each rank a session of its own, and Open MPI's ranks
  outlive an mpiexec that was killed.
* The terminal shows what the program writes.  MPI has nothing to add, because the ranks always
  leave with 0, and because a job that must be ended is ended in the way that its mpiexec does not
  comment on, after what was written has been passed on.  A rank that dies by itself is commented
  on by MPI, as it should be.
* A job that is to outlive the death of workers does not outlive that of its driver, nor any death
  before it has begun.
* The driver has the launcher's own standard streams; those of the workers go through mpiexec.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from ..clock import Stopwatch
from ..errors import ResourceError, UsageError
from ..members.liveness import check_proc
from ..system import supervisor
from ..system.ranks import is_alone, rank_here, without_rank
from ..system.shared_memory import remove
from ..system.status import GRACE, GRACE_S, UNFINISHED, VARIABLE, Watch
from ..system.streams import open_streams, say
from . import advice
from .mpiexec import (
    Kind,
    check_room,
    check_srun,
    command_line,
    environment,
    find,
    leash,
    placed,
)
from .processes import Processes
from .routes import Routes
from .signals import Signals

#: How often the launcher looks; what it costs is invisible.
_LOOK_S = 0.02

#: How often it notes what ranks there are, and MPI's files, until the driver begins: one may die
#: before that.
_NOTE_S = 0.1

#: How many times less often where the driver may be on another host: it cannot report from there
#: that it has begun, so the launcher goes on until the end.
_SELDOM = 20

#: Between the driver's last words and the end of the job: mpiexec passes them on.
_DRAIN_S = 0.5

#: How long mpiexec may take to notice that the driver is gone: MPICH's misses it now and then,
#: where the driver has become another program before it ended.
_NOTICE_S = 6.0

#: How long the ranks have after the driver's last words, however short the grace: MPI's own end.
_LEAVE_S = 1.0

#: How long Open MPI's mpiexec may take to tidy up when it is told to end; it takes 0.3 to 0.5 s.
_TIDY_S = 3.0


def run(
    command: Sequence[str],
    ranks: int,
    *,
    mpiexec: str | None = None,
    mpi_args: Sequence[str] = (),
    grace_s: float = GRACE_S,
    survive: bool = False,
    interactive: bool = False,
) -> int:
    """Run a command as the ranks of one job, and return the driver's exit status.

    Parameters
    ----------
    command : sequence of str
        Whose rank 0 reports to ``status.Reporter``: ``python -m workpool ...``.
    ranks : int
        Number of processes: one driver, the rest workers.
    mpiexec : str, optional
        Default: the one that `mpiexec.find` finds.
    mpi_args : sequence of str
        More options for mpiexec.
    grace_s : float
        How long the driver may take to end at SIGTERM or SIGHUP, and its ranks after the driver.
    survive : bool
        Whether the job goes on when a worker dies.
    interactive : bool
        Whether the program is a shell, in which Ctrl-C ends a line and not the job.

    Returns
    -------
    int
        128 + n where signal n ended the driver.

    Raises
    ------
    UsageError
        If this process is a rank among others.
    ResourceError
        If there is no mpiexec for it, no directory for temporary files, or no /proc.
    """
    here = rank_here()
    if here is not None and not is_alone():
        raise UsageError(
            f"this process is a rank already ({here}), and cannot start ranks of its own: "
            "under mpiexec, use `mpiexec -n N python -m workpool ...`"
        )
    open_streams()
    check_proc()
    program = find(mpiexec)
    local = not placed(mpi_args)
    if local:
        check_room(program.kind, ranks)
    check_srun(program.kind, mpi_args)
    words = command_line(program, ranks, command, mpi_args, survive)
    with _listening() as watch, Signals(watch, grace_s, interactive) as signals:
        process = subprocess.Popen(
            words,
            env={
                **environment(program.kind, without_rank() if here else os.environ, watch.place),
                VARIABLE: watch.place,
                GRACE: str(grace_s),
                supervisor.VARIABLE: "0",  # of a job that has started this one; a supervisor says 1
            },
            stdin=subprocess.DEVNULL,  # the driver gets ours
            start_new_session=True,  # a terminal's Ctrl-C is for us alone
            restore_signals=False,  # SIGPIPE, which would end it where nobody reads what it writes
            preexec_fn=leash(program.kind),  # no other thread of ours has a lock that it needs
        )
        return _Job(process, program.kind, watch, signals, grace_s, local, survive).wait()


@contextmanager
def _listening() -> Iterator[Watch]:
    """Make a directory of the job's own, and the socket in it."""
    base = "/tmp"
    with ExitStack() as held:
        try:
            if len(tempfile.gettempdirb()) <= 80:  # a socket's path has 107 bytes
                base = tempfile.gettempdir()
            # What cannot be removed is no failure of a job that has ended.
            place = tempfile.TemporaryDirectory("", "workpool-", base, ignore_cleanup_errors=True)
            watch = held.enter_context(Watch(held.enter_context(place)))
        except OSError as error:  # or there is no such directory: it tells where it has tried
            raise ResourceError(
                f"the job's own socket cannot be made in {base!r}: {error.strerror}: set TMPDIR to "
                "a directory of this host (not every file system has sockets), and see your umask"
            ) from error
        yield watch


class _Job:
    """One mpiexec under way, and every process below it.

    Parameters
    ----------
    process : subprocess.Popen
    kind : Kind
    watch : Watch
    signals : Signals
        That have arrived.
    grace_s : float
    local : bool
        Whether the driver surely runs on this host, where its word can be heard.
    survive : bool
        Whether it is none of our business that a worker dies.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        kind: Kind,
        watch: Watch,
        signals: Signals,
        grace_s: float,
        local: bool,
        survive: bool,
    ) -> None:
        self._process = process
        self._kind = kind
        self._watch = watch
        self._signals = signals
        self._grace_s = grace_s
        self._leave_s = max(grace_s, _LEAVE_S)
        self._local = local
        self._survive = survive
        self._clock = Stopwatch()
        self._processes = Processes(watch.mark)
        #: With --survive: how ranks have ended, by process id; not those that we have ended.
        self._ends: dict[int, int] = {}
        #: With --survive: how the driver has ended, if it had before we ended the rest.
        self._fate: int | None = None
        self._routes = Routes()
        #: Whether we end the job because the driver is gone, and not because a whole host is.
        self._driver_gone = False
        #: When it was first seen that the driver is gone without a word.
        self._gone_s = math.inf
        #: What had not ended in time, for messages.
        self._late = ""

    def wait(self) -> int:
        """Wait for the end of the job, or bring it about; return the driver's exit status."""
        give_up = math.inf  # when the job is ended, if it has not ended
        begun = hurried = False
        hosts, noted = 0, self._clock.look()
        while self._process.poll() is None and self._clock.look() < give_up:
            self._watch.look(_LOOK_S, self._routes.fds)
            self._routes.look()
            now = self._clock.look()
            known = self._watch.driver is not None
            begins = self._local and not known
            if not begun and (known or now > noted + _NOTE_S * (1 if self._local else _SELDOM)):
                begun, noted = known, now
                self._processes.note()  # once MPI has started, every rank has its files
            if len(self._watch.elsewhere) > hosts:
                hosts = len(self._watch.elsewhere)
                self._routes.find(self._processes.find(), self._watch.elsewhere)
            if self._watch.ending is not None:
                limit_s = _DRAIN_S if self._watch.ending.failed else self._leave_s
                give_up = min(give_up, now + limit_s)
            if self._survive and self._lost():
                self._driver_gone |= not self._routes.ended
                told = self._watch.driver in (None, *supervisor.ends(self._watch.place))
                give_up = min(give_up, now + (_DRAIN_S if told else _TIDY_S))
            elif now > self._missed() + _NOTICE_S or (begins and self._processes.broken()):
                self._driver_gone, give_up = True, now
            limit_s = self._signals.pass_on()
            hurried |= limit_s < math.inf and self._watch.ending is not None
            give_up = min(give_up, now + limit_s)
        self._signals.judge(self._driver_gone)
        status = self._process.poll()  # None: it must be ended
        while self._watch.look(0):  # the last words may have come with the end
            pass
        self._routes.look()
        self._routes.close()
        if status == 0 and self._watch.ending is not None:
            # What the ranks have started may still be at work.
            self._kill(after_s=0 if hurried else self._grace_s)
        else:
            self._late = self._processes.left() if status is None else ""
            self._fate = supervisor.ends(self._watch.place).get(self._watch.driver or 0)
            self._end()
        remove(self._processes.mpi_files)  # what MPI leaves behind of ranks that were killed
        return self._verdict(status)

    def _end(self) -> None:
        """End every process of the job on this host."""
        self._processes.note()
        if self._survive and self._watch.driver in self._processes.find():
            with suppress(ProcessLookupError):
                os.kill(self._watch.driver, signal.SIGKILL)  # else it tells of the deaths to come
        if self._kind is Kind.OPENMPI:
            self._process.send_signal(signal.SIGINT)  # tidies up, and is silent
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_TIDY_S)
        # MPICH's is silent only if it is killed; its proxies then end the ranks of other hosts.
        self._process.kill()
        self._kill()
        self._process.wait()

    def _kill(self, after_s: float = 0) -> None:
        """Kill every process that is left, unless it ends by itself before."""
        begun = self._clock.look()
        while left := self._processes.find():
            passed_s = self._clock.look() - begun
            if self._signals.pass_on() < math.inf:
                after_s = min(after_s, passed_s)
            if passed_s > after_s + _TIDY_S:
                say(f"processes that cannot be killed: {list(left)}")
                return
            if passed_s >= after_s:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)

    def _lost(self) -> bool:
        """Return whether the job has no driver any more, or gets none."""
        if not self._ends:  # once: later notes are of ranks that we have ended
            self._ends = supervisor.ends(self._watch.place)
        if self._watch.driver is None:
            self._ends = self._ends or supervisor.killed(self._watch.place)
            return self._local and (bool(self._ends) or self._processes.broken())
        gone = self._watch.silent or self._process.poll() is not None  # mpiexec takes ranks along
        return gone and self._watch.ending is None

    def _missed(self) -> float:
        """Return since when the driver has been gone without a word; infinity if it is not."""
        watch = self._watch
        if not watch.silent or watch.ending is not None or self._processes.lives(watch.driver):
            return math.inf
        self._gone_s = min(self._gone_s, self._clock.look())
        return self._gone_s

    def _verdict(self, status: int | None) -> int:
        """Return the driver's exit status; `status` is that of mpiexec, None if we ended it."""
        told = self._watch.ending
        if told is not None and not told.failed and status is None and self._signals.asked is None:
            given = f"{self._leave_s:g} s after its end (--grace)"
            say(f"the program has ended; what was left {given} was killed: {self._late}")
        # When a rank dies, mpiexec ends the driver as well, which may have told 0 before, or that a
        # SIGTERM (not ours) has ended or drained it.  All the same the job has failed, unless the
        # status is that of a drain: one that is cut short ends every rank with it.
        broken = bool(status) and self._signals.asked is None and not self._survive
        if told is not None:
            drained = told.status == UNFINISHED != status
            if not (broken and (drained or told.status in (0, 128 + signal.SIGTERM))):
                return told.status
        if self._signals.asked is not None:
            if status is None and self._signals.overdue:
                say("killed: the program did not end in time after the signal, see --grace")
            elif status is None and self._watch.driver is None and not self._local:
                say("killed: the program has not begun, or is on another host, out of our reach")
            return 128 + self._signals.asked
        if self._driver_gone or (self._survive and self._lost() and not self._routes.ended):
            return self._tell_of_death(status)
        status = status or 0
        if self._watch.driver is None and not self._local:
            return _exit_status(status)  # the driver was on another host: mpiexec must know
        began = "the driver never " + ("told how it ended" if self._watch.driver else "started")
        if told is not None:
            began = "the job broke"
        more = f"{self._lacking(status)}{self._advice(status)}"
        say(f"{began}: mpiexec {_how(status)}{more}")
        return _exit_status(status) or 1

    def _advice(self, status: int) -> str:
        """Return what to do if it is a rank's death that has ended the job; else nothing."""
        if self._watch.driver is None or status < 0 or (self._local and self._survive):
            return ""  # mpiexec itself was killed: nothing of the job was amiss
        if lost := advice.output_lost():
            return lost
        if self._local:
            return advice.RANK_DIED
        return advice.host_died(self._watch.elsewhere, self._routes.ended)

    def _lacking(self, status: int) -> str:
        """Return what to do where this host lacks what an MPI needs; else nothing."""
        begun = self._watch.driver is not None
        short = advice.memory_short(status, self._kind, begun)
        return short or advice.network_missing(self._kind, begun)

    def _tell_of_death(self, ended: int | None) -> int:
        """Tell of a death that the job cannot outlive; return the status for it.

        `ended` is how mpiexec ended, None if by us.
        """
        driver = self._watch.driver
        if driver is None:
            first, status = next(iter(self._ends.items()), (0, -int(signal.SIGKILL)))
            who = f"a rank (process {first})" if first else "a rank, or what has started it,"
            what = "before the job had begun, which takes all of its ranks: start it again"
        else:
            if self._fate is None:
                who = "mpiexec has ended the job" if ended is not None else "the driver is gone"
                say(f"{who}, and with it all that its program knew{advice.output_lost()}")
                return 1
            status = self._fate
            who = f"the driver (rank 0, process {driver})"
            what = "and with it all that its program knew: no job outlives its driver"
        more = f"{self._lacking(status)}{advice.output_lost()}"
        say(f"{who} {_how(status)}, {what}{more}")
        return _exit_status(status) or 1


def _how(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


def _exit_status(status: int) -> int:
    """Return the status of a process as a shell tells it."""
    return 128 - status if status < 0 else status
