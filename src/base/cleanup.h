/* Ownership made visible: a local marked _free_, _close_ or _cleanup_(fn) is released on every path
 * out of its scope. What leaves the function is stolen from its cleanup. */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define _free_  _cleanup_(cleanup_free)
#define _close_ _cleanup_(cleanup_close)

static inline int steal_fd(int *fd)
{
	int out = *fd;
	*fd = -1;
	return out;
}

#define steal_ptr(p)                                                                               \
	({                                                                                         \
		__typeof__(p) stolen_ = (p);                                                       \
		(p) = NULL;                                                                        \
		stolen_;                                                                           \
	})

/* Close *fd if it is open, and mark it closed. */
static inline void close_fd(int *fd)
{
	cleanup_close(fd);
	*fd = -1;
}

#endif
