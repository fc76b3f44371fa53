// Inputs for verification and timing: offsets of queries, and those of any cache.
#pragma once

#include "common/attention/cache_prepare.cuh"
#include "common/attention/prepare.cuh"
