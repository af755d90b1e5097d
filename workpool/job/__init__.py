"""The processes of one job: who drives, who serves, how tables open and close, how it all ends.

    entry         what this process is in its job
    runtime       the driver's hold on it: workers, pools, the end
    tables        those that are open, and their drivers
    deaths        what the driver does about them in a job that outlives its workers
    crew          collective steps without a collective call to wait in
    alone         the same in a job of one rank, whose worker is a thread
    control       the words by which the driver gives orders
    together      how all ranks meet, and open a table's window
    service       a rank that serves
    attendant     the thread that makes progress when nobody else does
    drain         SIGTERM: what runs ends and is stored
    survival      what every rank of a job that outlives its workers does
    uncaught      an error that ends the program, and how it is shown

The life of a job::

    rank 0                                     each other rank
    entry.launch: Runtime                      service.launch
      control window, meet <-- collective -->    control window, meet
    the script runs                            Worker.serve: looks for tasks, and for calls
    WorkPool(...)
      its table is open: nobody is called
      else Crew.call       -- order -------->  comes, between two tasks
           Tables.open     <-- collective -->  opens the window as well, serves it
    the script ends
    Runtime.close: joins the pools
      Crew.call            -- "leave" ------>  serve returns
      windows are freed    <-- collective -->  windows are freed
    MPI_Finalize                               MPI_Finalize

and what may come in between::

    SIGTERM, Ctrl-C       no more is started, what runs may end: drain, then the end as above
    an error              shown; Runtime.fail ends every process: MPI would wait for the others
    a rank dies           mpiexec ends the job; or a Sentry of each rank sees it, and from then on
                          nothing is collective: deaths sends the workers home, nobody finalizes
    the driver dies       whoever serves it sees that, and leaves

Above it is what a program sees, ``workpool.pool``; below it the two halves of a table.
"""
