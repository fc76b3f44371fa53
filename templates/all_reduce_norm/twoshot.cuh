#pragma once

#include "common/team/two_shot.cuh"
#include "norm_rows.cuh"
