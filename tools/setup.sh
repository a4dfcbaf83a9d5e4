#!/bin/sh
# Installs what the build and the tests need, on Debian 12 (bookworm) or later. When everything is
# there it does nothing and is quick; where nothing can be installed it names what is missing and goes on,
# since only cc, cmake and ninja are needed to build.
set -u

missing=""
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
need cppcheck cppcheck
need python3 python3
[ -z "$missing" ] && exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "setup: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 ||
        { apt-get update -q && apt-get install -y -q --no-install-recommends $missing; } >/dev/null 2>&1 ||
        echo "setup: apt-get could not install$missing"
else
    echo "setup: please install$missing"
fi

for tool in cc cmake ninja; do
    command -v $tool >/dev/null 2>&1 || { echo "setup: no $tool, cannot build"; exit 1; }
done
