#include "engine/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/keeper.h"
#include "wire/agentmsg.h"

/* Built here, in the child's own mount namespace; every Linux has it. */
#define BASE "/tmp"

/* Parts of the machine's /etc that programs need and that hold no secret. */
static const char *const etc_parts[] = {
	"alternatives",    "bash.bashrc", "ca-certificates", "debian_version", "fonts",
	"gai.conf",        "inputrc",     "ld.so.cache",     "ld.so.conf",     "ld.so.conf.d",
	"localtime",       "magic",       "magic.mime",      "matplotlibrc",   "mime.types",
	"os-release",      "protocols",   "python3",         "python3.11",     "python3.12",
	"python3.13",      "rpc",         "services",        "skel",           "ssl/certs",
	"ssl/openssl.cnf", "terminfo",    "timezone",        "xattr.conf",
};

static const char *const devices[] = { "null", "zero", "full", "random", "urandom", "tty" };

/* Files of /proc that tell of the machine rather than of the sandbox. */
static const char *const masked[] = { "proc/kcore",      "proc/keys",          "proc/key-users",
				      "proc/timer_list", "proc/sched_debug",   "proc/kmsg",
				      "proc/kallsyms",   "proc/sysrq-trigger", "proc/latency_stats",
				      "proc/config.gz",  "proc/cmdline",       "proc/bootconfig" };

struct dir {
	const char *path;
	mode_t mode;
	bool users;
};

static const struct dir dirs[] = {
	{ "usr", 0755, false },      { "etc", 0755, false },      { "proc", 0555, false },
	{ "dev", 0755, false },      { "sys", 0555, false },      { "run", 0755, false },
	{ "run/shm", 01777, false }, { "tmp", 01777, false },     { "var", 0755, false },
	{ "var/tmp", 01777, false }, { "var/lib", 0755, false },  { "var/cache", 0755, false },
	{ "var/log", 0755, false },  { "opt", 0755, false },      { "srv", 0755, false },
	{ "mnt", 0755, false },      { "media", 0755, false },    { "root", 0755, false },
	{ "home", 0755, false },     { "home/user", 0755, true },
};

static int make_dirs(const struct rootfs *r, struct err *err)
{
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
		const struct dir *d = &dirs[i];
		if (mkdir(d->path, d->mode) < 0 || chmod(d->path, d->mode) < 0)
			return err_errno(err, "make /%s", d->path);
		if (d->users && r->two_users && chown(d->path, AGENT_UID, AGENT_UID) < 0)
			return err_errno(err, "chown /%s", d->path);
	}
	return 0;
}

/* Bind from onto to, with all that is mounted below it. */
static int bind(const char *from, const char *to, uint64_t attributes, struct err *err)
{
	if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
		return err_errno(err, "bind %s", from);
	struct mount_attr a = { .attr_set = attributes };
	if (attributes && mount_setattr(AT_FDCWD, to, AT_RECURSIVE, &a, sizeof a) < 0)
		return err_errno(err, "make %s read-only", from);
	return 0;
}

#define READ_ONLY (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static int touch(const char *path)
{
	_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	return fd < 0 ? -1 : 0;
}

static int write_text(const char *path, const char *text, mode_t mode)
{
	_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		return -1;
	for (size_t n = strlen(text); n;) {
		ssize_t done = write(fd, text, n);
		if (done < 0)
			return -1;
		text += done;
		n -= (size_t)done;
	}
	return 0;
}

/* One part of /etc: a link as it is, a file or a folder bound read-only; what the machine lacks is
 * left out. */
static int bind_etc_part(const char *part, struct err *err)
{
	char from[128], to[128], target[PATH_MAX];
	struct stat st;
	snprintf(from, sizeof from, "/etc/%s", part);
	snprintf(to, sizeof to, "etc/%s", part);
	if (lstat(from, &st) < 0)
		return 0;
	char *slash = strrchr(to, '/');
	if (slash != to + 3) {
		*slash = '\0';
		mkdir(to, 0755);
		*slash = '/';
	}
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlink(from, target, sizeof target - 1);
		target[n < 0 ? 0 : n] = '\0';
		return symlink(target, to) < 0 ? err_errno(err, "link /%s", to) : 0;
	}
	if ((S_ISDIR(st.st_mode) ? mkdir(to, 0755) : touch(to)) < 0)
		return err_errno(err, "make /%s", to);
	return bind(from, to, READ_ONLY, err);
}

