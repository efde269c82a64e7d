# cluster.sh: makes the stores of a Ceph monitor and of an OSD that keeps objects in memory, and a
# pool, in this folder. ceph.conf lies there, where Ceph looks for it.
set -e
id=6b1d0f6e-6f0a-4c7e-9a51-0d3a8b6f2c11
# Where Ceph is unpacked, its plug-ins are there, too.
own=$SYSTEMS/ceph/usr/lib/$(uname -m)-linux-gnu/ceph
[ -d "$own" ] || own=/usr/lib/$(uname -m)-linux-gnu/ceph
cat >ceph.conf <<END
[global]
fsid = $id
mon_host = v2:127.0.0.1:3300
mon_data = $PWD/mon
osd_data = $PWD/osd
run_dir = $PWD
keyring = $PWD/keyring
log_file = $PWD/\$name.log
plugin_dir = $own
erasure_code_dir = $own/erasure-code
public_network = 127.0.0.0/8
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_objectstore = memstore
memstore_device_bytes = 8589934592
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
osd_crush_update_on_start = false
osd_class_update_on_start = false
mon_allow_pool_size_one = true
ms_async_rdma_device_name = rnic0
# With fewer its receives run out, and it stalls.
ms_async_rdma_receive_buffers = 16384
ms_async_rdma_receive_queue_len = 256
END
mkdir mon osd
touch keyring
monmaptool --create --fsid "$id" --addv a "[v2:127.0.0.1:3300]" monmap
osdmaptool osdmap --createsimple 1
ceph-mon -i a --mkfs --monmap monmap --osdmap osdmap
ceph-osd -i 0 --mkfs --no-mon-config --osd-uuid "$id"
ceph-mon -i a -f &
PYTHONPATH=$SYSTEMS/ceph/usr/lib/python3/dist-packages /usr/bin/python3 "$(command -v ceph)" --connect-timeout 60 \
    osd pool create objects 8 8
kill $!
wait $! || true
