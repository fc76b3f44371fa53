#pragma once

struct team_argument {
  void* control[8];
  void* report;
  unsigned long long half_bytes, timeout_ns;
  int rank, world;
  unsigned tag, unused;
};
struct peers_argument {
  const float* of[8];
};

__global__ void gathered_rows_reference(const float* x, const float* factor, float* y, long long rows, long long cols,
                                        long long stride, int rank) {
  const long long row = blockIdx.y * rows + blockIdx.x;
  for (long long i = threadIdx.x; i < cols; i += blockDim.x) y[row * cols + i] = x[row * stride + i] * *factor + rank;
}

__global__ void gathered_rows(const __grid_constant__ peers_argument gathered,
                              const __grid_constant__ team_argument team, const float* factor, float* y, long long rows,
                              long long cols, int rank) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const float* x = gathered.of[team.rank];
  const long long row = blockIdx.y * rows + blockIdx.x;
  for (long long i = threadIdx.x; i < cols; i += blockDim.x) y[row * cols + i] = x[row * cols + i] * *factor + rank;
}
