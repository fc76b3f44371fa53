// Fragments of matrix instructions stored to shared memory (sm_90 and later).
//
// An 8 x 8 matrix of 16-bit elements is one register of each lane. Lane l holds columns 2 * (l % 4) and the next of row
// l / 4, the first in the low half. Lane l gives the 16-byte aligned shared address of row l % 8 of matrix l / 8. With
// two matrices, those of lanes 16 to 31 are not used. `trans` stores each matrix transposed: what a lane holds are then
// rows 2 * (l % 4) and the next of column l / 4.
#pragma once

namespace kiln {

__device__ __forceinline__ void stmatrix_x4(unsigned to, const unsigned (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(unsigned to, const unsigned (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x2(unsigned to, const unsigned (&from)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(from[0]), "r"(from[1])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x2_trans(unsigned to, const unsigned (&from)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(from[0]), "r"(from[1])
               : "memory");
}

}  // namespace kiln
