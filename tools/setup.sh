#!/bin/sh
# Installs what the build and the tests need, on Debian 12 (bookworm) or later. When everything is
# there it does nothing and is quick; where nothing can be installed it names what is missing and goes on,
# since only cc, cmake and ninja are needed to build.
set -u

missing="" optional=""
need() { # need COMMAND-OR-FILE PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || missing="$missing $2"
}
need cc build-essential
need cmake cmake
need ninja ninja-build
need pkg-config pkg-config
need /usr/include/cmocka.h libcmocka-dev
need clang-format clang-format
need clang-tidy clang-tidy
omp=$(ls /usr/lib/llvm-*/lib/clang/*/include/omp.h 2>/dev/null | head -n 1)
need "${omp:-omp.h}" libomp-dev # clang-tidy reads clang's own
need cppcheck cppcheck
need python3 python3
# The plugin for oneDNN is built where this is; Carbide builds and runs without.
[ -e /usr/include/oneapi/dnnl/dnnl.h ] || [ -e /usr/local/include/oneapi/dnnl/dnnl.h ] || optional="libdnnl-dev"
# Tests beside NumPy are skipped without it.
[ -e /usr/lib/python3/dist-packages/numpy ] || python3 -c 'import numpy' 2>/dev/null || optional="$optional python3-numpy"
# The parsers' fuzz targets are skipped without clang's libFuzzer, which comes by clang's version.
ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 ||
    optional="$optional $(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]*\)$/clang libclang-rt-\1-dev/p')"
# Completions are tried by the shells that are there.
command -v zsh >/dev/null 2>&1 || optional="$optional zsh"
command -v fish >/dev/null 2>&1 || optional="$optional fish"
[ -z "$missing$optional" ] && exit 0

install() {
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1
}
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "setup: installing$missing $optional"
    export DEBIAN_FRONTEND=noninteractive
    install $missing $optional || { apt-get update -q >/dev/null 2>&1 && install $missing $optional; } ||
        for package in $missing $optional; do
            install "$package" || echo "setup: apt-get could not install $package"
        done
elif [ -n "$missing" ]; then
    echo "setup: please install$missing"
fi

for tool in cc cmake ninja; do
    command -v $tool >/dev/null 2>&1 || { echo "setup: no $tool, cannot build"; exit 1; }
done
