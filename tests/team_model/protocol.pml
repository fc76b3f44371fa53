/* The protocol of templates/common/team/protocol.cuh, for spin: ranks with blocks that push, raise flags, await them and end launches.
   RANKS, BLOCKS of each, RESIDENT of them at once, LAUNCHES of each rank. FAULTS: any wait may time out; with FAULTY, that of rank FAULTY
   alone. A rank that has read a flag must find the data of its own epoch in its half until it has read it. Every launch must end, without
   faults or with those of one rank, of which it tells the others. TWO_SHOT: a block of each rank, once all parts have come, sends sums in
   turn, and what is received last are the sums: see two_shot.cuh. */

#ifdef ONE_FLAG /* wrong: a flag for all epochs */
#define FLAG(rank, epoch, from) ((rank) * 2 * RANKS + (from))
#else
#define FLAG(rank, epoch, from) AT(rank, epoch, from)
#endif
#define AT(rank, epoch, from) ((rank) * 2 * RANKS + ((epoch) % 2) * RANKS + (from))

#ifdef TWO_SHOT
#define SENT (2 * RANKS * 2 * RANKS) /* parts, then sums */
#else
#define SENT (RANKS * 2 * RANKS)
#endif
#define PARTS 0
#define SUMS (RANKS * 2 * RANKS)

byte data[SENT]; /* in a rank's half for an epoch, from a rank: the epoch that it was pushed in */
byte flag[SENT];
byte epoch[RANKS];            /* completed */
byte started[RANKS], finished[RANKS], resident[RANKS], pushed[RANKS], summed[RANKS], received[RANKS];
bool failed[RANKS];
bool timed_out[RANKS]; /* failed by itself */
bool told[RANKS];      /* by a peer that timed out */

#ifdef FAULTY
#define MAY_TIME_OUT(rank) ((rank) == FAULTY)
#else
#define MAY_TIME_OUT(rank) true
#endif

/* What `peer` sent to `me` in epoch `now`. */
inline receive(what, peer) {
  if
  :: takes_part && flag[what + FLAG(me, now, peer)] == now ->
     assert(data[what + AT(me, now, peer)] == now); /* the first word that is read, and the last */
     assert(data[what + AT(me, now, peer)] == now)
  :: !takes_part || failed[me] -> takes_part = false
  :: takes_part && told[me] -> failed[me] = true; takes_part = false
#ifdef FAULTS
  :: takes_part && !failed[me] && MAY_TIME_OUT(me) ->
     failed[me] = true; timed_out[me] = true; takes_part = false
#endif
  fi
}

inline push(what, peer) {
  if
  :: takes_part ->
     data[what + AT(peer, now, me)] = now;
     flag[what + FLAG(peer, now, me)] = now
  :: else
  fi
}

inline add_up() {
  do
  :: atomic { summed[me] == 0 -> summed[me] = 1 }
     for (peer : 0 .. RANKS - 1) {
       if
       :: peer != me -> receive(PARTS, peer)
       :: else
       fi
     }
     for (peer : 0 .. RANKS - 1) {
       if
       :: peer != me -> push(SUMS, peer)
       :: else
       fi
     }
  :: atomic { summed[me] == 1 -> break }
  od
}

inline receive_all(what) {
  do
  :: atomic { received[me] < RANKS - 1 -> item = received[me]; received[me]++ }
     peer = (me + 1 + item) % RANKS;
     receive(what, peer)
  :: atomic { received[me] == RANKS - 1 -> break }
  od
}

proctype block(byte me, number) {
  byte now, item, peer, other;
  bool takes_part;
  do
  :: now == LAUNCHES -> break
  :: else ->
    /* A device starts blocks in order, as many at once as it has places for. */
    atomic {
      epoch[me] == now && started[me] == number && resident[me] < RESIDENT;
      started[me]++; resident[me]++; now++;
      failed[me] = failed[me] || told[me];
      takes_part = !failed[me]
    }
    do
    :: atomic { pushed[me] < RANKS - 1 -> item = pushed[me]; pushed[me]++ }
       peer = (me + 1 + item) % RANKS;
       push(PARTS, peer)
    :: atomic { pushed[me] == RANKS - 1 -> break }
    od;
#ifdef TWO_SHOT
#ifdef HASTY /* wrong: a block waits for sums before its rank's own are sent */
    receive_all(SUMS);
    add_up();
#else
    add_up();
    receive_all(SUMS);
#endif
#else
    receive_all(PARTS);
#endif
#ifndef SILENT /* wrong: peers wait for a rank that takes part no more */
    if
    :: !takes_part && timed_out[me] ->
       for (other : 0 .. RANKS - 1) { told[other] = told[other] || other != me }
    :: else
    fi;
#endif
    atomic {
      finished[me]++; resident[me]--;
      if
      :: finished[me] == BLOCKS ->
         finished[me] = 0; started[me] = 0; pushed[me] = 0; summed[me] = 0; received[me] = 0;
#ifdef FORGIVING /* wrong: a rank that failed goes on as if nothing had been */
         failed[me] = false; told[me] = false; timed_out[me] = false;
#endif
         epoch[me]++
      :: else
      fi
    }
  od
}

init {
  byte rank, number;
  atomic {
    for (rank : 0 .. RANKS - 1) {
      for (number : 0 .. BLOCKS - 1) { run block(rank, number) }
    }
  }
}
