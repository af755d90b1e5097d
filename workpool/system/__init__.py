"""What the runtime wants of the operating system.

    streams        standard input, output and error, which somebody may have closed
    status         the line between the launcher and the driver
    supervisor     the parent of a rank that may die
    ranks          what the environment says of this process's rank
    cores          how many it may keep busy
    python         the command that runs it anew
    process        a child process that runs Python, and its end
    channel        messages between two processes
    memory         memory in which something large is received
    spares         blocks of it that are used again
    pages          fresh memory, and what it costs
    copies         one copy for all of what a program passes on again and again
    shared_memory  how much there is, and what was left behind in it
    abandoned      locks in it that the dead have held
    inherited      search path, directory and variables of the program, for its ranks

None of it knows what the runtime is for.
"""
