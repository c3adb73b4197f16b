/* What a sandbox sees as its file system: one private tmpfs as its disk, the machine's /usr
 * read-only, an /etc of its own, a /dev with six devices, its own /proc. */
#ifndef ENGINE_ROOTFS_H
#define ENGINE_ROOTFS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Where programs are found, behind the user's own folder. */
#define ROOTFS_PATH      "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/etc/sandgate/bin"
#define ROOTFS_DRIVER    "/etc/sandgate/kernel.py"
#define ROOTFS_CHARTS    "/etc/sandgate/charts.py" /* the driver looks for it beside itself */
#define ROOTFS_DRIVER_JS "/etc/sandgate/kernel.js"
#define ROOTFS_WHEELS    "/opt/wheelhouse"

#define ROOTFS_PTYS "64" /* terminals at once: the machine has some 3,000 for all sandboxes */

struct rootfs {
	uint64_t disk;         /* bytes */
	bool two_users;        /* root and user; else all belongs to user */
	bool internet;         /* a resolver is written */
	bool wheelhouse;       /* bind KEEPER_WHEELS */
	const char *driver;    /* text of the Python driver */
	const char *charts;    /* and of its reader of figures */
	const char *driver_js; /* text of the JavaScript driver */
	bool shared_proc;      /* the engine's own: for the zygote, which is in its pid namespace */
};

/* How many inodes a disk of so many bytes has. The kernel needs about 1 kB for each. */
uint64_t rootfs_inodes(uint64_t disk);

/* Build it and make it the root of this process, which must be root of fresh user and mount
 * namespaces. */
int rootfs_enter(const struct rootfs *r, struct err *err);

#endif
