// A kernel for what belongs to rows and one for what belongs to columns, for any length and alignment.
#pragma once

#include "common/norm_backward_split.cuh"
#include "common/norm_backward_sum.cuh"