static int write_etc(const struct rootfs *r, struct err *err)
{
	static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
				     "user:x:1000:1000:user:/home/user:/bin/bash\n"
				     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
	static const char group[] = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n";
	static const char hosts[] = "127.0.0.1 localhost e2b.local\n::1 localhost\n";
	/* The machine's own would bring its folders and variables along. */
	static const char profile[] =
		"PATH=$HOME/.local/bin:" ROOTFS_PATH "\nexport PATH\n"
		"[ -n \"$BASH\" ] && [ -n \"$PS1\" ] && [ -r /etc/bash.bashrc ] && "
		". /etc/bash.bashrc\ntrue\n";
	static const char nsswitch[] = "passwd: files\ngroup: files\nhosts: files dns\n";
	char pip[256];
	/* Without a network the wheels are all that there is; without those pip shall find out soon
	 * that it reaches nothing, and say so. */
	const char *index = r->internet     ? ""
			    : r->wheelhouse ? "no-index = true\n"
					    : "retries = 1\n";
	/* Debian's pip refuses to touch the system's packages; the user's own folder is what it may
	 * fill. */
	snprintf(pip, sizeof pip,
		 "[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n"
		 "root-user-action = ignore\n%s%s[install]\nuser = true\n",
		 r->wheelhouse ? "find-links = " ROOTFS_WHEELS "\n" : "", index);
	const struct {
		const char *path, *text;
	} files[] = {
		{ "etc/passwd", passwd },
		{ "etc/group", group },
		{ "etc/hosts", hosts },
		{ "etc/hostname", "e2b.local\n" },
		{ "etc/nsswitch.conf", nsswitch },
		{ "etc/profile", profile },
		{ "etc/resolv.conf", r->internet ? "nameserver 10.0.2.3\n" : "" },
		{ "etc/pip.conf", pip },
		{ &ROOTFS_DRIVER[1], r->driver },
		{ &ROOTFS_CHARTS[1], r->charts },
		{ &ROOTFS_DRIVER_JS[1], r->driver_js },
	};
	if (mount("etc", "etc", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0)
		return err_errno(err, "mount /etc");
	if (mkdir("etc/sandgate", 0755) < 0 || mkdir("etc/sandgate/bin", 0755) < 0 ||
	    symlink("/usr/bin/python3", "etc/sandgate/bin/python") < 0)
		return err_errno(err, "make /etc/sandgate");
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (write_text(files[i].path, files[i].text, 0644) < 0)
			return err_errno(err, "write /%s", files[i].path);
	for (size_t i = 0; i < sizeof etc_parts / sizeof *etc_parts; i++)
		if (bind_etc_part(etc_parts[i], err) < 0)
			return -1;
	struct mount_attr ro = { .attr_set = READ_ONLY };
	if (mount_setattr(AT_FDCWD, "etc", AT_RECURSIVE, &ro, sizeof ro) < 0)
		return err_errno(err, "make /etc read-only");
	return 0;
}

/* /bin, /lib and their like are links into /usr on a merged system, folders on an older one. */
static int bind_system(struct err *err)
{
	static const char *const names[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
	if (bind("/usr", "usr", READ_ONLY, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char from[16], target[64];
		struct stat st;
		snprintf(from, sizeof from, "/%s", names[i]);
		if (lstat(from, &st) < 0)
			continue;
		if (S_ISLNK(st.st_mode)) {
			ssize_t n = readlink(from, target, sizeof target - 1);
			target[n < 0 ? 0 : n] = '\0';
			if (symlink(target, names[i]) < 0)
				return err_errno(err, "link %s", from);
		} else if (mkdir(names[i], 0755) < 0 || bind(from, names[i], READ_ONLY, err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int make_dev(struct err *err)
{
	if (mount("dev", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") < 0)
		return err_errno(err, "mount /dev");
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		char from[32], to[32];
		snprintf(from, sizeof from, "/dev/%s", devices[i]);
		snprintf(to, sizeof to, "dev/%s", devices[i]);
		if (touch(to) < 0)
			return err_errno(err, "make %s", from);
		if (bind(from, to, 0, err) < 0)
			return -1;
	}
	static const char *const links[][2] = { { "/proc/self/fd", "dev/fd" },
						{ "/proc/self/fd/0", "dev/stdin" },
						{ "/proc/self/fd/1", "dev/stdout" },
						{ "/proc/self/fd/2", "dev/stderr" },
						{ "pts/ptmx", "dev/ptmx" } };
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			return err_errno(err, "link %s", links[i][1]);
	if (mkdir("dev/pts", 0755) < 0 || mkdir("dev/shm", 01777) < 0 ||
	    mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		  "newinstance,ptmxmode=0666,mode=0620,max=" ROOTFS_PTYS) < 0)
		return err_errno(err, "mount /dev/pts");
	/* Shared memory counts against the disk, as a file there would. */
	if (bind("run/shm", "dev/shm", 0, err) < 0)
		return -1;
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };
	if (mount_setattr(AT_FDCWD, "dev", 0, &ro, sizeof ro) < 0)
		return err_errno(err, "make /dev read-only");
	return 0;
}

/* Of inotify the machine has so much for all sandboxes together: none may take it all. */
static int limit_inotify(struct err *err)
{
	static const char *const limits[][2] = {
		{ "proc/sys/user/max_inotify_instances", "16" },
		{ "proc/sys/user/max_inotify_watches", "32768" },
	};
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
		if (access(limits[i][0], F_OK) == 0 &&
		    write_text(limits[i][0], limits[i][1], 0) < 0)
			return err_errno(err, "write /%s", limits[i][0]);
	return 0;
}

static int mount_proc(const struct rootfs *r, struct err *err)
{
	if (r->shared_proc)
		return bind("/proc", "proc", 0, err);
	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return err_errno(err, "mount /proc");
	if (limit_inotify(err) < 0)
		return -1;
	if (bind("proc/sys", "proc/sys", READ_ONLY | MOUNT_ATTR_NOEXEC, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof masked / sizeof *masked; i++)
		if (access(masked[i], F_OK) == 0 && bind("/dev/null", masked[i], 0, err) < 0)
			return -1;
	/* What can be written below /proc is the machine's (pressure), or would make a process more
	 * important than a sandbox's may be (oom_score_adj). */
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };
	if (mount_setattr(AT_FDCWD, "proc", 0, &ro, sizeof ro) < 0)
		return err_errno(err, "make /proc read-only");
	return 0;
}

static int copy_file(int from_dir, const char *name, const char *home, bool chown_to_user)
{
	char data[65536], to[PATH_MAX];
	_close_ int in = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	snprintf(to, sizeof to, "%s/%s", home, name);
	_close_ int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (out < 0)
		return -1;
	ssize_t n = read(in, data, sizeof data);
	if (n < 0 || write(out, data, (size_t)n) != n)
		return -1;
	return chown_to_user ? fchown(out, AGENT_UID, AGENT_UID) : 0;
}

/* A new home holds what /etc/skel does: its plain files. */
static int fill_homes(const struct rootfs *r, struct err *err)
{
	DIR *skel = opendir("/etc/skel");
	if (!skel)
		return 0;
	int rc = 0;
	for (struct dirent *e; rc == 0 && (e = readdir(skel));) {
		if (e->d_type != DT_REG)
			continue;
		if (copy_file(dirfd(skel), e->d_name, "home/user", r->two_users) < 0 ||
		    copy_file(dirfd(skel), e->d_name, "root", false) < 0)
			rc = err_errno(err, "copy /etc/skel/%s", e->d_name);
	}
	closedir(skel);
	return rc;
}

uint64_t rootfs_inodes(uint64_t disk)
{
	return disk / 8192 < 65536 ? 65536 : disk / 8192;
}

int rootfs_enter(const struct rootfs *r, struct err *err)
{
	char how[128];
	umask(0022);
	snprintf(how, sizeof how, "mode=0755,size=%llu,nr_inodes=%llu", (unsigned long long)r->disk,
		 (unsigned long long)rootfs_inodes(r->disk));
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_errno(err, "mount namespace");
	if (mount("disk", BASE, "tmpfs", MS_NOSUID | MS_NODEV, how) < 0)
		return err_errno(err, "mount the disk");
	if (chdir(BASE) < 0)
		return err_errno(err, "enter the disk");
	if (make_dirs(r, err) < 0 || bind_system(err) < 0 || write_etc(r, err) < 0 ||
	    make_dev(err) < 0 || mount_proc(r, err) < 0 || fill_homes(r, err) < 0)
		return -1;
	if (r->wheelhouse && (mkdir(&ROOTFS_WHEELS[1], 0755) < 0 ||
			      bind(KEEPER_WHEELS, &ROOTFS_WHEELS[1], READ_ONLY, err) < 0))
		return -1;
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_errno(err, "change the root");
	return 0;
}
