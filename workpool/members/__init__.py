"""The other processes of a job: whether they live, whether they beat, how they are woken.

    liveness      which processes are dead, asked of the system
    leases        which members are gone, judged by their heartbeats
    doorbell      wakes those that sleep on this host

None of it calls MPI.
"""
