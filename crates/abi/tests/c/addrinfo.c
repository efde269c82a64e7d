/* rdma_getaddrinfo: what comes back for which hints, and its errors. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>

#include "check.h"

#define FAILS(call, reason) CHECK((call) == -1 && errno == (reason))

static struct rdma_addrinfo *get(const char *node, const char *service, struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *info = NULL;
	CHECK(rdma_getaddrinfo(node, service, hints, &info) == 0);
	CHECK(info && !info->ai_next);
	return info;
}

static int in4(const struct sockaddr *address, const char *ip, int port)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;
	return in->sin_family == AF_INET && in->sin_addr.s_addr == inet_addr(ip) && ntohs(in->sin_port) == port;
}

int main(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(9) };

	/* Active: the destination, and no source unless the hints have one. */
	info = get("127.0.0.1", "7471", &hints);
	CHECK(info->ai_flags == 0 && info->ai_family == AF_INET);
	CHECK(info->ai_qp_type == IBV_QPT_RC && info->ai_port_space == RDMA_PS_TCP);
	CHECK(info->ai_dst_len == sizeof(struct sockaddr_in) && in4(info->ai_dst_addr, "127.0.0.1", 7471));
	CHECK(info->ai_src_len == 0 && !info->ai_src_addr);
	CHECK(info->ai_route_len == 0 && !info->ai_route && info->ai_connect_len == 0 && !info->ai_connect);
	CHECK(info->ai_dst_canonname && !info->ai_src_canonname);
	/* A program may give it parts of its own. */
	free(info->ai_dst_canonname);
	info->ai_dst_canonname = NULL;
	info->ai_connect = malloc(4);
	rdma_freeaddrinfo(info);

	hints.ai_src_addr = (struct sockaddr *)&address;
	hints.ai_src_len = sizeof address;
	info = get("127.0.0.1", "7471", &hints);
	CHECK(info->ai_src_len == sizeof address && in4(info->ai_src_addr, "127.0.0.1", 9));
	CHECK(info->ai_src_addr != hints.ai_src_addr);
	rdma_freeaddrinfo(info);

	/* Without hints: what getaddrinfo finds first. */
	info = get("127.0.0.1", "1", NULL);
	CHECK(info->ai_qp_type == IBV_QPT_RC && info->ai_port_space == RDMA_PS_TCP);
	rdma_freeaddrinfo(info);

	/* Neither node nor service: the hints themselves. */
	hints = (struct rdma_addrinfo){ .ai_family = AF_INET, .ai_qp_type = IBV_QPT_UD, .ai_port_space = RDMA_PS_UDP,
		.ai_dst_addr = (struct sockaddr *)&address, .ai_dst_len = sizeof address };
	info = get(NULL, NULL, &hints);
	CHECK(info->ai_family == AF_INET && info->ai_qp_type == IBV_QPT_UD && info->ai_port_space == RDMA_PS_UDP);
	CHECK(in4(info->ai_dst_addr, "127.0.0.1", 9) && info->ai_dst_addr != hints.ai_dst_addr);
	rdma_freeaddrinfo(info);

	/* Passive: an address to listen on, the wildcard if no node is named. */
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_PASSIVE, .ai_family = AF_INET, .ai_port_space = RDMA_PS_TCP };
	info = get(NULL, "7471", &hints);
	CHECK(info->ai_flags == RAI_PASSIVE && in4(info->ai_src_addr, "0.0.0.0", 7471));
	CHECK(info->ai_dst_len == 0 && !info->ai_dst_addr);
	rdma_freeaddrinfo(info);
	hints.ai_flags |= RAI_NUMERICHOST | RAI_NOROUTE;
	info = get("::1", NULL, (hints.ai_family = AF_INET6, &hints));
	CHECK(info->ai_family == AF_INET6 && info->ai_src_len == sizeof(struct sockaddr_in6));
	CHECK(IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)info->ai_src_addr)->sin6_addr));
	rdma_freeaddrinfo(info);

	/* Who says which address means it; so does who has a port for it. */
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_PASSIVE, .ai_family = AF_INET, .ai_port_space = RDMA_PS_TCP };
	info = get("127.0.0.1", NULL, &hints);
	CHECK(in4(info->ai_src_addr, "127.0.0.1", 0));
	rdma_freeaddrinfo(info);
	info = get("localhost", "7471", &hints);
	CHECK(in4(info->ai_src_addr, "127.0.0.1", 7471));
	rdma_freeaddrinfo(info);

	/* Queue pair type and port space, each from the other. */
	const struct { int qp_type, ps, then_qp_type, then_ps; } kinds[] = {
		{ IBV_QPT_UD, 0, IBV_QPT_UD, RDMA_PS_UDP },
		{ 0, RDMA_PS_UDP, IBV_QPT_UD, RDMA_PS_UDP },
		{ 0, RDMA_PS_IPOIB, IBV_QPT_UD, RDMA_PS_IPOIB },
		{ IBV_QPT_UC, 0, IBV_QPT_UC, RDMA_PS_TCP },
		{ IBV_QPT_XRC_SEND, RDMA_PS_TCP, IBV_QPT_XRC_SEND, RDMA_PS_TCP },
		{ IBV_QPT_RC, RDMA_PS_IB, IBV_QPT_RC, RDMA_PS_IB },
		{ IBV_QPT_UD, RDMA_PS_IB, IBV_QPT_UD, RDMA_PS_IB },
	};
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		hints = (struct rdma_addrinfo){ .ai_qp_type = kinds[i].qp_type, .ai_port_space = kinds[i].ps };
		info = get("127.0.0.1", "1", &hints);
		CHECK(info->ai_qp_type == kinds[i].then_qp_type && info->ai_port_space == kinds[i].then_ps);
		rdma_freeaddrinfo(info);
	}

	/* getaddrinfo's errors are returned as they are. */
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_NUMERICHOST };
	CHECK(rdma_getaddrinfo("localhost", "1", &hints, &info) == EAI_NONAME);
	hints = (struct rdma_addrinfo){ .ai_qp_type = IBV_QPT_UD, .ai_port_space = RDMA_PS_TCP };
	CHECK(rdma_getaddrinfo("127.0.0.1", "1", &hints, &info) == EAI_SOCKTYPE);
	hints = (struct rdma_addrinfo){ .ai_flags = 0x4000 };
	CHECK(rdma_getaddrinfo("127.0.0.1", "1", &hints, &info) == EAI_BADFLAGS);
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_FAMILY | RAI_NUMERICHOST, .ai_family = AF_IB };
	CHECK(rdma_getaddrinfo("fe80::1", "1", &hints, &info) == EAI_FAMILY);
	/* Others are errno's. */
	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
	FAILS(rdma_getaddrinfo("127.0.0.1", "1", NULL, NULL), EINVAL);
	hints = (struct rdma_addrinfo){ .ai_flags = 0x10 /* RAI_SA */ };
	FAILS(rdma_getaddrinfo(NULL, "1", &hints, &info), EOPNOTSUPP);
	hints = (struct rdma_addrinfo){ .ai_dst_len = 16 };
	FAILS(rdma_getaddrinfo(NULL, NULL, &hints, &info), EINVAL);
	rdma_freeaddrinfo(NULL);

	puts("addrinfo: ok");
	return 0;
}
