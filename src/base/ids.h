/* Random identifiers and the comparison of secrets. */
#ifndef BASE_IDS_H
#define BASE_IDS_H

#include <stdbool.h>
#include <stddef.h>

/* n characters of [a-z0-9] and a NUL; every one from the kernel's random source. */
void id_alnum(char *out, size_t n);

/* A random UUID, version 4, lower case, and a NUL. */
#define ID_UUID 37
void id_uuid(char out[ID_UUID]);

/* Time depends on the lengths only. */
bool secret_equal(const char *a, const char *b);

#endif
