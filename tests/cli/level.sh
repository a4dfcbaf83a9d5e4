#!/bin/sh
# CARBIDE_LEVEL lowers the instruction set of generated code, and of what the command says it uses.
#   level.sh CARBIDE
carbide=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export CARBIDE_CACHE_DIR="$work"
failed=0
say() { echo "$*"; failed=1; }

level=$("$carbide" info | sed -n 's/^level *//p')
all="base v3 v4 bf16 amx"
case " $all " in *" $level "*) ;; *) say "info: level $level" ;; esac

for lower in ${all%%"$level"*} "$level"; do
    said=$(CARBIDE_LEVEL=$lower "$carbide" info | sed -n 's/^level *//p')
    [ "$said" = "$lower" ] || say "CARBIDE_LEVEL=$lower: info says $said"
done
said=$(CARBIDE_LEVEL=amx "$carbide" info | sed -n 's/^level *//p')
[ "$said" = "$level" ] || say "CARBIDE_LEVEL=amx: $said, and the processor has $level"
CARBIDE_LEVEL=v5 "$carbide" info 2>&1 | grep -q "CARBIDE_LEVEL=v5 is ignored: expected auto|base|v3" || say "v5 is taken"

command -v "${CARBIDE_CC:-cc}" >/dev/null 2>&1 || { echo "no C compiler: the rest is left out"; exit $failed; }
for lower in ${all%%"$level"*} "$level"; do
    "$carbide" cache clear >/dev/null
    CARBIDE_LEVEL=$lower "$carbide" explain gelu --batch 4096 --threads 1 | grep -q "C, compiled now" ||
        say "level $lower: not compiled"
    CARBIDE_LEVEL=$lower "$carbide" cache why gelu --batch 4096 | grep -q "is there" || say "level $lower: not found again"
    command -v objdump >/dev/null 2>&1 && [ "$(uname -m)" = x86_64 ] || continue
    code=$(objdump -d "$work"/*.so)
    case $lower in base) above='%[yz]mm' needs='%xmm' ;; v3) above='%zmm' needs='%ymm' ;; *) above='%tmm' needs='%zmm' ;; esac
    echo "$code" | grep -q "$needs" || say "level $lower: no $needs in its code"
    echo "$code" | grep -q "$above" && say "level $lower: $above in its code"
done
exit $failed
