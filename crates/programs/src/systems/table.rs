//! All that is known about each system. One row is one section of docs/programs.md.

use super::Line::{Beside, Runs, Serves};
use super::Ready::{Accepts, Has, Listens, Says};
use super::{Rate, System};

/// Simple ones first.
pub const TABLE: &[System] = &[
    System {
        name: "fio",
        from: "Debian's fio, engine rdma",
        needs: &["fio"],
        fetched_as: "debs",
        files: &[],
        before: &[],
        rdma: &[
            Beside(
                "rnic run -- fio --thread --name=server --ioengine=rdma \
             --port=4420 --rw=read --bs=1m --size=512m --iodepth=512 \
             --verify=crc32c",
                Says("waiting for connection"),
            ),
            Runs(
                "rnic run -- fio --thread --name=client --ioengine=rdma \
             --port=4420 --rw=write --bs=1m --size=512m --iodepth=16 \
             --verify=crc32c --do_verify=0 --hostname=127.0.0.1 --verb=send",
            ),
        ],
        tcp: &[
            Beside(
                "fio --thread --name=server --ioengine=net --port=4420 --rw=read \
             --bs=1m --size=1g --iodepth=512 --verify=crc32c --listen",
                Listens(4420),
            ),
            Runs(
                "fio --thread --name=client --ioengine=net --port=4420 --rw=write \
             --bs=1m --size=512m --iodepth=16 --verify=crc32c --do_verify=0 \
             --hostname=127.0.0.1",
            ),
        ],
        checked: "fio's server checks a CRC-32C in each block.",
        note: "fio connects with a count of RNR retries of 0, so the server has \
             room for all blocks: `iodepth` times `bs` is `size`. Its engine \
             takes at most 512. Over TCP the server ends when the client \
             closes, so it expects more than comes. The engine rdma sleeps half \
             a second before its first block, and counts that.",
        rate: Rate::After("READ: bw="),
    },
    System {
        name: "libfabric",
        from: "Debian's libfabric-bin",
        needs: &["fi_pingpong"],
        fetched_as: "debs",
        files: &[],
        before: &[],
        rdma: &[
            Beside(
                "rnic run -- fi_pingpong -p verbs -e msg -c -S 65536 -I 2000",
                Listens(47592),
            ),
            Runs("rnic run -- fi_pingpong -p verbs -e msg -c -S 65536 -I 2000 10.0.0.1"),
        ],
        tcp: &[
            Beside(
                "fi_pingpong -p tcp -e msg -c -S 65536 -I 2000",
                Listens(47592),
            ),
            Runs("fi_pingpong -p tcp -e msg -c -S 65536 -I 2000 10.0.0.1"),
        ],
        checked: "fi_pingpong fills and checks each message (`-c`), byte by byte.",
        note: "Its provider for verbs leaves the loopback interface out, so the \
             address is another.",
        rate: Rate::Column("64k", 5),
    },
    System {
        name: "qperf",
        from: "Debian's qperf",
        needs: &["qperf"],
        fetched_as: "debs",
        files: &[],
        before: &[],
        rdma: &[
            Serves("rnic run -- qperf", Listens(19765)),
            Runs("rnic run -- qperf 127.0.0.1 -cm1 -m 64k -t 2 rc_bw"),
        ],
        tcp: &[
            Serves("qperf", Listens(19765)),
            Runs("qperf 127.0.0.1 -m 64k -t 2 tcp_bw"),
        ],
        checked: "qperf counts bytes and looks at none.",
        note: "",
        rate: Rate::After("bw  ="),
    },
    System {
        name: "pyverbs",
        from: "Debian's python3-pyverbs, with \
             [verbs.py](../crates/programs/systems/verbs.py)",
        needs: &["/usr/lib/python3/dist-packages/pyverbs/__init__.py"],
        fetched_as: "debs",
        files: &["verbs.py"],
        before: &[],
        rdma: &[Runs(
            "rnic run -- /usr/bin/python3 verbs.py rdma 1048576 100",
        )],
        tcp: &[Runs("/usr/bin/python3 verbs.py tcp 1048576 100")],
        checked: "The process that is written to compares each message with what it \
             makes itself.",
        note: "",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "Open MPI",
        from: "Debian's openmpi-bin and libopenmpi-dev, over UCX, with \
             [ring.c](../crates/programs/systems/ring.c)",
        needs: &["mpicc.openmpi", "mpirun.openmpi"],
        fetched_as: "mpi",
        files: &["ring.c"],
        before: &["mpicc.openmpi -O2 -o ring ring.c"],
        rdma: &[Runs(
            "export OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any \
             OMPI_MCA_opal_common_ucx_devices=any\n\
             rnic run -- mpirun.openmpi --oversubscribe -n 2 -x UCX_TLS=rc,self \
             ./ring 1048576 200",
        )],
        tcp: &[Runs(
            "export OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any \
             OMPI_MCA_opal_common_ucx_devices=any\n\
             mpirun.openmpi --oversubscribe -n 2 -x UCX_TLS=tcp,self ./ring \
             1048576 200",
        )],
        checked: "Each rank compares each word of each message with what it makes itself.",
        note: "",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "MPICH",
        from: "Debian's mpich and libmpich-dev, over UCX, with \
             [ring.c](../crates/programs/systems/ring.c)",
        needs: &["root/usr/bin/mpiexec.mpich", "gcc"],
        fetched_as: "debs",
        files: &["ring.c"],
        before: &[
            "gcc -O2 -I$SYSTEMS/root/usr/include/$(uname -m)-linux-gnu/mpich \
             -o ring ring.c -L$SYSTEMS/root/usr/lib/$(uname -m)-linux-gnu \
             -lmpich",
        ],
        rdma: &[Runs(
            "rnic run -- mpiexec.mpich -n 2 -genv UCX_TLS rc,self ./ring 1048576 200",
        )],
        tcp: &[Runs(
            "mpiexec.mpich -n 2 -genv UCX_TLS tcp,self ./ring 1048576 200",
        )],
        checked: "Each rank compares each word of each message with what it makes itself.",
        note: "Over UCX's TCP a rank sometimes spins for ever in MPI_Finalize, \
             without rnic.",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "OpenSHMEM",
        from: "Debian's openmpi-bin and libopenmpi-dev, over UCX, with \
             [shmem.c](../crates/programs/systems/shmem.c)",
        needs: &["oshcc", "oshrun"],
        fetched_as: "mpi",
        files: &["shmem.c"],
        before: &["oshcc -O2 -o shmem shmem.c"],
        rdma: &[Runs(
            "rnic run -- oshrun --oversubscribe -n 2 -x UCX_TLS=rc,self \
             ./shmem 1048576 200",
        )],
        tcp: &[Runs(
            "oshrun --oversubscribe -n 2 -x UCX_TLS=tcp,self ./shmem 1048576 200",
        )],
        checked: "Each PE compares each word that was put with what it makes \
             itself, and the sum of all atomic additions.",
        note: "With Open MPI 4.1.4 over UCX 1.13 `shmem_finalize` ends with \
             SIGSEGV after UCX's TCP, so the program ends by \
             `shmem_global_exit`.",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "QEMU migration",
        from: "Debian's qemu-system-x86 (TCG), with \
             [migrate.py](../crates/programs/systems/migrate.py)",
        needs: &["qemu-system-x86_64"],
        fetched_as: "debs",
        files: &["migrate.py"],
        before: &["head -c 268435456 /dev/urandom >noise"],
        rdma: &[
            Serves(
                "rnic run -- qemu-system-x86_64 -m 512 -nodefaults -display none \
             -S -qmp unix:to,server=on,wait=off -incoming rdma:127.0.0.1:4444",
                Has("to"),
            ),
            Serves(
                "rnic run -- qemu-system-x86_64 -m 512 -nodefaults -display none \
             -S -qmp unix:from,server=on,wait=off -device \
             loader,file=noise,addr=0x4000000,force-raw=on",
                Has("from"),
            ),
            Runs("python3 migrate.py rdma:127.0.0.1:4444 from to 268435456"),
        ],
        tcp: &[
            Serves(
                "qemu-system-x86_64 -m 512 -nodefaults -display none -S -qmp \
             unix:to,server=on,wait=off -incoming tcp:127.0.0.1:4444",
                Has("to"),
            ),
            Serves(
                "qemu-system-x86_64 -m 512 -nodefaults -display none -S -qmp \
             unix:from,server=on,wait=off -device \
             loader,file=noise,addr=0x4000000,force-raw=on",
                Has("from"),
            ),
            Runs("python3 migrate.py tcp:127.0.0.1:4444 from to 268435456"),
        ],
        checked: "The 256 MiB of noise in the guest's memory are saved on both \
             sides and compared.",
        note: "",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "iSER",
        from: "Debian's tgt and libiscsi7 (in qemu-block-extra), with \
             [target.sh](../crates/programs/systems/target.sh) and \
             [timed.py](../crates/programs/systems/timed.py)",
        needs: &[
            "tgtd",
            "root/usr/bin/qemu-img",
            "root/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so",
        ],
        fetched_as: "debs",
        files: &["target.sh", "timed.py"],
        before: &[],
        rdma: &[
            Serves(
                "TGT_IPC_SOCKET=$PWD/tgtd rnic run -- tgtd -f --iscsi \
             portal=127.0.0.1:3260 --iser port=3261,pool_sz_mb=64",
                Has("tgtd.0"),
            ),
            Runs("TGT_IPC_SOCKET=$PWD/tgtd sh target.sh iser"),
            Runs(
                "python3 timed.py 268435456 rnic run -- qemu-img dd --image-opts \
             bs=65536 \
             if=driver=iscsi,transport=iser,portal=127.0.0.1:3261,target=t:t,lun=1,initiator-name=i:i \
             of=copy && cmp disk copy",
            ),
        ],
        tcp: &[
            Serves(
                "TGT_IPC_SOCKET=$PWD/tgtd tgtd -f --iscsi portal=127.0.0.1:3260",
                Has("tgtd.0"),
            ),
            Runs("TGT_IPC_SOCKET=$PWD/tgtd sh target.sh iscsi"),
            Runs(
                "python3 timed.py 268435456 qemu-img dd --image-opts bs=65536 \
             if=driver=iscsi,transport=tcp,portal=127.0.0.1:3260,target=t:t,lun=1,initiator-name=i:i \
             of=copy && cmp disk copy",
            ),
        ],
        checked: "The disk of 256 MiB of noise is read through libiscsi, and compared.",
        note: "tgt closes a connection of iSER that asks for more than 512 KiB \
             at once, so qemu-img reads blocks of 64 KiB, one after another. \
             The time that it takes to start counts.",
        rate: Rate::After("timed: "),
    },
    System {
        name: "rsockets",
        from: "Debian's rdmacm-utils, rstream",
        needs: &["rstream"],
        fetched_as: "debs",
        files: &[],
        before: &[],
        rdma: &[
            Serves(
                "rnic run -- rstream -b 127.0.0.1 -S 1048576 -C 500 -I 1 -T v",
                Accepts,
            ),
            Runs("rnic run -- rstream -s 127.0.0.1 -S 1048576 -C 500 -I 1 -T v"),
        ],
        tcp: &[
            Serves(
                "rstream -b 127.0.0.1 -S 1048576 -C 500 -I 1 -T v -T s",
                Listens(7471),
            ),
            Runs("rstream -s 127.0.0.1 -S 1048576 -C 500 -I 1 -T v -T s"),
        ],
        checked: "rstream checks each message (`-T v`).",
        note: "It counts both directions, and the time in which it checks.",
        rate: Rate::Gigabits("custom", 6),
    },
    System {
        name: "PyTorch RPC",
        from: "the Python package index, torch, with \
             [rpc.py](../crates/programs/systems/rpc.py)",
        needs: &["python/bin/python3", "python/bin/torchrun"],
        fetched_as: "torch",
        files: &["rpc.py"],
        before: &[],
        rdma: &[Runs("rnic run -- python3 rpc.py ibv 4194304 50")],
        tcp: &[Runs("python3 rpc.py uv 4194304 50")],
        checked: "Each tensor is random; what comes back is compared.",
        note: "The first packet sometimes comes before the peer's queue pair is \
             in RTR: it is dropped, and sent again after the ACK timeout of 67 \
             ms.",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "Mooncake",
        from: "the Python package index, mooncake-transfer-engine-non-cuda, with \
             [transfer.py](../crates/programs/systems/transfer.py)",
        needs: &["python/bin/python3", "python/bin/mooncake_master"],
        fetched_as: "mooncake",
        files: &["transfer.py"],
        before: &[],
        rdma: &[Runs("rnic run -- python3 transfer.py rdma 16777216 20")],
        tcp: &[Runs("python3 transfer.py tcp 16777216 20")],
        checked: "Each buffer is random, is written and read back, and compared.",
        note: "",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "NIXL",
        from: "the Python package index, nixl-cu12, with \
             [agents.py](../crates/programs/systems/agents.py)",
        needs: &["python/bin/python3", "python/bin/nixl_example"],
        fetched_as: "nixl",
        files: &["agents.py"],
        before: &[],
        rdma: &[Runs(
            "UCX_TLS=rc,self rnic run -- python3 agents.py 16777216 20",
        )],
        tcp: &[Runs("UCX_TLS=tcp,self python3 agents.py 16777216 20")],
        checked: "The process that is written to compares each buffer with what it \
             makes itself.",
        note: "NIXL's wheel has its own renamed libibverbs and UCX. UCX asks for \
             a netlink socket of RDMA, which a kernel without RDMA refuses; it \
             says so, and goes on.",
        rate: Rate::After("all bytes are right:"),
    },
    System {
        name: "Valkey",
        from: "Debian's source of valkey, compiled with its RDMA transport, with \
             [timed.py](../crates/programs/systems/timed.py)",
        needs: &["valkey-server", "valkey-cli", "valkey-benchmark"],
        fetched_as: "valkey",
        files: &["timed.py"],
        before: &["head -c 1048576 /dev/urandom >noise"],
        rdma: &[
            Serves(
                "rnic run -- valkey-server --port 6379 --save '' --rdma-port 6379 \
             --rdma-bind 127.0.0.1",
                Says("accept connections rdma"),
            ),
            Runs(
                "rnic run -- valkey-cli --rdma -x set noise <noise && rnic run -- \
             valkey-cli --rdma get noise >copy && cmp -n 1048576 copy noise",
            ),
            Runs(
                "python3 timed.py 1310720000 rnic run -- valkey-benchmark --rdma \
             -t set,get -d 65536 -n 10000 -c 4 --csv",
            ),
        ],
        tcp: &[
            Serves(
                "valkey-server --port 6379 --save ''",
                Says("accept connections tcp"),
            ),
            Runs(
                "valkey-cli -x set noise <noise && valkey-cli get noise >copy && \
             cmp -n 1048576 copy noise",
            ),
            Runs(
                "python3 timed.py 1310720000 valkey-benchmark -t set,get -d 65536 \
             -n 10000 -c 4 --csv",
            ),
        ],
        checked: "A value of 1 MiB of noise is set, got and compared before the \
             measurement.",
        note: "",
        rate: Rate::After("timed: "),
    },
    System {
        name: "Ceph",
        from: "Debian's ceph-mon, ceph-osd and ceph-common, unpacked, with \
             [cluster.sh](../crates/programs/systems/cluster.sh) and \
             [objects.sh](../crates/programs/systems/objects.sh)",
        needs: &["ceph-mon", "ceph-osd", "rados", "ceph"],
        fetched_as: "ceph",
        files: &["cluster.sh", "objects.sh", "timed.py"],
        before: &["bash cluster.sh"],
        rdma: &[
            Serves(
                "rnic run -- ceph-mon -i a -f --ms-type=async+rdma",
                Listens(3300),
            ),
            Serves(
                "rnic run -- ceph-osd -i 0 -f --ms-type=async+rdma",
                Has("osd.0.log"),
            ),
            Runs("rnic run -- sh objects.sh rados --ms-type=async+rdma --pool objects"),
        ],
        tcp: &[
            Serves("ceph-mon -i a -f --ms-type=async+posix", Listens(3300)),
            Serves("ceph-osd -i 0 -f --ms-type=async+posix", Has("osd.0.log")),
            Runs("sh objects.sh rados --ms-type=async+posix --pool objects"),
        ],
        checked: "Objects of 64 KiB, 1 MiB and 4 MiB of noise are put, got and compared.",
        note: "The figure is `rados bench`, writes of 64 KiB. The OSD keeps \
             objects in memory.",
        rate: Rate::Column("Bandwidth (MB/sec):", 2),
    },
];
