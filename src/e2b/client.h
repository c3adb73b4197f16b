/* Inside the client: its state, and the way to sandboxes. Only src/e2b includes this. */
#ifndef E2B_CLIENT_H
#define E2B_CLIENT_H

#include "e2b/address.h"
#include "e2b/answer.h"
#include "e2b/call.h"
#include "e2b/remote_files.h"

/* Routes that have an older form. Which one a server knows is found out once. */
enum route { ROUTE_CREATE, ROUTE_CONNECT, ROUTE_LIST, ROUTE_COUNT };
enum version { VERSION_UNKNOWN, VERSION_2, VERSION_1 };

enum routing { ROUTING_UNKNOWN, ROUTING_HEADERS, ROUTING_HOST };

struct e2b {
	CURLM *multi; /* owns the kept connections and the parsed CA file */
	struct address address;
	char *api_key, *ca_file;
	int64_t timeout_us;
	enum version version[ROUTE_COUNT];
	enum routing routing;
	struct e2b_last last;
	e2b_done_fn *done; /* NULL: nobody wants to know */
	void *done_ctx;
};

/* wait's deadline, or the configured one from now on: all tries of an operation share it. */
int64_t client_deadline(const struct e2b *c, const struct e2b_wait *wait);

/* Begin and end of a public function: what e2b_last tells. client_end blots secrets out of *err and
 * returns rc. */
int64_t client_begin(struct e2b *c);
void client_names(struct e2b *c, const char *sandbox); /* whom the call is about */
int client_end(struct e2b *c, int64_t since, const struct e2b_sandbox *sb, int rc, struct err *err);

/* A call to a port of a sandbox: its URL up to path, routing and tokens; finds out first how
 * sandboxes are reached. path begins with '/'. */
int data_call(struct e2b *c, struct call *call, const struct e2b_sandbox *sb, int port,
	      const char *path, const struct e2b_wait *wait, struct err *err);

/* Run it and demand success: -1 with *err set for every status but 2xx. */
int data_run(struct e2b *c, struct call *call, const struct e2b_wait *wait, struct err *err);

/* Whether code or a command may have begun, after data_run has failed. The caller's own reasons to
 * end it are no such case. */
bool data_is_unknown(const struct e2b *c, const struct call *call, const struct err *err);

#endif
