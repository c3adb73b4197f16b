/* The ledger of creates. A row is written before the provider is asked, and its nonce goes along as
 * a label: a sandbox whose reply was lost, or whose maker died, is found again by it. A create is
 * never blindly repeated, and a row whose outcome nobody knows stays on the list of what is to be
 * killed. */
#ifndef CORE_LEDGER_H
#define CORE_LEDGER_H

#include "core/session.h"

/* Make the sandbox of a row that is claimed, or adopt what an earlier maker left. Our own
 * ERR_CONFLICT (not remote): the row is settled, by somebody else or as one to be killed; look for
 * it again. */
int ledger_make(struct core *c, const struct session *want, const struct sandbox_row *row,
		bool adopting, struct err *err);

/* The id of the sandbox that carries the nonce; "" when the provider has none. Looks for a while,
 * since a new one can be late in the list. */
int ledger_find(struct core *c, const char *nonce, char id[STORE_ID_MAX + 1], struct err *err);

#endif
