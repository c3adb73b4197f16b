#include "base/procid.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

int procid_of(pid_t pid, struct procid *out)
{
	char path[32], text[1024];
	if (pid <= 0)
		return -1;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = read(fd, text, sizeof text - 1);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	/* proc(5): the name, field 2, is in parentheses and may itself hold spaces and parentheses.
	 */
	const char *rest = strrchr(text, ')');
	char state;
	int64_t start;
	if (!rest || sscanf(rest + 1,
			    " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			    "%*s %*s %" SCNd64,
			    &state, &start) != 2)
		return -1;
	if (state == 'Z' || state == 'X')
		return -1;
	*out = (struct procid){ pid, start };
	return 0;
}

bool procid_alive(struct procid p)
{
	struct procid now;
	return procid_of(p.pid, &now) == 0 && now.start == p.start;
}
