# objects.sh RADOS...: puts objects of noise, gets and compares them; then measures.
set -e
for size in 65536 1048576 4194304; do
    head -c "$size" /dev/urandom >written
    "$@" put "noise-$size" written
    "$@" get "noise-$size" read
    cmp written read
done
"$@" bench 3 write -b 65536 -t 16 --no-cleanup
