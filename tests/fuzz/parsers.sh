#!/bin/sh
# Runs the fuzz targets of the parsers (tests/fuzz/parsers.cmake built them) over their corpora.
#   tests/fuzz/parsers.sh build/fuzzers runs=1000       so many inputs each, the same ones every time
#   tests/fuzz/parsers.sh build/fuzzers seconds=120     so long each; what reaches new code is kept there
# An input that ends a target is left in the folder as crash-*: run build/fuzzers/parse_NAME on it.
set -u
programs=$1 how=$2
corpus=$(dirname "$0")/corpus
failed=0
ls "$programs"/parse_* >/dev/null 2>&1 || {
    echo "skipped: no fuzz targets: clang's libFuzzer is missing (clang, libclang-rt-dev), or the build has a sanitizer"
    exit 77
}
for program in "$programs"/parse_*; do
    name=${program##*/parse_}
    found=$programs/corpus/$name
    case $how in
    runs=*) rm -rf "$programs/runs" && mkdir -p "$programs/runs" && found=$programs/runs
            set -- -runs="${how#runs=}" -seed=1 ;;
    *) mkdir -p "$found" && set -- -max_total_time="${how#seconds=}" ;;
    esac
    dictionary=$corpus/$name.dict
    [ -e "$dictionary" ] && set -- "$@" -dict="$dictionary"
    log=$programs/$name.log
    if CARBIDE_CACHE_DIR=$programs/cache "$program" "$@" -timeout=10 -rss_limit_mb=4096 -max_len=4096 -verbosity=1 \
        -artifact_prefix="$programs/" "$found" "$corpus/$name" >"$log" 2>&1; then
        echo "$name: $(sed -n 's/^Done \(.*\)/\1/p' "$log"), coverage $(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)"
    else
        failed=1
        echo "$name: failed"
        tail -n 40 "$log"
    fi
done
exit $failed
