/* Exercise 3: move a queue pair through its states. See README.md. */
#include "course.h"

#include <stdio.h>
#include <string.h>

/* Connects this RC queue pair, which is in RESET, with the peer's. 0, or the error of the step that
 * was refused. */
int connect_qp(struct ibv_qp *qp, const struct course_end *mine, const struct course_end *peer)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.pkey_index = 0;
	attr.port_num = 1;
	attr.qp_access_flags = 0;
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error) {
		fprintf(stderr, "to INIT: %s\n", strerror(error));
		return error;
	}

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = mine->psn;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = peer->gid;
	attr.ah_attr.grh.sgid_index = mine->gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	error = ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (error) {
		fprintf(stderr, "to RTR: %s\n", strerror(error));
		return error;
	}

	return 0;
}
