#pragma once

#include "common/team/two_shot.cuh"
