#!/bin/sh
# docs/ops.md is what the op table says now.
#   docs.sh CARBIDE
cd "$(dirname "$0")/../.." || exit 1
"$1" ops --markdown | diff docs/ops.md - >/dev/null && exit 0
echo "docs/ops.md is not what 'carbide ops --markdown' prints: run make docs"
exit 1
