/* The window, who lives, and what each of them may do there. */

#define OTHER          (WORKERS + 1)            /* the second submitter; the first is member 0 */
#define MEMBERS        (WORKERS + 2)
#define ALL            ((1 << TASKS) - 1)
#define OTHERS         (ALL & ~((1 << (TASKS - SECOND)) - 1))
#define INDEX(task)    (task == 4 -> 2 : task - 1)              /* of a set of one task */

short word[ROWS];
byte  descriptor[ROWS];                         /* the tasks of a row, a set */
short record[ROWS];                             /* the outcome record: a piece, or the outcome */
short first[ROWS];                              /* the outcome of a row's first task */
byte  number[TASKS];                            /* what tasks have contributed */

#define RECORD(kind, w)  WORD(kind, OWNER(w), GENERATION(w))    /* it says which attempt it is of */
#define REQUEST  1
#define ANSWER   2
#define OUTCOME  3

byte  place[MEMBERS];                           /* of a put that has not landed; 0: there is none */
short content[MEMBERS];                         /* its bytes */

#define NOWHERE         0
#define AT(place, row)  (place | (row) << 4)
#define DESCRIPTOR_OF   1
#define RECORD_OF       2
#define FIRST_OF        3
#define NUMBERS         4                       /* an accumulate: landing adds */

bool dead[MEMBERS];
#define NOBODY_LIVES    (dead[1] && dead[(WORKERS + 1) / 2] && dead[WORKERS])   /* at most three */

byte crashes = CRASHES, suspicions = SUSPICIONS, hasty = HASTY;
byte cancels = CANCELS, kills = KILLS, recalls = RECALLS;

/* What really happened, for the assertions alone. */
byte submitter_of[ROWS];
byte tasks_of[ROWS];
byte collected, voided, settled;                /* tasks: cancelled, killed and failed are void */
bool ran[ROWS];                                 /* whether somebody has run it */

/* --- the rules ------------------------------------------------------------------------------- */

/* What must hold, by name; a rule may be switched off. */
#define must(what, holds)                                                                       \
    if                                                                                          \
    :: holds                                                                                    \
    :: else -> printf("broken: "); printf(what); printf("\n"); assert(false)                    \
    fi
#define rule(what, holds)       must(what, BLIND || (holds))

/* Who may take a step: its owner, its submitter, or somebody else. */
#define MAY(s, w, r)                                                                            \
    (s == RESERVE || s == CLAIM                                                                 \
    || (s == ABANDON && OWNER(w) != me)                                                         \
    || (s == LET_GO && (OWNER(w) == me || (dead[OWNER(w)] && !place[OWNER(w)])))                \
    || (s == SETTLE && submitter_of[r] == me && dead[OWNER(w)])                                 \
    || ((s == CANCEL || s == SUPPLY || s == TAKE || s == RECALL                                 \
        || s == RECLAIM || s == RETIRE) && submitter_of[r] == me)                               \
    || ((s == PUBLISH || s == WANT || s == OFFER || s == NEXT || s == COMMIT                    \
        || s == COMPLETE || s == GIVE_BACK) && OWNER(w) == me))

/* One compare-and-swap: a step from the word that is held, if `against` stands there. */
inline swap(s, r, held, against) {
    d_step {
        found = word[r];
        if
        :: found == against ->
            rule("no such step", leads[STATE(found) * STEPS + s]);
            rule("no next after a recall", (s != NEXT && s != RECALL) || !RECALLED(found));
            rule("nothing to give back", s != GIVE_BACK || STRIDE(found));
            rule("another generation", GENERATION(held) == GENERATION(found));
            rule("not its step", MAY(s, found, r));
            word[r] = AFTER(s, held);
            if
            :: STATE(word[r]) == FREE ->        /* what it holds means nothing: fewer states */
                descriptor[r] = 0; record[r] = 0; first[r] = 0;
                ran[r] = false; tasks_of[r] = 0; submitter_of[r] = 0
            :: else
            fi;
            if
            :: !taken[STATE(found) * STEPS + s] ->
                taken[STATE(found) * STEPS + s] = true;
                printf("step %d %d %d\n", STATE(found), s, STATE(word[r]))
            :: else
            fi
        :: else
        fi
    }
}

#define WRITES_DESCRIPTOR(m, w)                                                                 \
    (OWNER(w) == m && (STATE(w) == RESERVED || STATE(w) == EVICTED))
#define WRITES_RECORD(m, w, r)                                                                  \
    ((0 < m && m <= WORKERS)                                                                    \
    -> (OWNER(w) == m && (STATE(w) == CLAIMED || STATE(w) == EVICTED)                           \
        && GENERATION(w) == GENERATION(content[m]))                                             \
    : (STATE(w) == WANTED && submitter_of[r] == m))

/* What a member has put becomes visible. */
inline land(m) {
    if
    :: (place[m] & 15) == DESCRIPTOR_OF ->
        rule("not its descriptor", WRITES_DESCRIPTOR(m, word[place[m] >> 4]));
        descriptor[place[m] >> 4] = content[m]
    :: (place[m] & 15) == RECORD_OF ->
        rule("not its record", WRITES_RECORD(m, word[place[m] >> 4], place[m] >> 4));
        record[place[m] >> 4] = content[m]
    :: (place[m] & 15) == FIRST_OF ->
        rule("not its record", WRITES_RECORD(m, word[place[m] >> 4], place[m] >> 4));
        first[place[m] >> 4] = content[m]
    :: (place[m] & 15) == NUMBERS ->
        number[place[m] >> 4]++;
        must("a task counts twice", number[place[m] >> 4] == 1)
    fi;
    place[m] = NOWHERE; content[m] = 0
}

inline put(where, what) {
    d_step { place[me] == NOWHERE -> place[me] = where; content[me] = what }
}

inline flush() {
    d_step { if :: place[me] -> land(me) :: else fi }
}

#define UNLESS(bug, action)  if :: BUG != bug -> action :: else fi

proctype environment() {
#define HAPPENS_TO(m)                                                                           \
    :: d_step { place[m] -> land(m) }                                                           \
    :: d_step { dead[m] && place[m] -> place[m] = NOWHERE; content[m] = 0 }                     \
    :: d_step { crashes && !dead[m] && (SECOND == 0 || m == OTHER) -> crashes--; dead[m] = true }
end:
    do
    HAPPENS_TO(1)
#if WORKERS > 1
    HAPPENS_TO(2)
#endif
#if WORKERS > 2
    HAPPENS_TO(3)
#endif
#if SECOND
    HAPPENS_TO(OTHER)
#endif
    :: d_step { place[0] -> land(0) }
    od
}
