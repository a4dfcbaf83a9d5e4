#!/bin/sh
# make install in a folder of its own, and three programs that use what it put there: by pkg-config, by
# CMake from C and, with the static library, from C++.
#   install.sh SOURCE BUILD
source=$1
build=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

cmake --install "$build" --prefix "$work/root" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
pc=$(dirname "$(find "$work/root" -name carbide.pc)")
export PKG_CONFIG_PATH="$pc" LD_LIBRARY_PATH="$(dirname "$pc")"
cp "$source/examples/hello.c" "$work"
cd "$work" || exit 1

for file in share/man/man1/carbide.1 share/bash-completion/completions/carbide share/zsh/site-functions/_carbide \
    share/fish/vendor_completions.d/carbide.fish; do
    [ -s "$work/root/$file" ] || { echo "$file is not installed"; failed=1; }
done
for file in LICENSE NOTICE README.md docs/guide.md; do
    find "$work/root/share/doc" -path "*/$file" | grep -q . || { echo "$file is not installed"; failed=1; }
done

runs() { # runs NAME PROGRAM...: its output holds a word of ours
    name=$1
    shift
    "$@" >"$work/out" 2>&1 && grep -q "kernel\|graph" "$work/out" && return
    echo "$name: does not run:"
    cat "$work/out"
    failed=1
}

# shellcheck disable=SC2046
if command -v pkg-config >/dev/null 2>&1; then
    ${CC:-cc} hello.c $(pkg-config --cflags --libs carbide) -o hello && runs pkg-config ./hello
    ${CC:-cc} hello.c $(pkg-config --cflags carbide) "$(dirname "$pc")/libcarbide.a" \
        $(pkg-config --libs --static carbide | sed 's/-lcarbide//') -o hello_static && runs "pkg-config --static" ./hello_static
else
    echo "pkg-config is missing: left out"
fi

runs "installed command" "$work/root/bin/carbide" explain gelu --batch 64 --options backend=vm

# The plugin, where it was built, is found from the command and, beside it, from the library.
if [ -e "$(dirname "$pc")/../libcarbide_onednn.so" ]; then
    env -u CARBIDE_PLUGIN_DIR "$work/root/bin/carbide" info | grep -q "^provider *oneDNN [23]\." ||
        { echo "the installed command does not find the plugin for oneDNN"; failed=1; }
fi

runs "installed command's photo" "$work/root/bin/carbide" bench photo --seconds 0.01

consumer() { # consumer NAME LANGUAGE FILE TARGET
    mkdir -p "$1" && cp hello.c "$1/$3"
    cat >"$1/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project($1 $2)
find_package(Carbide 0.1 REQUIRED)
add_executable($1 $3)
target_link_libraries($1 PRIVATE $4)
END
    if cmake -S "$1" -B "$1/build" -DCMAKE_PREFIX_PATH="$work/root" >"$work/log" 2>&1 &&
        cmake --build "$1/build" >>"$work/log" 2>&1; then
        runs "find_package, $1" "$1/build/$1"
    else
        echo "find_package, $1:"
        cat "$work/log"
        failed=1
    fi
}
consumer shared C hello.c Carbide::carbide
command -v c++ >/dev/null 2>&1 && consumer static CXX hello.cc Carbide::carbide_static
exit $failed
