/*
 * The states, steps and words of workpool/protocol.py and workpool/layout.
 *
 * A test compares the table with protocol.TRANSITIONS, and the steps that searches have taken too.
 */

#define FREE       0
#define RESERVED   1
#define READY      2
#define CLAIMED    3
#define WANTED     4
#define OFFERED    5
#define COMMITTED  6
#define DONE       7
#define EVICTED    8

#define RESERVE    0
#define PUBLISH    1
#define ABANDON    2
#define CANCEL     3
#define CLAIM      4
#define WANT       5
#define SUPPLY     6
#define OFFER      7
#define TAKE       8
#define NEXT       9
#define RECALL    10
#define COMMIT    11
#define COMPLETE  12
#define SETTLE    13
#define RECLAIM   14
#define LET_GO    15
#define RETIRE    16
#define GIVE_BACK 17
#define STEPS     18

hidden byte target[STEPS];                      /* where a step leads, from wherever */
hidden byte leads[9 * STEPS];                   /* whether there is that step from a state */
hidden byte taken[9 * STEPS];                   /* whether the search has seen it */

#define EDGE(from, step, to)  leads[(from) * STEPS + step] = true; target[step] = to

inline table() {
    EDGE(FREE,      RESERVE,  RESERVED);
    EDGE(RESERVED,  PUBLISH,  READY);
    EDGE(RESERVED,  ABANDON,  EVICTED);
    EDGE(READY,     CANCEL,   FREE);
    EDGE(READY,     CLAIM,    CLAIMED);
    EDGE(CLAIMED,   WANT,     WANTED);
    EDGE(WANTED,    SUPPLY,   CLAIMED);
    EDGE(CLAIMED,   OFFER,    OFFERED);
    EDGE(OFFERED,   TAKE,     CLAIMED);
    EDGE(CLAIMED,   NEXT,     CLAIMED);
    EDGE(CLAIMED,   RECALL,   CLAIMED);
    EDGE(CLAIMED,   GIVE_BACK, CLAIMED);
    EDGE(CLAIMED,   COMMIT,   COMMITTED);
    EDGE(CLAIMED,   COMPLETE, DONE);
    EDGE(COMMITTED, COMPLETE, DONE);
    EDGE(COMMITTED, SETTLE,   DONE);
    EDGE(CLAIMED,   RECLAIM,  EVICTED);
    EDGE(WANTED,    RECLAIM,  EVICTED);
    EDGE(OFFERED,   RECLAIM,  EVICTED);
    EDGE(EVICTED,   LET_GO,   FREE);
    EDGE(DONE,      RETIRE,   FREE)
}

/* A word: generation | stride | recalled | ended | owner | state. */
#define WORD(state, owner, generation)  ((state) | (owner) << 4 | (generation) << 10)
#define STATE(w)       ((w) & 15)
#define OWNER(w)       (((w) >> 4) & 7)
#define ONE_ENDED(w)   (((w) >> 7) & 1)
#define RECALLED(w)    (((w) >> 8) & 1)
#define STRIDE(w)      (((w) >> 9) & 1)
#define GENERATION(w)  ((w) >> 10)
#define recall(w)      ((w) | 256)
#define RAN_BOTH(w)    (ONE_ENDED(w) || STRIDE(w))
#define AFTER(step, w)                                                          \
    (step == RESERVE -> WORD(RESERVED, me, GENERATION(w) + 1) :                 \
    (step == CLAIM   -> ((w) & ~127) | me << 4 | CLAIMED :                      \
    (step == NEXT    -> (w) + (STRIDES -> 512 : 128) :                          \
    (step == RECALL  -> recall(w) :                                             \
    (step == GIVE_BACK -> recall((w) & ~512) : ((w) & ~15) | target[step])))))
#define RUNS(w)        (STATE(w) == CLAIMED || STATE(w) == WANTED || STATE(w) == OFFERED)
