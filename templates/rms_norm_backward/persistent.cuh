// Blocks that stay and take rows in turn, read once into shared memory while earlier ones are worked on.
#pragma once

#include "common/norm_backward_persistent.cuh"
#include "common/norm_backward_sum.cuh"
