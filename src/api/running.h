/* Running something in a session's sandbox for a call, in whichever way its client listens: it
 * waits for the answer, reads a stream, or only wants to know the execution's id. */
#ifndef API_RUNNING_H
#define API_RUNNING_H

#include "api/call.h"
#include "core/run.h"

/* What a call wants to be run. */
struct order {
	struct run_request req; /* what, where in the sandbox, and with which limit */
	/* One attempt in the sandbox that is there; NULL: run_execution. */
	int (*attempt)(struct core *core, struct run_request *req, void *what,
		       struct run_report *out, struct err *err);
	void *what;  /* of attempt */
	bool detach; /* it goes on without the client */
};

/* Runs it and answers the call. */
void run_order(struct call *c, struct order *order);

#endif
