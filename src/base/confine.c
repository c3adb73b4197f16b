#include "base/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void limit(int what, uint64_t value)
{
	struct rlimit now, r = { value, value };
	if (getrlimit(what, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max < value)
		r.rlim_cur = r.rlim_max = now.rlim_max;
	setrlimit(what, &r);
}

void confine_limits(const struct limits *l)
{
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_NOFILE, 8192);
	limit(RLIMIT_MEMLOCK, 8u << 20);
	limit(RLIMIT_MSGQUEUE, 819200);
	limit(RLIMIT_SIGPENDING, 4096);
	limit(RLIMIT_FSIZE, l->file_size);
	limit(RLIMIT_NPROC, l->nproc);
	limit(RLIMIT_DATA, l->data);
}

void confine_secure(void)
{
	prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
					 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED);
}

/* The bounding set is emptied, so that no exec can give a capability back. Where there is one user
 * only, the launcher has emptied it before and this process may not (EPERM). */
static int drop_bounding(void)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap) < 0 && errno != EPERM)
			return -1;
	confine_secure();
	return 0;
}

int confine_become(uid_t uid, bool two_users)
{
	gid_t gid = uid;
	if (drop_bounding() < 0)
		return -1;
	if (two_users && (setgroups(1, &gid) < 0 || setresgid(gid, gid, gid) < 0 ||
			  setresuid(uid, uid, uid) < 0))
		return -1;
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0 } };
	return (int)syscall(SYS_capset, &head, none);
}
