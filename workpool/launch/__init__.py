"""The command line: ``workpool run``, and what stands between it and the ranks.

    cli           the commands
    launcher      one mpiexec under way, and every process below it
    mpiexec       which one belongs to the MPI in use, and what it needs
    advice        what to do when one has failed
    processes     those of a job, on this host
    routes        to the hosts of a job
    signals       those that the launcher gets
    program       a program as python takes it, run as python runs it
    report        what ``workpool info`` and ``workpool bench`` run as ranks

None of it runs on a rank but ``program`` and ``report``.
"""
