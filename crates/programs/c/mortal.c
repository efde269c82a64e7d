/* Processes that are killed while they have a queue pair, one after the other.
 *
 * mortal COUNT
 *
 * Each opens the device, makes a queue pair, tells its number, and is killed by SIGKILL. A number that a living process
 * has at the same time is an error. Prints "COUNT lived and were killed".
 */
#include "rc.h"

#include <signal.h>
#include <sys/wait.h>

enum { ALIVE = 4 };

int main(int argc, char **argv)
{
    int count = argc == 2 ? atoi(argv[1]) : 0;
    if (count < 1)
        die("usage: mortal COUNT");
    struct {
        pid_t pid;
        uint32_t qpn;
    } alive[ALIVE] = {0};
    for (int i = 0; i < count + ALIVE; i++) {
        int slot = i % ALIVE, status;
        if (alive[slot].pid) {
            if (kill(alive[slot].pid, SIGKILL) || waitpid(alive[slot].pid, &status, 0) != alive[slot].pid ||
                !WIFSIGNALED(status))
                die("process %d was not alive", i - ALIVE);
            alive[slot].pid = 0;
        }
        if (i >= count)
            continue;
        int ends[2];
        if (pipe(ends))
            die("pipe");
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (pid == 0) {
            struct ibv_context *context = open_device();
            struct ibv_pd *pd = ibv_alloc_pd(context);
            struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
            if (!pd || !cq)
                die("set up");
            struct ibv_qp *qp = make_qp(pd, cq, ALL_QP_ACCESS);
            put(ends[1], &qp->qp_num, sizeof qp->qp_num);
            for (;;)
                pause();
        }
        close(ends[1]);
        alive[slot].pid = pid;
        if (!get(ends[0], &alive[slot].qpn, sizeof alive[slot].qpn))
            die("process %d got no queue pair", i);
        close(ends[0]);
        for (int other = 0; other < ALIVE; other++)
            if (other != slot && alive[other].pid && alive[other].qpn == alive[slot].qpn)
                die("two living processes have the number %x", alive[slot].qpn);
    }
    say("%d lived and were killed", count);
    return 0;
}
