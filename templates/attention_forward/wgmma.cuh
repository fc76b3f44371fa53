// attention_wgmma, which attention_context uses too.
#pragma once

#include "common/attention/forward_wgmma.cuh"
