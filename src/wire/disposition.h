/* The Content-Disposition field of a download, RFC 6266. */
#ifndef WIRE_DISPOSITION_H
#define WIRE_DISPOSITION_H

struct buf;

/* Append `attachment; filename="name"`. A name that cannot stand in quotes as it is (other than
 * ASCII, control characters, '"', '\\', or what looks like a percent-escape) is sent twice: with
 * '_' for each such character, and as filename*=UTF-8''... of RFC 5987, which every current browser
 * prefers. What is not UTF-8 becomes U+FFFD there. 0, or -1 when out is full, and then nothing was
 * added. */
int disposition_attachment(struct buf *out, const char *name);

#endif
