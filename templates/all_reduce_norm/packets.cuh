#pragma once

#include "common/team/packet_kernel.cuh"
#include "norm_rows.cuh"
