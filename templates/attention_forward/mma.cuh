// attention_mma, which attention_backward's [prepare] uses too.
#pragma once

#include "common/attention/forward_mma.cuh"
