/* The worker: workpool/repository/claimant.py. */

/* A step from the word that is held; goes to `gone` if the attempt was taken back. */
inline advance(s) {
    do
    :: atomic {
            swap(s, r, w, FRESH_COMPLETE);
            if
            :: found == w || BUG == COMPLETE_FRESH -> w = AFTER(s, w); break
            :: else ->
                if
                :: !RECALLED(w) && found == recall(w) -> w = found      /* ours all the same */
                :: else -> goto gone
                fi
            fi
       }
    od
}

/* Put a piece, step, and wait for the answer. */
inline ask(s, answer) {
    put(AT(RECORD_OF, r), RECORD(REQUEST, w));
    UNLESS(REQUEST_UNFLUSHED, flush());
    advance(s);
    atomic {
        word[r] != w -> found = word[r];
        if
        :: found == AFTER(answer, w) -> w = found
        :: else -> goto gone
        fi
    }
}

/* Say whether the first of two tasks has ended, and that the second is not to be started, or that
 * it runs and is the last: what the heart does, between any two steps of the worker's own.  */
inline give_back(ended) {
    do
    :: atomic {
#if BUG == GIVE_BACK_FRESH
            swap(GIVE_BACK, r, (w | 256 | (ended) << 7), word[r]);
            w = AFTER(GIVE_BACK, (w | 256 | (ended) << 7)); break
#else
            swap(GIVE_BACK, r, (w | (ended) << 7), w);
            if
            :: found == w -> w = AFTER(GIVE_BACK, (w | (ended) << 7)); break
            :: found != w && !RECALLED(w) && found == recall(w) -> w = found
            :: else -> goto gone
            fi
#endif
       }
    od
}

inline contribute() {
    put(AT(NUMBERS, INDEX(tasks)), 0);
    UNLESS(CONTRIBUTION_UNFLUSHED, flush())     /* before the row is DONE */
}

proctype worker(byte me) {
    byte r, tasks;
    short w, found;
    {
end:
    do
    :: atomic {                                 /* the words are looked at */
            if
            :: STATE(word[0]) == READY -> r = 0
#if ROWS > 1
            :: STATE(word[1]) == READY -> r = 1
#endif
#if BUG == DESCRIPTOR_FIRST
            :: STATE(word[0]) != READY -> r = 0; tasks = descriptor[0]
#endif
            fi;
            w = word[r]
       }
#if BUG == DESCRIPTOR_FIRST
       atomic { STATE(word[r]) == READY -> w = word[r]; tasks = (tasks -> tasks : descriptor[r]) }
#else
       if
       :: tasks = descriptor[r]                 /* only now: READY says that it is there */
       :: skip                                  /* or after the claim: the same flush completes both */
       fi;
#endif
       atomic {
            swap(CLAIM, r, w, w);
            if
            :: found == w || BUG == CLAIM_IGNORED -> w = AFTER(CLAIM, w)
            :: else -> goto dropped
            fi;
            must("an attempt runs twice", !ran[r]);
            ran[r] = true
       }
       atomic {
            tasks = (tasks -> tasks : descriptor[r]);
            must("another descriptor", tasks == tasks_of[r])
       }
#if PIECES
       ask(WANT, SUPPLY);
       must("another answer", record[r] == RECORD(ANSWER, w));
       ask(OFFER, TAKE);
#endif
#if STRIDES
       if
       :: tasks & (tasks - 1) ->                /* both of two tasks are started */
            atomic {
                swap(NEXT, r, w, w);
                if
                :: found == w -> w = AFTER(NEXT, w)
                :: found != w && found == recall(w) -> w = found        /* there is no second */
                :: else -> goto gone
                fi
            }
            if
            :: STRIDE(w) -> give_back(0)        /* the first lasts */
            :: STRIDE(w) ->                     /* the second does */
                put(AT(FIRST_OF, r), RECORD(OUTCOME, w));
                UNLESS(GIVE_BACK_UNFLUSHED, flush());
                give_back(1)
            :: skip
            fi
       :: else
       fi;
#elif BATCH > 1
       if
       :: tasks & (tasks - 1) ->                /* of two tasks, the first has ended */
            put(AT(FIRST_OF, r), RECORD(OUTCOME, w));
            UNLESS(TASK_UNFLUSHED, flush());
            if
            :: !RECALLED(w) ->
#if BUG == NEXT_FRESH
                d_step { if :: word[r] == recall(w) -> w = word[r] :: else fi }
#endif
                atomic {
                    swap(NEXT, r, w, w);
                    if
                    :: found == w -> w = AFTER(NEXT, w)
                    :: found != w && found == recall(w) -> w = found    /* there is no next */
                    :: else -> goto gone
                    fi
                }
            :: else
            fi
       :: else
       fi;
#endif
       put(AT(RECORD_OF, r), RECORD(OUTCOME, w));
#if BUG == LET_GO_UNFLUSHED
       found = word[r];
       if :: found != w -> goto gone :: else fi;
#endif
       UNLESS(OUTCOME_UNFLUSHED, flush());
#if CONTRIBUTES && BUG == CONTRIBUTION_FIRST
       contribute();
       advance(COMMIT);
#elif CONTRIBUTES
       advance(COMMIT);
       contribute();
#endif
       advance(COMPLETE);
       goto dropped;
gone:                                           /* all that we have put there is flushed */
       if
       :: STATE(found) == EVICTED && OWNER(found) == me && BUG != EVICTION_IGNORED ->
            atomic { w = found; swap(LET_GO, r, w, w); goto dropped }
       :: else
       fi;
dropped:
       atomic { r = 0; w = 0; found = 0; tasks = 0 }
    od
    } unless { d_step { dead[me] -> r = 0; w = 0; found = 0; tasks = 0 } }
}
