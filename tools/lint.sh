#!/bin/sh
# Every check of the code that is no test. One line per check, or the places; ends with 1 if any failed.
#   tools/lint.sh [BUILD]      BUILD: a build folder with compile_commands.json (default: build)
# A tool that is not installed is named and left out.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
failed=0
log=$(mktemp)
trap 'rm -f "$log" "$log.format"' EXIT

have() {
    command -v "$1" >/dev/null 2>&1 && return 0
    echo "lint: $1 is not installed: left out"
    return 1
}

check() { # check NAME COMMAND...: quiet when it passes, else what it said
    name=$1
    shift
    if "$@" >"$log" 2>&1; then
        echo "lint: $name OK"
    else
        sed "s/^/lint: $name: /" "$log" | grep -v ' generated\.$\|Suppressed .* warnings\|header-filter\|Error while processing' | head -60
        failed=1
    fi
}

# Headers are laid out by hand: tables and aligned comments.
c_files() { find src plugins models data cli tests examples bench tools -name '*.c' | sort; }

# Each file of the library and the command once, though some are compiled for several levels.
tidy_files() {
    sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$build/compile_commands.json" | grep '/src/\|/cli/\|/plugins/' | sort -u
}

format() {
    c_files | xargs clang-format --dry-run -Werror 2>&1 | sed -n 's/^\([^ :]*\):\([0-9]*\):.* error.*/\1: not formatted (make format)/p' | sort -u >"$log.format"
    cat "$log.format"
    [ ! -s "$log.format" ]
}
# clang does not know the flags that are gcc's alone.
tidy() {
    mkdir -p "$build/tidy"
    sed 's/ -mmem[a-z]*-strategy=[^ "]*//g; s/ -fno-predictive-commoning//g; s/ --param=vect[a-z-]*=0//g' "$build/compile_commands.json" >"$build/tidy/compile_commands.json"
    tidy_files | xargs -P 2 -n 6 clang-tidy -p "$build/tidy" --quiet
}
# Every second file: two at once take half of the time, which -j 2 does not. Without the generated headers, whose
# thousands of declarations take a third of it.
cpp_half() {
    mkdir -p "$build/cppcheck/$1"
    find src cli plugins -name '*.c' | sort | awk "NR % 2 == $1" | cppcheck --quiet --file-list=- --std=c11 \
        --enable=warning,performance --error-exitcode=1 --inline-suppr --suppressions-list=tools/cppcheck.txt \
        --max-configs=1 --cppcheck-build-dir="$build/cppcheck/$1" -D__GNUC__=12 -D__x86_64__=1 -DCARBIDE_BUILD \
        -DCB_LEVEL=base -Iinclude -Isrc
}
cpp() {
    cpp_half 0 &
    half=$!
    cpp_half 1
    other=$?
    wait $half && [ $other = 0 ]
}

rules() {
    broken=0
    for part in layers lengths environment locks walks reasons calls names docs; do python3 tools/lint.py $part || broken=1; done
    for part in exports objects; do python3 tools/lint.py $part "$build" || broken=1; done
    python3 tools/mutants.py --check || broken=1
    return $broken
}

rules & # of our own, beside the tools
rules_job=$!
have clang-format && check format format
have cppcheck && check cppcheck cpp
have clang-tidy && check clang-tidy tidy
wait $rules_job || failed=1
exit $failed
