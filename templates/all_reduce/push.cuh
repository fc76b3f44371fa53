#pragma once

#include "common/team/all_reduce.cuh"
