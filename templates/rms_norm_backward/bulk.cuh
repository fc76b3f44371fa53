// Blocks that stay and take rows in turn, which the copy engine brings while earlier ones are worked on.
#pragma once

#include "common/norm_backward_bulk.cuh"
#include "common/norm_backward_sum.cuh"
