// A CUDA driver that exports what Kiln requires and nothing that Kiln can do without. No device is behind it: it can be opened.
#include "cuda/driver_api.hpp"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC visibility push(default)
extern "C" {
#define LEAST_DRIVER_optional(symbol, parameters)
#define LEAST_DRIVER_required(symbol, parameters) \
  CUresult symbol parameters { return CUDA_SUCCESS; }
#define LEAST_DRIVER_DEFINE(presence, symbol, parameters) LEAST_DRIVER_##presence(symbol, parameters)
KILN_CUDA_DRIVER_FUNCTIONS(LEAST_DRIVER_DEFINE)
#undef LEAST_DRIVER_DEFINE
#undef LEAST_DRIVER_required
#undef LEAST_DRIVER_optional
}
#pragma GCC visibility pop
