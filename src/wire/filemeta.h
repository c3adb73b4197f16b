/* Metadata of a file as an upload's headers bring it ("X-Metadata-<key>: <value>"), gathered as
 * pairs: key, NUL, value, NUL, behind each other. */
#ifndef WIRE_FILEMETA_H
#define WIRE_FILEMETA_H

#include "base/buf.h"
#include "base/err.h"

#define FILEMETA_HEADER  "X-Metadata-"
#define FILEMETA_KEY_MAX 246  /* bytes: what the name of an attribute has room for at E2B */
#define FILEMETA_MAX     4096 /* bytes of all keys and values of a file */
/* E2B counts this with every key: its attributes are named so. */
#define FILEMETA_NAMESPACE "user.e2b."

/* Add what a header says: key is its name behind FILEMETA_HEADER, in any case; of several with the
 * same key the first counts. pairs needs room for FILEMETA_MAX. ERR_INVALID, and nothing is added:
 * an empty or too long key, anything but printable ASCII, too much in all. */
int filemeta_add(struct buf *pairs, const char *key, const char *value, struct err *err);

#endif
