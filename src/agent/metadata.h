/* Metadata of files, kept here: a tmpfs has no attributes for users before Linux 6.6.
 *
 * It belongs to the inode, as an attribute would: it follows a rename and is shared by hard links.
 * An entry is known by device, inode and time of birth, so that a later file with the same number
 * has none of it. Nothing tells when an inode is gone without keeping it from going: where the
 * table is full, those entries are dropped whose file is not where it was last seen. */
#ifndef AGENT_METADATA_H
#define AGENT_METADATA_H

#include <stddef.h>
#include <sys/stat.h>

#include "base/buf.h"

#define METADATA_FILES 8192       /* of one sandbox */
#define METADATA_BYTES (8u << 20) /* of all of them, with their paths */

/* The file that fd is open on, at path, has these pairs (wire/filemeta.h) from now on and no
 * others. 0, or a negative errno: -ENOBUFS when there is no room. */
int metadata_set(int fd, const char *path, const char *pairs, size_t n);

/* Append "metadata":{...}, for the file at path, whose stat(2) is st; nothing when it has none. */
void metadata_put(struct buf *json, const char *path, const struct stat *st);

#endif
