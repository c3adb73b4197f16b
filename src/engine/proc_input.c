/* What clients send to a process, kept until the program takes it. */
#include "engine/proc_parts.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"

void input_close(struct proc *p)
{
	watch_del(&p->in_watch);
	close_fd(&p->in);
}

static void move_together(struct proc *p)
{
	buf_drop(&p->input, p->input_at < p->input.len ? p->input_at : p->input.len);
	p->input_at = 0;
}

static void on_input_room(void *ctx, uint32_t events)
{
	struct proc *p = ctx;
	/* Nobody reads the other end any more; epoll would say so for ever. */
	if (events & (EPOLLERR | EPOLLHUP)) {
		p->input.len = 0;
		p->in_closing = true;
	}
	while (p->input_at < p->input.len) {
		ssize_t n = write(p->in, p->input.p + p->input_at, p->input.len - p->input_at);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* it closed its end: nobody will read this */
			p->input.len = 0;
			p->in_closing = true;
			break;
		}
		p->input_at += (size_t)n;
	}
	/* Only now and then: a program may take its input in small pieces. */
	if (2 * p->input_at >= p->input.len)
		move_together(p);
	watch_set(&p->in_watch, p->input.len ? EPOLLOUT : 0);
	if (p->in_closing && !p->input.len)
		input_close(p);
}

/* What all of the sandbox's processes have not taken yet. */
static size_t waiting(const struct sandbox *s)
{
	size_t n = 0;
	for (const struct proc *p = s->procs; p; p = p->next)
		n += p->input.len - p->input_at;
	return n;
}

int proc_input(struct proc *p, bool pty, const char *data, size_t n, struct err *err)
{
	const char *where = pty ? "tty" : "stdin", *why = NULL;
	if (pty && !p->pty)
		why = "tty not assigned to process";
	else if (!pty && p->pty)
		why = "tty assigned to process, input should be written to the pty, not the stdin";
	else if (p->in < 0 || p->in_closing)
		why = pty ? "the terminal is closed" : "stdin not enabled or closed";
	if (why)
		return err_set(err, ERR_CONFLICT, "error writing to %s: %s", where, why);
	if (p->input.len + n > INPUT_MAX)
		move_together(p);
	if (waiting(p->s) + n > INPUT_ALL_MAX || buf_add(&p->input, data, n) < 0)
		return err_set(err, ERR_LIMIT, "error writing to %s: the process does not read",
			       where);
	on_input_room(p, EPOLLOUT);
	return 0;
}

int proc_close_input(struct proc *p, struct err *err)
{
	if (p->pty)
		return err_set(err, ERR_CONFLICT,
			       "cannot close stdin for PTY process: send Ctrl+D (0x04) instead");
	p->in_closing = true;
	if (p->in >= 0)
		on_input_room(p, EPOLLOUT);
	return 0;
}

void input_begin(struct proc *p, struct loop *loop)
{
	watch_add(&p->in_watch, loop, p->in, 0, on_input_room, p);
}
