// attention_mma over the keys and values of all ranks, once these are gathered.
#pragma once

#include "common/attention/forward_mma.cuh"
#include "gather.cuh"
