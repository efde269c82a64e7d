#!/bin/sh
# target.sh iser|iscsi: a disk of 256 MiB of noise behind tgtd, for anybody. iSER wants the
# initiator's name, too.
set -e
head -c 268435456 /dev/urandom >disk
set -- tgtadm --lld "$1" --tid 1 --mode
"$@" target --op new --targetname t:t
"$@" logicalunit --op new --lun 1 --backing-store "$PWD/disk"
"$@" target --op bind -I ALL
"$@" target --op bind -Q i:i
