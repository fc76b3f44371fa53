#pragma once

#include "common/team/all_reduce.cuh"
#include "norm_rows.cuh"
