#!/bin/sh
# Runs a script with a Python that has NumPy: tests/oracle/python.sh SCRIPT ARGUMENTS
# Where there is none it says so and returns 77, which CTest counts as skipped.
for python in python3 /usr/bin/python3; do
    $python -c 'import numpy' >/dev/null 2>&1 && exec $python -B "$@"
done
echo "skipped: no python3 with NumPy here (Debian: python3-numpy)"
exit 77
