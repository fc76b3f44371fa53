#pragma once

#include "common/team/packet_kernel.cuh"
