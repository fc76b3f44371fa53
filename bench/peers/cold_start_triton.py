"""The rms_norm of cold_start.py in Triton, in a file of its own: its imports are counted apart."""
import triton
import triton.language as tl


@triton.jit
def kernel(x, weight, y, cols, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values) / cols + epsilon)
    scaled = values * scale * tl.load(weight + at, mask=at < cols, other=0).to(tl.float32)
    tl.store(y + row * cols + at, scaled.to(tl.bfloat16), mask=at < cols)


def rms_norm(x, weight, y, epsilon):
    rows, cols = x.shape
    kernel[(rows,)](x, weight, y, cols, epsilon, BLOCK=triton.next_power_of_2(cols), num_warps=8)
