/* A peer that does what neither Linux nor rnic does as a peer, so that a capture shows what Linux makes of it. It writes its
 * packets by itself, from two addresses of one host; what Linux runs meanwhile is faced.c. interop/captures/make runs both.
 *
 *     stand_in nak PORT A           takes one packet and says then by NAK 0 that the next was lost, again and again
 *     stand_in deaf PORT A          never answers a SEND
 *     stand_in elsewhere PORT A B HOST   connects from A; its RTU and DREQ come from B
 *     stand_in third PORT A B HOST  asks from A for a connection with B, which says nothing
 *     stand_in early PORT A         answers a REQ by REP and DREQ at once
 */
#include "tcp.h"

enum { ROCE = 4791, GSI_QKEY_HIGH = 0x8001, OWN_QPN = 0x777 };
enum { UD_SEND = 0x64, ACK = 0x11 };
enum { REQ = 0x10, REP = 0x13, RTU = 0x14, DREQ = 0x15, DREP = 0x16 };
/* In a packet: where the payload is, for connections and for datagrams. */
enum { BTH = 12, UD = BTH + 8, MAD = 256 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            die("%s:%d: not so: %s", __FILE__, __LINE__, #condition);                                                  \
    } while (0)

static uint8_t *be(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        at[i] = value;
    return at + bytes;
}

static uint32_t read_be(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    while (bytes--)
        value = value << 8 | *at++;
    return value;
}

/* A socket whose packets have no number (identification 0), as the ICRC supposes. */
static int bound(const char *address)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0), dont_fragment = IP_PMTUDISC_DO;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(ROCE)};
    if (inet_pton(AF_INET, address, &own.sin_addr) != 1 || bind(fd, (struct sockaddr *)&own, sizeof own) ||
        setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &dont_fragment, sizeof dont_fragment))
        die("bind to %s", address);
    return fd;
}

static uint32_t crc32(const uint8_t *data, size_t length, uint32_t crc)
{
    while (length--) {
        crc ^= *data++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return crc;
}

/* Sends a packet from BTH to payload; the ICRC is put behind it. */
static void transmit(int fd, const struct sockaddr_in *to, uint8_t *packet, size_t length)
{
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &size))
        die("getsockname");
    /* The headers as the ICRC takes them: 64 bits before them, and all that may change on the way, are ones. */
    uint8_t headers[8 + 20 + 8 + BTH], *at = headers;
    memset(headers, 0xff, sizeof headers);
    at = be(at + 8, 0x45ff, 2);
    at = be(at, 20 + 8 + length + 4, 2);
    at = be(at, 0x4000, 4); /* number 0, don't fragment */
    at = be(at, 0xff11ffff, 4);
    memcpy(at, &own.sin_addr, 4);
    memcpy(at + 4, &to->sin_addr, 4);
    at = be(at + 8, ROCE, 2);
    at = be(at, ROCE, 2);
    at = be(at, 8 + length + 4, 2) + 2;
    memcpy(at, packet, BTH);
    at[4] = 0xff;
    uint32_t crc = ~crc32(packet + BTH, length - BTH, crc32(headers, sizeof headers, ~0u));
    for (int i = 0; i < 4; i++)
        packet[length + i] = crc >> 8 * i;
    if (sendto(fd, packet, length + 4, 0, (const struct sockaddr *)to, sizeof *to) != (ssize_t)length + 4)
        die("sendto");
}

static void header(uint8_t *packet, int opcode, uint32_t qpn, uint32_t psn)
{
    uint8_t *at = be(packet, opcode, 1);
    at = be(at, 0x40, 1); /* migrated */
    at = be(at, 0xffff, 2);
    at = be(at, qpn, 4);
    be(at, psn, 4);
}

/* A connection with a queue pair of Linux's, which is told of the stand-in's as programs tell one another. */
static void connected(int port, const char *address, int answers)
{
    int fd = bound(address), tcp = listen_and_accept(port);
    struct endpoint own = {.qpn = OWN_QPN, .psn = 0}, peer;
    memset(own.gid.raw + 10, 0xff, 2);
    inet_pton(AF_INET, address, own.gid.raw + 12);
    CHECK(get(tcp, &peer, sizeof peer));
    put(tcp, &own, sizeof own);
    meet(tcp);
    uint32_t next = peer.psn;
    int take = 1;
    for (;;) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = tcp, .events = POLLIN}};
        poll(fds, 2, -1);
        if (fds[1].revents)
            return;
        uint8_t packet[2048];
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t length = recvfrom(fd, packet, sizeof packet, 0, (struct sockaddr *)&from, &size);
        if (!answers || length < BTH + 4 || read_be(packet + 9, 3) != next)
            continue;
        if (take) {
            next = (next + 1) & 0xffffff;
        } else {
            header(packet, ACK, peer.qpn, next);
            be(packet + BTH, 0x60000000, 4); /* NAK, PSN sequence error; no message so far */
            from.sin_port = htons(ROCE);
            transmit(fd, &from, packet, BTH + 4);
        }
        take = !take;
    }
}

/* A message to Linux's connection manager: what is behind the MAD's header is put there by the caller. */
static uint8_t *message(uint8_t packet[UD + MAD + 4], int kind, uint64_t transaction)
{
    memset(packet, 0, UD + MAD + 4);
    header(packet, UD_SEND, 1, 0);
    be(packet + BTH, (uint64_t)GSI_QKEY_HIGH << 48 | 1, 8);
    uint8_t *at = be(packet + UD, 0x01070203, 4);
    at = be(at + 4, transaction, 8);
    be(at, kind, 2);
    return packet + UD + 24;
}

static void tell(int fd, const struct sockaddr_in *to, uint8_t *packet)
{
    transmit(fd, to, packet, UD + MAD);
}

