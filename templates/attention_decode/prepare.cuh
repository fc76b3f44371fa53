// Inputs for verification and timing: those of any cache.
#pragma once

#include "common/attention/cache_prepare.cuh"
