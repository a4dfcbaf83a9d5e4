#!/bin/sh
# Misuse that a compiler is to refuse, and correct calls that it takes without a warning: by each of
# gcc, g++, clang and clang++ that is installed.
#   refused.sh GENERATED_HEADERS
cd "$(dirname "$0")" || exit 1
includes="-I../../include -I$1"
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wfloat-equal -Werror"
cpp="-x c++ -Wold-style-cast -Wzero-as-null-pointer-constant"
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
failed=0
asked=0

ask() { # ask COMPILER FLAGS...
    compiler=$1
    command -v "$compiler" >/dev/null || return
    asked=$((asked + 1))
    if ! "$@" $includes $warnings -fsyntax-only taken.c; then
        echo "$compiler does not take taken.c"
        failed=1
    fi
    # What a template refuses is an error in the header, required or requested by a line of ours.
    "$@" $includes -fsyntax-only refused.c 2>&1 |
        sed -En 's/^refused\.c:([0-9]*):.*(error:|required from here|requested here).*/\1/p' |
        sort -nu >"$errors"
    lines='refused \*/$'
    case " $* " in *" c++ "*) lines='refused \(in C++ \)\?\*/$' ;; esac
    if ! grep -n "$lines" refused.c | cut -d: -f1 | diff - "$errors"; then
        echo "$compiler: < takes the line, > refuses the line of refused.c"
        failed=1
    fi
}

ask gcc -std=c11 -ftrack-macro-expansion=0
ask gcc -std=gnu11 -ftrack-macro-expansion=0
ask g++ $cpp -Wuseless-cast -std=c++11 -ftrack-macro-expansion=0
ask clang -std=c11 -ferror-limit=0
ask clang++ $cpp -std=c++17 -ferror-limit=0
[ $asked -gt 0 ] || echo "there is none of gcc, g++, clang and clang++"
[ $asked -gt 0 ] && [ $failed = 0 ]
