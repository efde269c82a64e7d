/* What both programs need and what is not about RDMA: errors that say where they happened, and names as addresses. */
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	RESOLVE_MS = 2000,
};

/* Most calls of librdmacm and libibverbs say 0 or a pointer on success; on failure most set errno. Calls like ibv_post_send
 * return the number instead, and the two agree often enough that this prints both. */
#define TRY(call)                                                                                                     \
	do {                                                                                                              \
		errno = 0;                                                                                                    \
		int result = (call);                                                                                          \
		if (result) {                                                                                                 \
			fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #call, strerror(result > 0 ? result : errno)); \
			exit(1);                                                                                                  \
		}                                                                                                             \
	} while (0)

#define TRY_POINTER(pointer)                                                                             \
	do {                                                                                                 \
		errno = 0;                                                                                       \
		if (!(pointer)) {                                                                                \
			fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #pointer, strerror(errno));    \
			exit(1);                                                                                     \
		}                                                                                                \
	} while (0)

/* The address of a host (NULL: any of our own) and a port. */
static inline struct sockaddr_storage address_of(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE, .ai_family = host ? AF_UNSPEC : AF_INET6 };
	struct addrinfo *found;
	int error = getaddrinfo(host, port, &hints, &found);
	if (error) {
		fprintf(stderr, "%s, port %s: %s\n", host ? host : "any address", port, gai_strerror(error));
		exit(1);
	}
	struct sockaddr_storage address = { 0 };
	memcpy(&address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return address;
}

/* Waits for the next event of the connection manager, which has to be `expected`. The caller acknowledges it when it needs
 * nothing of it any more: private data, for one, lives that long. */
static inline struct rdma_cm_event *next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event;
	TRY(rdma_get_cm_event(channel, &event));
	if (event->event != expected) {
		fprintf(stderr, "expected %s, but there came %s, status %d\n", rdma_event_str(expected),
			rdma_event_str(event->event), event->status);
		exit(1);
	}
	return event;
}

/* The same for events of which nothing but their coming is of interest. */
static inline void expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type expected)
{
	TRY(rdma_ack_cm_event(next_event(channel, expected)));
}

#endif
