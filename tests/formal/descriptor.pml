/*
 * The life of a work descriptor, as a model for Spin: what workpool/protocol.py says, small enough
 * to be read in one sitting, and checked in every interleaving.
 *
 *     submitter    publishes tasks, answers, recalls, cancels, kills, takes back, collects
 *     worker       looks at any row, claims it, runs it, commits what became of it
 *     environment  lets puts land, and ends workers, whenever it likes
 *
 * What is left out, and why that loses nothing: tickets only say where to look, so a worker here
 * looks at any READY row; a worker that is stopped is one that takes no step for a while, which
 * interleaving is; an attempt's number is never compared; extents of the arena are another matter.
 *
 * A put lands at any time before the flush that follows it, that of a dead member also later, or
 * never.  What is wrong is an assertion: a step that the table has not or that is another's, bytes
 * that are not the writer's (the rules: BLIND switches them off, so that only what comes of it
 * counts), a record that is not that of its attempt, a task that ends twice, and, when nothing is
 * left to do, a task that has not ended, was not counted once, or a row that is not free.
 *
 * By hand:
 *     spin -a -DCRASHES=1 descriptor.pml && cc -O1 -w -DSAFETY -o pan pan.c && ./pan -m20000
 *     spin -t -p -DCRASHES=1 descriptor.pml            (the way to what was found)
 */

#include "case.pml"
#include "protocol.pml"
#include "window.pml"
#include "worker.pml"
#include "submitter.pml"

#define ENDED           (dead[OTHER] -> ALL & ~OTHERS : ALL)

inline check_row(n) {
    must("a row is left", STATE(word[n]) == FREE || dead[submitter_of[n]]
        || ((STATE(word[n]) == EVICTED || STATE(word[n]) == RESERVED) && dead[OWNER(word[n])]))
}

init {
    byte t;
    atomic {
        d_step { table() }
        run environment();
        run submitter(0, ALL & ~OTHERS);
#if SECOND
        run submitter(OTHER, OTHERS);
#endif
        for (t : 1 .. WORKERS) { run worker(t) }
        t = 0
    }
    timeout;                                    /* nobody has anything left to do */
    d_step {
        must("a task is lost", ((collected | voided) & ENDED) == ENDED);
        check_row(0);
#if ROWS > 1
        check_row(1);
#endif
        for (t : 0 .. TASKS - 1) {
            must("a void task counts", !(voided & 1 << t) || number[t] == 0)
        }
        t = 0
    }
}