/* A message that has the two ids alone, and in a DREQ Linux's queue pair. */
static void tell_ids(int fd, const struct sockaddr_in *to, int kind, uint32_t own, uint32_t theirs, uint32_t qpn)
{
    uint8_t packet[UD + MAD + 4];
    uint8_t *at = be(be(message(packet, kind, 0x5000 + kind), own, 4), theirs, 4);
    be(at, qpn << 8, kind == DREQ ? 4 : 0);
    tell(fd, to, packet);
}

/* Waits for a message of a kind; what is behind its MAD's header. */
static const uint8_t *heard(int fd, int kind, struct sockaddr_in *from)
{
    static uint8_t packet[2048];
    for (;;) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        if (poll(&poller, 1, DEADLINE_SECONDS * 1000) != 1)
            die("no message 0x%x", kind);
        socklen_t size = sizeof *from;
        if (recvfrom(fd, packet, sizeof packet, 0, (struct sockaddr *)from, &size) >= UD + MAD &&
            packet[0] == UD_SEND && read_be(packet + UD + 16, 2) == (uint32_t)kind) {
            from->sin_port = htons(ROCE);
            return packet + UD + 24;
        }
    }
}

enum { OWN_ID = 0x600d };

/* A REQ from one address for a connection with another, which may be the same. */
static void ask(int fd, const struct sockaddr_in *to, int port, struct in_addr path)
{
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    CHECK(!getsockname(fd, (struct sockaddr *)&own, &size));
    uint8_t packet[UD + MAD + 4], *req = message(packet, REQ, 0x5000);
    be(req, OWN_ID, 4);
    be(req + 8, 0x01060000 | port, 8); /* the service of RDMA_PS_TCP */
    be(req + 16, 0x5254000000000077, 8);
    be(req + 32, OWN_QPN << 8 | 4, 4);
    be(req + 36, 4, 4);
    be(req + 40, 17 << 3, 4);            /* Linux answers within 0.5 s; reliable connection */
    be(req + 44, 17 << 3 | 7, 4);        /* PSN 0; so does this side; 7 retries */
    be(req + 48, 0xffff3000 | 7 << 8, 4); /* path MTU 1024, 7 RNR retries */
    be(req + 51, 4 << 4, 1);             /* 4 tries of a message */
    be(req + 52, 0xffffffff, 4);
    memset(req + 56 + 10, 0xff, 2);
    memcpy(req + 56 + 12, &path, 4);
    memset(req + 72 + 10, 0xff, 2);
    memcpy(req + 72 + 12, &to->sin_addr, 4);
    be(req + 88, 3, 4); /* 10 Gbit/s */
    be(req + 92, 0x00400000 | 14 << 3, 4); /* hop limit, ACK timeout */
    uint8_t *cma = req + 140;
    be(cma, 0x00401234, 4); /* IPv4, a port */
    memcpy(cma + 4 + 12, &own.sin_addr, 4);
    memcpy(cma + 20 + 12, &to->sin_addr, 4);
    tell(fd, to, packet);
}

static void elsewhere(int a, int b, const struct sockaddr_in *host, int port)
{
    struct sockaddr_in own, from;
    socklen_t size = sizeof own;
    CHECK(!getsockname(a, (struct sockaddr *)&own, &size));
    ask(a, host, port, own.sin_addr);
    const uint8_t *rep = heard(a, REP, &from);
    uint32_t theirs = read_be(rep, 4), qpn = read_be(rep + 12, 3);
    tell_ids(b, host, RTU, OWN_ID, theirs, 0);
    usleep(200000);
    tell_ids(b, host, DREQ, OWN_ID, theirs, qpn);
    heard(a, DREP, &from);
}

static void third(int a, int b, const struct sockaddr_in *host, int port)
{
    struct sockaddr_in silent, from;
    socklen_t size = sizeof silent;
    CHECK(!getsockname(b, (struct sockaddr *)&silent, &size));
    ask(a, host, port, silent.sin_addr);
    uint32_t theirs = 0;
    for (int i = 0; i < 3; i++)
        theirs = read_be(heard(b, REP, &from), 4);
    tell_ids(a, host, RTU, OWN_ID, theirs, 0);
    for (int i = 0; i < 3; i++)
        heard(b, DREQ, &from);
}

static void early(int a)
{
    struct sockaddr_in from;
    const uint8_t *req = heard(a, REQ, &from);
    uint32_t theirs = read_be(req, 4), qpn = read_be(req + 32, 3);
    uint8_t packet[UD + MAD + 4], *rep = message(packet, REP, 0);
    be(be(rep, OWN_ID, 4), theirs, 4);
    be(rep + 12, OWN_QPN << 8, 4);
    be(rep + 24, 0x04040000 | 7 << 5, 4);
    be(rep + 28, 0x5254000000000077, 8);
    /* A REP has the number of its REQ. */
    memcpy(packet + UD + 8, req - 16, 8);
    tell(a, &from, packet);
    tell_ids(a, &from, DREQ, OWN_ID, theirs, qpn);
    heard(a, RTU, &from);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *what = argv[1];
    int port = atoi(argv[2]);
    (void)connect_to;
    if (!strcmp(what, "nak") || !strcmp(what, "deaf")) {
        connected(port, argv[3], !strcmp(what, "nak"));
        return 0;
    }
    int a = bound(argv[3]);
    if (!strcmp(what, "early")) {
        early(a);
        return 0;
    }
    struct sockaddr_in host = {.sin_family = AF_INET, .sin_port = htons(ROCE)};
    if (argc < 6 || inet_pton(AF_INET, argv[5], &host.sin_addr) != 1)
        return 2;
    (strcmp(what, "third") ? elsewhere : third)(a, bound(argv[4]), &host, port);
    return 0;
}
