//! rsockets.

use crate::cm::stub::{no_bytes, no_number};
use crate::symbols::export;

export! {
    raccept @@ "RDMACM_1.0" => no_number;
    rbind @@ "RDMACM_1.0" => no_number;
    rclose @@ "RDMACM_1.0" => no_number;
    rconnect @@ "RDMACM_1.0" => no_number;
    repoll_create @@ "RDMACM_1.5" => no_number;
    repoll_ctl @@ "RDMACM_1.5" => no_number;
    repoll_wait @@ "RDMACM_1.5" => no_number;
    rfcntl @@ "RDMACM_1.0" => no_number;
    rgetpeername @@ "RDMACM_1.0" => no_number;
    rgetsockname @@ "RDMACM_1.0" => no_number;
    rgetsockopt @@ "RDMACM_1.0" => no_number;
    riomap @@ "RDMACM_1.0" => no_bytes;
    riounmap @@ "RDMACM_1.0" => no_number;
    riowrite @@ "RDMACM_1.0" => no_bytes;
    rlisten @@ "RDMACM_1.0" => no_number;
    rpoll @@ "RDMACM_1.0" => no_number;
    rread @@ "RDMACM_1.0" => no_bytes;
    rreadv @@ "RDMACM_1.0" => no_bytes;
    rrecv @@ "RDMACM_1.0" => no_bytes;
    rrecvfrom @@ "RDMACM_1.0" => no_bytes;
    rrecvmsg @@ "RDMACM_1.0" => no_bytes;
    rselect @@ "RDMACM_1.0" => no_number;
    rsend @@ "RDMACM_1.0" => no_bytes;
    rsendmsg @@ "RDMACM_1.0" => no_bytes;
    rsendto @@ "RDMACM_1.0" => no_bytes;
    rsetsockopt @@ "RDMACM_1.0" => no_number;
    rshutdown @@ "RDMACM_1.0" => no_number;
    rsocket @@ "RDMACM_1.0" => no_number;
    rwrite @@ "RDMACM_1.0" => no_bytes;
    rwritev @@ "RDMACM_1.0" => no_bytes;
}
