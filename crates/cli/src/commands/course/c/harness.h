/* What the ten judges share. Each has both sides: `learner` calls what the learner wrote, `peer` is
 * another process, so that only the NIC can move bytes there. */
#ifndef HARNESS_H
#define HARNESS_H

#include "course.h"

#include <stdbool.h>

enum {
	BUFFER = 4096,
	PEER_BYTES = 16384,
	PATIENCE_MS = 10000,
};

/* How a pair of ends is made. */
struct wishes {
	uint32_t sends, receives; /* depths of the queues; 0 is 64 */
	uint8_t rnr_retry;        /* 7 is for ever */
	bool unready;             /* leave the queue pair in RESET */
};

/* Lines for `rnic course`: what is right, and what is not. */
void right(const char *format, ...) __attribute__((format(printf, 1, 2)));
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The check cannot go on: ends the process, as one that was judged. */
void stop(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Device, protection domain, queues and memory; then the queue pair, connected over `fd` with the
 * other side, which does the same. */
void set_up(struct course *course, int fd, struct wishes wishes);
void open_device(struct course *course, struct wishes wishes);
void connect_over(struct course *course, int fd, struct wishes wishes);
void tear_down(struct course *course);
/* Moves a queue pair to RTS, as exercise 3 asks for. */
void to_rts(struct ibv_qp *qp, const struct course_end *mine, const struct course_end *peer, uint8_t rnr_retry);
struct course_end own_end(struct course *course);

/* Words between the two sides, beside the NIC. */
void tell(int fd, const void *bytes, size_t length);
void hear(int fd, void *bytes, size_t length);
void tell_number(int fd, int64_t number);
int64_t hear_number(int fd);

/* What the learner's function did since `watch`. */
extern struct watched {
	int posted, signaled, polled;
	bool last_signaled;
	/* Bytes of WRITEs; those in front of the first request with immediate data, and in it. */
	size_t written, written_before;
	int told;
} watched;

/* Looks on while the learner's function sends: what is posted, and what is polled. */
void watch(struct course *course);
void unwatch(struct course *course);
/* Ends that, too. Whether the function knew, when it returned, that all it had posted was done; says it if not. */
bool knew_all(struct course *course, const char *function);

/* The next completion, or 0 if none came in time. */
int completion(struct ibv_cq *cq, struct ibv_wc *wc, int milliseconds);
void post_receive(struct course *course, uint64_t id, size_t offset, size_t length);
int post(struct course *course, enum ibv_wr_opcode opcode, size_t length);

/* Bytes that nobody knows before: the same seed gives the same ones. */
void fill(char *bytes, size_t length, unsigned int seed);
/* The first byte that is none of these, or -1. */
long differs(const char *bytes, size_t length, unsigned int seed);
unsigned int fresh_seed(void);

/* Of each exercise. */
void learner(int fd);
void peer(int fd);

#endif
