#!/bin/sh
# Misuse that a compiler is to refuse, and correct calls that it takes without a warning: by each of
# gcc, g++, clang and clang++ that is installed.
#   refused.sh GENERATED_HEADERS
cd "$(dirname "$0")" || exit 1
includes="-I../../include -I$1"
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wfloat-equal -Werror"
cpp="-x c++ -Wold-style-cast -Wzero-as-null-pointer-constant"
errors=$(mktemp)
messages=$(mktemp)
trap 'rm -f "$errors" "$messages"' EXIT
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
    "$@" $includes -fsyntax-only refused.c >"$messages" 2>&1
    sed -En 's/^refused\.c:([0-9]*):.*(error:|required from here|requested here).*/\1/p' "$messages" |
        sort -nu >"$errors"
    lines='refused \*/$'
    words="cb_here_belongs_an_integer cb_compile_takes_a_function_of_1_to_4_tensors_or_a_module cb_compile_n_takes_such too.few.arguments.to.function"
    case " $* " in *" c++ "*)
        lines='refused \(in C++ \)\?\*/$'
        words="cb_integer_of.*deleted|deleted.*cb_integer_of a.function.of.1.to.4.tensors takes.cb_compile_n"
        ;;
    esac
    for word in $words cb_too_few_arguments; do
        grep -Eq "$word" "$messages" && continue
        echo "$compiler does not say '$word'"
        failed=1
    done
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
