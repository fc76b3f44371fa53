// attention_wgmma over the keys and values of all ranks, once these are gathered.
#pragma once

#include "common/attention/forward_wgmma.cuh"
#include "gather.cuh"
