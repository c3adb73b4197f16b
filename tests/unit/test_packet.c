/* Packets with descriptors, and the strings in a message of the agent. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/packet.h"
#include "wire/agentmsg.h"

static int pair[2];

static int open_pair(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
	(void)state;
	close(pair[0]);
	close(pair[1]);
	return 0;
}

static int open_descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void head_body_and_descriptors(void **state)
{
	(void)state;
	char got[64];
	int fds[PACKET_FDS_MAX], pipes[2];
	size_t nfds;
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(packet_send(pair[0], "head", 4, "body", 4, pipes, 2), 0);
	assert_int_equal(packet_recv(pair[1], got, sizeof got, fds, &nfds), 8);
	assert_memory_equal(got, "headbody", 8);
	assert_int_equal(nfds, 2);
	assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(read(pipes[0], got, 1), 1);
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		close(pipes[i]);
	}
}

static void packets_keep_their_borders(void **state)
{
	(void)state;
	char got[64];
	int fds[PACKET_FDS_MAX];
	size_t nfds;
	assert_int_equal(packet_send(pair[0], "one", 3, NULL, 0, NULL, 0), 0);
	assert_int_equal(packet_send(pair[0], "three", 5, NULL, 0, NULL, 0), 0);
	assert_int_equal(packet_recv(pair[1], got, sizeof got, fds, &nfds), 3);
	assert_int_equal(packet_recv(pair[1], got, sizeof got, fds, &nfds), 5);
	close(pair[0]);
	assert_int_equal(packet_recv(pair[1], got, sizeof got, fds, &nfds), 0);
	pair[0] = dup(pair[1]);
}

static void the_largest_packet(void **state)
{
	(void)state;
	char *data = calloc(1, PACKET_MAX), *got = malloc(PACKET_MAX);
	int fds[PACKET_FDS_MAX], size = 2 * PACKET_MAX;
	size_t nfds;
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	assert_int_equal(packet_send(pair[0], data, PACKET_MAX, NULL, 0, NULL, 0), 0);
	assert_int_equal(packet_recv(pair[1], got, PACKET_MAX, fds, &nfds), PACKET_MAX);
	free(data);
	free(got);
}

/* A packet that does not fit is refused as a whole, and its descriptors are not leaked. */
static void a_cut_packet(void **state)
{
	(void)state;
	char got[2];
	int fds[PACKET_FDS_MAX], zero = 0;
	size_t nfds;
	int before = open_descriptors();
	assert_int_equal(packet_send(pair[0], "too long", 8, NULL, 0, &zero, 1), 0);
	assert_int_equal(packet_recv(pair[1], got, sizeof got, fds, &nfds), -1);
	assert_int_equal(errno, EMSGSIZE);
	assert_int_equal(nfds, 0);
	assert_int_equal(open_descriptors(), before);
}

static void too_many_descriptors(void **state)
{
	(void)state;
	int many[PACKET_FDS_MAX + 1] = { 0 };
	assert_int_equal(packet_send(pair[0], "x", 1, NULL, 0, many, PACKET_FDS_MAX + 1), -1);
	assert_int_equal(errno, EINVAL);
}

static void strings_of_a_message(void **state)
{
	(void)state;
	static const char payload[] = "one\0\0three\0cut";
	size_t n = sizeof payload - 1, pos = 0;
	assert_string_equal(agent_string(payload, n, &pos), "one");
	assert_string_equal(agent_string(payload, n, &pos), "");
	assert_string_equal(agent_string(payload, n, &pos), "three");
	assert_null(agent_string(payload, n, &pos)); /* no NUL ends it */
	assert_int_equal(pos, 11);
	pos = n;
	assert_null(agent_string(payload, n, &pos));
	pos = 0;
	assert_null(agent_string(NULL, 0, &pos));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(head_body_and_descriptors, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(packets_keep_their_borders, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(the_largest_packet, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_cut_packet, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(too_many_descriptors, open_pair, close_pair),
		cmocka_unit_test(strings_of_a_message),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
