#!/bin/sh
# The command's view of the kernel cache: list, why, clear, and a folder that cannot be trusted.
#   cache.sh CARBIDE
carbide=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export CARBIDE_CACHE_DIR="$work/cache"
failed=0

expect() { # expect PATTERN ARGUMENTS...
    pattern=$1
    shift
    said=$("$carbide" "$@" 2>&1) || { echo "carbide $*: exit status $?: $said"; failed=1; }
    echo "$said" | grep -q -- "$pattern" || { echo "carbide $*: nothing matches '$pattern' in: $said"; failed=1; }
}

expect "^0 entries" cache list
expect "holds 0 entries, none of the same source" cache why gelu --batch 4096
expect "^0 entries" cache list
command -v "${CARBIDE_CC:-cc}" >/dev/null 2>&1 || { echo "no C compiler: the rest is left out"; exit $failed; }

expect " 0 recorded again, 1 compiled, 0 eager" explain gelu --batch 4096
expect "^1 entry" cache list
expect "  k0_mul_add_mul" cache list
expect "the cache had nothing of the same source" explain softmax --batch 8 --full
CARBIDE_LEVEL=base expect "the cache had the same source under another key" explain gelu --batch 4096 --full
"$carbide" cache clear >/dev/null
expect "compiled now" explain gelu --batch 4096
expect "C, from the disk cache" explain gelu --batch 4096
expect " 0 recorded again, 0 compiled, 1 loaded, 0 eager" explain gelu --batch 4096
mkdir "$work/cache/work-killed" "$work/cache/work-now"
touch -d '2 hours ago' "$work/cache/work-killed"
expect "^1 entry" cache list
[ -d "$work/cache/work-now" ] && [ ! -d "$work/cache/work-killed" ] || { echo "what a killed process left stays"; failed=1; }
mkdir "$work/cache/work-killed" && touch -d '2 hours ago' "$work/cache/work-killed"
expect "C, from the disk cache" explain gelu --batch 4096
[ -d "$work/cache/work-killed" ] && { echo "a process that compiles nothing sweeps nothing"; failed=1; }
expect "is there" cache why gelu --batch 4096
expect "is not there; the cache holds 1 entry, none of the same source" cache why gelu --batch 4096 --dtype f64
CARBIDE_LEVEL=base expect "is not there; of the same source the nearest entry is" cache why gelu --batch 4096
CARBIDE_LEVEL=base expect "wanted  cpu base" cache why gelu --batch 4096

expect "^1 entry saved to" cache export "$work/kernels"
CARBIDE_CACHE_DIR="$work/elsewhere" expect "^1 entry taken from" cache import "$work/kernels"
CARBIDE_CACHE_DIR="$work/failing" CARBIDE_CC=/bin/false "$carbide" explain mlp --batch 4 2>&1 >/dev/null | grep -c "C compiler failed: " | grep -qx 1 ||
    { echo "a compiler that fails is not told of once"; exit 1; }
CARBIDE_CACHE_DIR="$work/elsewhere" CARBIDE_CC=/bin/false expect "C, from the disk cache" explain gelu --batch 4096
"$carbide" cache import "$0" >"$work/out" 2>&1 && { echo "a script is taken for artifacts"; failed=1; }
grep -q "no artifacts" "$work/out" || { cat "$work/out"; failed=1; }

for entry in "$work"/cache/*.so; do printf 'x' | dd of="$entry" bs=1 seek=100 conv=notrunc 2>/dev/null; done
expect "damaged" cache list
expect "C, compiled now" explain gelu --batch 4096
expect "C, from the disk cache" explain gelu --batch 4096

expect "^1 entry removed" cache clear
expect "^0 entries" cache list

chmod 0777 "$work/cache"
"$carbide" cache list >"$work/out" 2>&1 && { echo "a folder that others may write to is accepted"; failed=1; }
grep -q "others may write" "$work/out" || { cat "$work/out"; failed=1; }
expect "0 breaks" explain gelu --batch 4096
exit $failed
