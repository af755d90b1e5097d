"""What the runtime wants of the operating system.

    streams        standard input, output and error, which somebody may have closed
    status         the line between the launcher and the driver
    supervisor     the parent of a rank that may die
    ranks          what the environment says of this process's rank
    cores          how many it may keep busy
    python         the command that runs it anew
    process        a child process that runs Python, and its end
    channel        messages between two processes
    memory         of this process, in which something large is received
    spares         of which what is free is used again
    pages          and what fresh memory costs
    copies         of what a program passes on again and again: one for all
    shared_memory  how much there is, and what was left behind in it
    inherited      what a process has from the program that starts it

None of it knows what the runtime is for.
"""
