//! A librdmacm that calls its own functions past the dynamic linker, as Ubuntu's does: its rsockets
//! come to our `rdma_*` all the same.

use crate::common;
/// In place of Ubuntu's: what it would do with the kernel alone it says by -1.
const LIBRARY: &str = r#"
#include <errno.h>
#include <rdma/rdma_cma.h>

struct rdma_event_channel *rdma_create_event_channel(void) { errno = ENODEV; return 0; }
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
    errno = ENODEV;
    return -1;
}
int rdma_destroy_id(struct rdma_cm_id *id) { errno = ENODEV; return -1; }

/* Any of them; the test knows by the result that all three were ours. */
int rsocket(int domain, int type, int protocol)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    if (!channel || rdma_create_id(channel, &id, 0, RDMA_PS_TCP) || rdma_destroy_id(id))
        return -1;
    return 4711;
}
"#;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/socket.h>
#include <rdma/rsocket.h>

int main(void)
{
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    printf("rsocket: %d\n", fd);
    return fd != 4711;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn rsockets_of_a_library_that_calls_itself_are_ours() {
    if !common::headers_available() {
        return;
    }
    let dir = common::library_dir("symbolic");
    let flags = [
        "-shared",
        "-fPIC",
        "-O1",
        "-Wl,-Bsymbolic-functions",
        "-Wl,-soname,librdmacm.so.1",
    ];
    let stock = common::compile(&dir, "stock", LIBRARY, &flags);
    let program = common::compile(&dir, "symbolic", PROGRAM, &["-lrdmacm"]);
    let mut command = common::under_library(&dir, program);
    let output = command
        .env("RNIC_LIBRDMACM", stock)
        .output()
        .expect("it runs");
    let text = common::text(&output);
    assert!(
        output.status.success() && text.contains("rsocket: 4711"),
        "{text}"
    );
}
