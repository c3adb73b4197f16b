#include "agent/usage.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"

static uint64_t timeval_us(struct timeval t)
{
	return (uint64_t)t.tv_sec * SECOND_US + (uint64_t)t.tv_usec;
}

/* Fields of /proc/PID/stat, counted from 1 behind the command, whose text may hold anything but a
 * last ')'. */
static void add_process(const char *pid, struct agent_usage *out)
{
	char path[64], line[1024];
	snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return;
	size_t n = fread(line, 1, sizeof line - 1, f);
	fclose(f);
	line[n] = '\0';
	const char *p = strrchr(line, ')');
	unsigned long utime, stime;
	long rss;
	if (!p ||
	    sscanf(p + 1,
		   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d "
		   "%*u %*u %ld",
		   &utime, &stime, &rss) != 3)
		return;
	out->cpu_us += (uint64_t)(utime + stime) * (SECOND_US / (uint64_t)sysconf(_SC_CLK_TCK));
	out->mem_used += (uint64_t)(rss > 0 ? rss : 0) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void usage_read(struct agent_usage *out)
{
	*out = (struct agent_usage){ 0 };
	struct rusage ended;
	if (getrusage(RUSAGE_CHILDREN, &ended) == 0)
		out->cpu_us += timeval_us(ended.ru_utime) + timeval_us(ended.ru_stime);
	DIR *proc = opendir("/proc");
	if (proc) {
		for (struct dirent *e; (e = readdir(proc));)
			if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
				add_process(e->d_name, out);
		closedir(proc);
	}
	struct statvfs fs;
	if (statvfs("/", &fs) == 0) {
		out->disk_total = (uint64_t)fs.f_blocks * fs.f_frsize;
		out->disk_used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
	}
}
