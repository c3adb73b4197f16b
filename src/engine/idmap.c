#include "engine/idmap.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

int idmap_write(pid_t pid, const char *which, const char *text)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, which);
	_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}
