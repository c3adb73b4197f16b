/* Where things are: base URLs out of the settings, as E2B's own SDKs read them, and signed file
 * URLs. Pure functions. */
#ifndef E2B_ADDRESS_H
#define E2B_ADDRESS_H

#include <stdbool.h>

#include "base/buf.h"
#include "e2b/e2b.h"

#define PORT_ENVD        49983
#define PORT_INTERPRETER 49999

struct address {
	char domain[256];
	char api[512];     /* no slash at the end, here and below */
	char sandbox[512]; /* the one host of all sandboxes, which routes by headers */
	bool fixed;        /* it was set by hand, so there is no other way */
};

/* ERR_INVALID when a setting is no domain or URL. */
int address_init(struct address *a, const struct e2b_config *config, struct err *err);

/* ERR_INVALID for what cannot be a sandbox's id; such a text never gets into a URL. */
int address_check_id(const char *id, struct err *err);

/* Whether a text can stand in a header field: printable ASCII, no spaces at its ends. */
bool address_is_field(const char *s);

/* Append "https://{port}-{id}.{domain}", the domain being the sandbox's own or ours. */
int address_by_host(const struct address *a, const struct e2b_sandbox *sb, int port,
		    struct buf *out);

/* Append "v1_" and the base64, without its padding, of a SHA-256 over what may be done. user is ""
 * when the URL names none; unix_expiry 0 is for ever. */
int address_sign(struct buf *out, const char *path, const char *operation, const char *user,
		 const char *token, int64_t unix_expiry);

#endif
