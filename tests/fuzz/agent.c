/* What a sandbox's agent says to the engine. Each line is a packet: its operation, id, value and
 * number of descriptors as characters from '0' on, and the payload. A line that begins with '!' is
 * a packet of just its other bytes. In both '|' is a NUL. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/packet.h"
#include "engine/agent.h"

#define CALLS 3

struct peer {
	struct loop *loop;
	int answers[CALLS];
	bool lost;
};

static struct peer peer;

static void on_reply(void *ctx, int value, const char *payload, size_t n, int fd)
{
	int *answers = ctx;
	size_t pos = 0;
	CHECK(n <= PACKET_MAX);
	const char *text = agent_string(payload, n, &pos);
	CHECK(!text || (pos <= n && text[strlen(text)] == '\0'));
	CHECK(value != -ECONNRESET || fd < 0 || !peer.lost);
	++*answers;
	if (fd >= 0)
		CHECK(close(fd) == 0);
}

static void on_event(void *ctx)
{
	CHECK(ctx == &peer && !peer.lost);
}

static void on_failed(void *ctx, const char *why)
{
	on_event(ctx);
	CHECK(strlen(why) < PACKET_MAX);
}

static void on_exited(void *ctx, uint32_t id, int status)
{
	(void)id;
	(void)status;
	on_event(ctx);
}

static void on_lost(void *ctx)
{
	on_event(ctx);
	peer.lost = true;
	loop_stop(peer.loop);
}

static const struct agent_events events = { on_event, on_event, on_failed, on_exited, on_lost };

static int open_descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void send_line(int sock, char *line)
{
	const int fds[PACKET_FDS_MAX] = { 0 };
	size_t n = strlen(line);
	for (char *p = line; (p = strchr(p, '|'));)
		*p++ = '\0';
	if (*line == '!' || n < 4) {
		packet_send(sock, line + (*line == '!'), n - (*line == '!'), NULL, 0, NULL, 0);
		return;
	}
	struct agent_msg msg = { .op = (uint32_t)(line[0] - '0'),
				 .id = (uint32_t)(line[1] - '0'),
				 .value = line[2] - '0' };
	size_t nfds = (unsigned char)(line[3] - '0') % (PACKET_FDS_MAX + 1);
	packet_send(sock, &msg, sizeof msg, line + 4, n - 4, fds, nfds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	const int before = open_descriptors();
	int ends[2];
	struct agent *a = NULL;
	peer = (struct peer){ 0 };
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
	CHECK(loop_new(&peer.loop, NULL) == 0);
	CHECK(agent_new(&a, peer.loop, ends[0], &events, &peer, NULL) == 0);
	for (size_t i = 0; i < CALLS; i++)
		CHECK(agent_call_path(a, AGENT_STAT, 0, 0, "/", on_reply, &peer.answers[i]));
	agent_forget(a, CALLS);
	while (n) {
		_free_ char *line = take_line(&p, &n);
		send_line(ends[1], line);
	}
	/* Not closed yet: with calls that nobody read, that would throw away what was sent. */
	CHECK(shutdown(ends[1], SHUT_WR) == 0);
	loop_run(peer.loop);
	close(ends[1]);
	agent_free(a);
	loop_free(peer.loop);
	/* Each is answered once, be it only by the end; nobody asks for the forgotten one. */
	CHECK(peer.lost && peer.answers[0] == 1 && peer.answers[1] == 1 && !peer.answers[2]);
	CHECK(open_descriptors() == before);
	return 0;
}
