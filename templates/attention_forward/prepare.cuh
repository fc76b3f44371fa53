// Offsets and values, which attention_backward's [prepare] uses too.
#pragma once

#include "common/attention/prepare.cuh"
