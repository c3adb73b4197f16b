#include "web/scoreboard.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

struct board {
	size_t bytes;
	int n;
	int hungry;
	_Atomic int64_t drain_deadline; /* 0: not draining */
	struct slot slots[];
};

int board_new(struct board **out, const int size[POOLS], struct err *err)
{
	int n = size[POOL_QUICK] + size[POOL_EXEC];
	size_t bytes = sizeof(struct board) + (size_t)n * sizeof(struct slot);
	struct board *b =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b == MAP_FAILED)
		return err_errno(err, "scoreboard");
	b->bytes = bytes;
	b->hungry = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	for (int i = 0; i < n; i++, b->n++) {
		struct slot *s = &b->slots[i];
		s->pool = i < size[POOL_QUICK] ? POOL_QUICK : POOL_EXEC;
		s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (s->wake < 0)
			break;
	}
	if (b->n < n || b->hungry < 0) {
		err_errno(err, "scoreboard: eventfd (raise the limit of open files)");
		board_free(b);
		return -1;
	}
	*out = b;
	return 0;
}

void board_free(struct board *b)
{
	if (!b)
		return;
	for (int i = 0; i < b->n; i++)
		close(b->slots[i].wake);
	if (b->hungry >= 0)
		close(b->hungry);
	munmap(b, b->bytes);
}

int board_size(const struct board *b)
{
	return b->n;
}

struct slot *board_slot(struct board *b, int i)
{
	return &b->slots[i];
}

int board_count(struct board *b, enum pool pool, enum slot_state state)
{
	int n = 0;
	for (int i = 0; i < b->n; i++)
		n += b->slots[i].pool == pool && atomic_load(&b->slots[i].state) == (int)state;
	return n;
}

bool board_linger(struct board *b, struct slot *s)
{
	int lingering = 0, all = 0;
	atomic_store(&s->lingers, true);
	for (int i = 0; i < b->n; i++) {
		all += b->slots[i].pool == s->pool;
		lingering += b->slots[i].pool == s->pool && atomic_load(&b->slots[i].lingers);
	}
	/* Of a pool of one nobody could ever have a place. */
	if (lingering <= all - all / 4)
		return true;
	atomic_store(&s->lingers, false);
	return false;
}

uint64_t board_key(const char *kind, const char *name)
{
	uint64_t h = 14695981039346656037u;
	const char *const parts[] = { kind, name };
	for (size_t i = 0; i < 2; i++) {
		for (const char *p = parts[i]; *p; p++)
			h = (h ^ (unsigned char)*p) * 1099511628211u;
		h = (h ^ 0xff) * 1099511628211u; /* "ab" + "c" is not "a" + "bc" */
	}
	return h ? h : 1;
}

void board_wait_for(struct slot *s, uint64_t key)
{
	atomic_store(&s->key, key);
}

static void ring(int fd)
{
	const uint64_t one = 1;
	ssize_t done = write(fd, &one, sizeof one);
	(void)done; /* full: it is awake already */
}

void board_wake(struct board *b, uint64_t key, const struct slot *self)
{
	for (int i = 0; i < b->n; i++)
		if (atomic_load(&b->slots[i].key) == key && &b->slots[i] != self)
			ring(b->slots[i].wake);
}

void board_wake_all(struct board *b)
{
	for (int i = 0; i < b->n; i++)
		ring(b->slots[i].wake);
}

void board_clear_wake(struct slot *s)
{
	uint64_t count;
	ssize_t done = read(s->wake, &count, sizeof count);
	(void)done; /* empty: somebody was quicker */
}

void board_drain(struct board *b, int64_t deadline)
{
	atomic_store(&b->drain_deadline, deadline);
	board_wake_all(b);
}

bool board_draining(const struct board *b, int64_t *deadline)
{
	int64_t at = atomic_load(&b->drain_deadline);
	if (at && deadline)
		*deadline = at;
	return at != 0;
}

int board_hungry(const struct board *b)
{
	return b->hungry;
}
