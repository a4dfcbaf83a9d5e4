#!/bin/sh
# A C compiler for tests of what is around kernels: it takes a third of the time to make slower ones.
exec cc "$@" -O1 -fno-openmp-simd -fno-peel-loops
