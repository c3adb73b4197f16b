/* Multicast and broadcast out of a sandbox. Routes cannot close them: a socket that names its
 * device has the kernel take any address to be on that link, and a group needs no answer to an ARP
 * request. A policy of the kernel's IPsec part is asked behind the routes, and holds such sockets,
 * too. */
#ifndef ENGINE_MULTICAST_H
#define ENGINE_MULTICAST_H

#include <stdbool.h>

#include "base/err.h"

/* Whether this kernel has such policies. */
bool multicast_can_close(void);

/* In the sandbox's network namespace, as its root: nothing is sent to 224.0.0.0/3. */
int multicast_close(struct err *err);

#endif
