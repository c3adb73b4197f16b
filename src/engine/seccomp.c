#include "engine/seccomp.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

#define LEN(a) (sizeof(a) / sizeof *(a))

/* set_mempolicy_home_node. The list below was made with all calls up to this one in view: newer
 * ones stay closed until somebody has looked at them, also where libseccomp knows them already. */
#define SYSCALL_LAST 450

/* Refused with EPERM: a way to new privileges or namespaces, to other processes, to the kernel's
 * less tested parts, or to the machine as a whole. */
static const char *const refused[] = {
	/* mounts and namespaces */
	"mount",
	"umount",
	"umount2",
	"pivot_root",
	"chroot",
	"open_tree",
	"move_mount",
	"fsopen",
	"fsconfig",
	"fsmount",
	"fspick",
	"mount_setattr",
	"setns",
	"unshare",
	/* other processes */
	"ptrace",
	"process_vm_readv",
	"process_vm_writev",
	"process_madvise",
	"pidfd_getfd",
	"kcmp",
	"move_pages",
	"migrate_pages",
	/* young or rarely used corners of the kernel */
	"bpf",
	"perf_event_open",
	"userfaultfd",
	"io_uring_setup",
	"io_uring_enter",
	"io_uring_register",
	"io_setup", /* of its contexts the machine has a fixed number (fs.aio-max-nr) for all */
	"keyctl",
	"add_key",
	"request_key",
	"fanotify_init",
	"fanotify_mark",
	"memfd_secret",
	"lookup_dcookie",
	"mbind",
	"set_mempolicy",
	"get_mempolicy",
	"set_mempolicy_home_node",
	"modify_ldt",
	"uselib",
	"ustat",
	"sysfs",
	"_sysctl",
	"vm86",
	"vm86old",
	"nfsservctl",
	"name_to_handle_at",
	"open_by_handle_at",
	/* the machine */
	"kexec_load",
	"kexec_file_load",
	"init_module",
	"finit_module",
	"delete_module",
	"create_module",
	"query_module",
	"get_kernel_syms",
	"reboot",
	"swapon",
	"swapoff",
	"acct",
	"quotactl",
	"quotactl_fd",
	"iopl",
	"ioperm",
	"settimeofday",
	"clock_settime",
	"clock_adjtime",
	"adjtimex",
	"stime",
	"syslog",
	"vhangup",
};

static int refuse_by_name(scmp_filter_ctx ctx)
{
	for (size_t i = 0; i < LEN(refused); i++) {
		int nr = seccomp_syscall_resolve_name(refused[i]);
		if (nr < 0)
			continue; /* another architecture's */
		int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), nr, 0);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int refuse_new_namespaces(scmp_filter_ctx ctx)
{
	static const unsigned long flags[] = { CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
					       CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
					       CLONE_NEWNET };
	int rc = 0;
	for (size_t i = 0; i < LEN(flags) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
	/* The flags of clone3 are behind a pointer: without it libc falls back to clone, whose are
	 * not. */
	return rc < 0 ? rc : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static int refuse_families(scmp_filter_ctx ctx, int call)
{
	int rc = 0;
	for (int family = 0; family < AF_NETLINK && rc == 0; family++)
		if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, 1,
					      SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)family, 0));
	return rc < 0 ? rc
		      : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, 1,
					 SCMP_A0(SCMP_CMP_GT, AF_NETLINK, 0));
}

/* What the kernel has for INET beyond TCP, UDP and ICMP is loaded when somebody asks for it, and is
 * little tried: DCCP, L2TP, SCTP, UDP-Lite, SMC, by their number or as the only one of their type.
 */
static int refuse_protocols(scmp_filter_ctx ctx)
{
	static const unsigned protocols[] = { 33, 115, 132, 136, 256 };
	static const unsigned types[] = { SOCK_SEQPACKET, SOCK_DCCP };
	static const unsigned families[] = { AF_INET, AF_INET6 };
	int rc = 0;
	for (size_t f = 0; f < LEN(families); f++) {
		for (size_t i = 0; i < LEN(protocols) && rc == 0; i++)
			rc = seccomp_rule_add(
				ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 2,
				SCMP_A0(SCMP_CMP_EQ, families[f], 0),
				SCMP_A2(SCMP_CMP_MASKED_EQ, 0xffffffffu, protocols[i]));
		for (size_t i = 0; i < LEN(types) && rc == 0; i++)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 2,
					      SCMP_A0(SCMP_CMP_EQ, families[f], 0),
					      SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, types[i]));
	}
	return rc;
}

/* Only UNIX, INET, INET6 and the routing part of NETLINK remain: a fresh network namespace does not
 * confine the others (AF_VSOCK reaches the hypervisor). A family without pairs finds that out only
 * after it was loaded and has made two sockets: so socketpair is no way to them, either. */
static int refuse_sockets(scmp_filter_ctx ctx)
{
	int rc = refuse_families(ctx, SCMP_SYS(socket));
	if (rc == 0)
		rc = refuse_families(ctx, SCMP_SYS(socketpair));
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 2,
				      SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0),
				      SCMP_A2(SCMP_CMP_NE, NETLINK_ROUTE, 0));
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socketpair), 1,
				      SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0));
	return rc < 0 ? rc : refuse_protocols(ctx);
}

/* Typing into a terminal as if its user did, and line disciplines, which are loaded on demand. The
 * kernel looks at 32 bits of the request only. */
static int refuse_ioctls(scmp_filter_ctx ctx)
{
	static const unsigned requests[] = { TIOCSTI, TIOCLINUX, TIOCSETD };
	int rc = 0;
	for (size_t i = 0; i < LEN(requests) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				      SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, requests[i]));
	return rc;
}

static int export(scmp_filter_ctx ctx, struct sock_fprog *out)
{
	_close_ int fd = memfd_create("filter", MFD_CLOEXEC);
	struct stat st;
	if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0 || fstat(fd, &st) < 0)
		return -1;
	_free_ char *code = malloc((size_t)st.st_size);
	if (!code || pread(fd, code, (size_t)st.st_size, 0) != st.st_size)
		return -1;
	out->len = (unsigned short)((size_t)st.st_size / sizeof(struct sock_filter));
	out->filter = (struct sock_filter *)(void *)steal_ptr(code);
	return 0;
}

static unsigned highest_known(void)
{
	unsigned last = 0;
	for (int nr = 0; nr <= SYSCALL_LAST; nr++) {
		_free_ char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);
		if (name)
			last = (unsigned)nr;
	}
	return last;
}

int seccomp_compile(struct seccomp_filter *f, struct err *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	if (!ctx)
		return err_set(err, ERR_INTERNAL, "seccomp: no memory");
	seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	int rc = refuse_by_name(ctx);
	if (rc == 0)
		rc = refuse_new_namespaces(ctx);
	if (rc == 0)
		rc = refuse_sockets(ctx);
	if (rc == 0)
		rc = refuse_ioctls(ctx);
	if (rc == 0)
		rc = export(ctx, &f->rules);
	seccomp_release(ctx);
	if (rc < 0)
		return err_set(err, ERR_INTERNAL, "seccomp: the filter could not be made (%d)", rc);

	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, highest_known(), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	_Static_assert(sizeof code == sizeof f->unknown_code, "the whole program is copied");
	memcpy(f->unknown_code, code, sizeof code);
	f->unknown = (struct sock_fprog){ LEN(code), f->unknown_code };
	return 0;
}

int seccomp_apply(const struct seccomp_filter *f)
{
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &f->rules) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &f->unknown);
}
