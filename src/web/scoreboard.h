/* The scoreboard: one slot for each worker, in memory that master and workers share. It says who is
 * busy, wakes who waits, and tells everyone when the gateway is draining. It is sized once, before
 * the first fork. */
#ifndef WEB_SCOREBOARD_H
#define WEB_SCOREBOARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum pool { POOL_QUICK, POOL_EXEC, POOLS };

enum slot_state {
	SLOT_FREE, /* no process */
	SLOT_IDLE, /* waits for a connection */
	SLOT_BUSY, /* serves a request */
};

struct slot {
	_Atomic int
		state;   /* enum slot_state; FREE and back by the master, the rest by the worker */
	enum pool pool;  /* fixed */
	int wake;        /* eventfd, the same number in every process */
	pid_t pid;       /* by the master */
	int64_t started; /* CLOCK_MONOTONIC, microseconds, when it was forked */
	unsigned generation;     /* of the settings it was forked with */
	_Atomic uint64_t key;    /* what it waits for; 0: nothing */
	_Atomic bool lingers;    /* it serves one who may stay for long without need */
	_Atomic uint64_t served; /* requests, over all processes that had this slot */
};

struct board;

int board_new(struct board **out, const int size[POOLS], struct err *err);
void board_free(struct board *b); /* NULL is fine */

int board_size(const struct board *b);
struct slot *board_slot(struct board *b, int i);
int board_count(struct board *b, enum pool pool, enum slot_state state);

/* A waiter publishes its key, re-checks what it waits for, and then sleeps on its eventfd for at
 * most a second; whoever changes that thing wakes the key. Keys may collide: a wake-up is a reason
 * to look, nothing more. Whoever wakes is awake: self (NULL: none) is left alone. */
uint64_t board_key(const char *kind, const char *name);
void board_wait_for(struct slot *s, uint64_t key);
void board_wake(struct board *b, uint64_t key, const struct slot *self);
void board_wake_all(struct board *b);
void board_clear_wake(struct slot *s); /* after the eventfd was readable */

/* Draining: new executions are refused, running ones may go on until the deadline
 * (CLOCK_MONOTONIC). */
void board_drain(struct board *b, int64_t deadline);
bool board_draining(const struct board *b, int64_t *deadline); /* deadline may be NULL */

/* A run that nobody waits for, or a reader of an old one, takes a place only where a quarter of the
 * pool stays for the others. False: there is none now. It is given back with the slot. */
bool board_linger(struct board *b, struct slot *s);

/* The master's eventfd: written by a worker that took the last idle slot of the exec pool. */
int board_hungry(const struct board *b);

#endif
