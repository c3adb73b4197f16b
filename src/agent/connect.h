/* Connections to servers inside, made for the engine. */
#ifndef AGENT_CONNECT_H
#define AGENT_CONNECT_H

/* A TCP socket that is connected, or on its way, to a port of this sandbox's loopback: of IPv4, or
 * of IPv6 where that one refuses. Never waits. 0 and *fd, or a negative errno. */
int connect_port(int port, int *fd);

#endif
