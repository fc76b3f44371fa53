// What racecheck says of readers of a bulk copy: nvcc -arch=sm_90a -I templates, then compute-sanitizer --tool racecheck with 0, 1 or 2.
//   0  one copy, read by all after its barrier                                    no hazard
//   1  four, one after another; of each warp one lane says, after __syncwarp,
//      that all have read, as gemm's rings have it                                3 hazards
//   2  the same, but each lane says so for itself                                 no hazard
#include <cstdio>
#include <cstdlib>

#include "common/bulk_copy.cuh"

using namespace kiln;

template <int mode>
__global__ void read(const float4* in, float* out) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ alignas(8) unsigned long long barriers[2];
  const unsigned full = shared_address(&barriers[0]), empty = shared_address(&barriers[1]), to = shared_address(memory);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, mode == 2 ? 128 : 4);
    fence_mbarrier_init();
  }
  __syncthreads();
  const int uses = mode == 0 ? 1 : 4;
  if (threadIdx.x >= 128) {
    for (int use = 0; threadIdx.x == 128 && use < uses; ++use) {
      if (use > 0) mbarrier_wait(empty, (use - 1) & 1);
      mbarrier_arrive_expect_tx(full, 2048);
      bulk_load(to, in + use * 128, 2048, full);
    }
    return;
  }
  float sum = 0;
  for (int use = 0; use < uses; ++use) {
    mbarrier_wait(full, use & 1);
    const float4 value = reinterpret_cast<const float4*>(memory)[threadIdx.x];
    sum += value.x + value.y + value.z + value.w;
    if (mode == 2) {
      mbarrier_arrive(empty);
    } else {
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);
    }
  }
  out[threadIdx.x] = sum;
}

int main(int, char** arguments) {
  float4* in;
  float* out;
  cudaMalloc(&in, 4 * 2048);
  cudaMalloc(&out, 128 * sizeof(float));
  cudaMemset(in, 0, 4 * 2048);
  const int mode = std::atoi(arguments[1]);
  if (mode == 0) read<0><<<1, 160, 2048>>>(in, out);
  if (mode == 1) read<1><<<1, 160, 2048>>>(in, out);
  if (mode == 2) read<2><<<1, 160, 2048>>>(in, out);
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
