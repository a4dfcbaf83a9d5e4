#!/bin/sh
# The shared library as it ships: small, and in need of little; nothing of it runs after it is closed.
#   library.sh LIBRARY UNLOAD
library=$1
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

cp "$library" "$work/libcarbide.so" && strip "$work/libcarbide.so"
bytes=$(wc -c <"$work/libcarbide.so")
# gcc 12 makes 3.0 MB of it, gcc 13 3.1
[ "$bytes" -lt 3200000 ] || { echo "$bytes bytes stripped: more than 3.2 MB"; failed=1; }

for needed in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $needed in
    libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|libgomp.so.*|libomp.so.*|ld-linux*) ;;
    *) echo "needs $needed"; failed=1 ;;
    esac
done

stray=$(nm -D --defined-only "$library" | awk '$3 !~ /^cb_/ { print $3 }')
[ -z "$stray" ] || { echo "exports $stray"; failed=1; }
readelf -lW "$library" | grep -q 'GNU_STACK.*RWE' && { echo "asks for an executable stack"; failed=1; }

"$2" "$library" || { echo "closing the library: exit status $?"; failed=1; }
exit $failed
