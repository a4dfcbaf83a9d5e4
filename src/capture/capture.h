/* Capture: a function's op calls become a graph. What TorchDynamo does, without bytecode: ops are calls, so
 * running the function is the analysis (design.md, section 6). */
#ifndef CARBIDE_CAPTURE_CAPTURE_H
#define CARBIDE_CAPTURE_CAPTURE_H

#include "graph/graph.h"
#include "tensor/apply.h"

#endif
