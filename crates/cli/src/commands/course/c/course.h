/* What the course gives your program. `rnic course` uses its own copy of this file: changes here
 * have no effect. The rest of the program, with the peer in it, is rnic's. */
#ifndef COURSE_H
#define COURSE_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* One end of a connection, as the two sides tell each other (exercise 3). */
struct course_end {
	union ibv_gid gid; /* the address of the port */
	int gid_index;     /* where your own GID is in the table of your port */
	uint32_t qpn;      /* the number of the queue pair */
	uint32_t psn;      /* the number of the first packet that this end sends */
};

/* What is ready when your function is called (exercises 4 to 9). */
struct course {
	struct ibv_context *context;      /* the open device */
	struct ibv_pd *pd;                /* all objects here belong to it */
	struct ibv_cq *cq;                /* completions of sends and receives */
	struct ibv_comp_channel *channel; /* its events (exercise 8) */
	struct ibv_qp *qp;                /* RC, connected with the peer, in RTS */
	char *buffer;                     /* memory of yours ... */
	size_t length;                    /* ... of so many bytes ... */
	struct ibv_mr *mr;                /* ... registered, so that you may send and receive */
	struct {
		uint64_t addr;   /* memory of the peer's ... */
		uint64_t length; /* ... of so many bytes ... */
		uint32_t rkey;   /* ... and its key, in your byte order */
	} peer;
};

/* What became of a row of messages (exercise 5). */
struct outcome {
	int good;                  /* so many were sent */
	int failed;                /* the first one that failed, or -1 */
	enum ibv_wc_status status; /* how it failed */
};

/* The peer sends its message now. Returns when it has been sent (exercise 4). */
void course_go(struct course *course);

/* What you write, an exercise each. */
int find_gid(const char *address);
struct ibv_mr *share(struct ibv_pd *pd, char *buffer, size_t length);
int connect_qp(struct ibv_qp *qp, const struct course_end *mine, const struct course_end *peer);
int receive(struct course *course);
struct outcome send_all(struct course *course, const size_t *lengths, int count);
int put(struct course *course);
int put_and_tell(struct course *course, uint32_t number);
int receive_many(struct course *course, int count);
int send_many(struct course *course, int count);
int ask(const char *host, const char *port, const char *question, char *answer, size_t room);

#endif
