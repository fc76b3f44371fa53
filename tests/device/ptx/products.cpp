// wgmma: products of a warpgroup, from shared memory.
#include <array>

#include "emulator/machine.hpp"
#include "emulator/tensor_map.hpp"
#include "ptx/call.hpp"
#include "ptx/fragments.hpp"
#include "ptx/instructions.hpp"

namespace emulator::instructions {
namespace {

using Calls = std::array<Call*, 128>;

Warpgroup& current_warpgroup() { return current_block().warpgroups[current().number / 128]; }
unsigned place_in_warpgroup() { return current().number % 128; }

/// An operand in shared memory as its descriptor says: m (or n) by k.
class SharedMatrix {
 public:
  SharedMatrix(std::uint64_t descriptor, const Format& format, bool along_k)
      : start_(bits(descriptor, 0) << 4),
        leading_(bits(descriptor, 16) << 4),
        stride_(bits(descriptor, 32) << 4),
        swizzle_(descriptor >> 62 == 0 ? 0 : 256u >> (descriptor >> 62)),
        along_k_(along_k),
        format_(&format) {
    if ((descriptor >> 49 & 7) != 0) fault("the emulator knows no base offset in wgmma's descriptors");
    if (swizzle_ != 0 && start_ % (8 * swizzle_) >= swizzle_)
      fault("wgmma's operand at {:#x} begins within the eight rows of a swizzle, which takes a base offset", start_);
  }

  [[nodiscard]] float at(SharedMemory& shared, unsigned row, unsigned k) const {
    const unsigned bytes = format_->bits / 8;
    const unsigned address =
        start_ + (along_k_ ? offset(k * bytes, row, leading_, stride_) : offset_across(row * bytes, k));
    std::uint32_t element = 0;
    std::memcpy(&element, shared.asynchronous_at(swizzled(address, swizzle_), bytes, bytes), bytes);
    return format_->decode(element);
  }

 private:
  static unsigned bits(std::uint64_t descriptor, unsigned from) {
    return static_cast<unsigned>(descriptor >> from & 0x3fff);
  }

  /// Rows of one swizzle's width (16 bytes without), eight to an atom: `along` bytes in a row, in row `line`.
  [[nodiscard]] unsigned offset(unsigned along, unsigned line, unsigned next_along, unsigned next_line) const {
    const unsigned width = swizzle_ == 0 ? 16 : swizzle_;
    return along / width * next_along + along % width + line / 8 * next_line + line % 8 * width;
  }
  /// m along memory. Without a swizzle the two distances change their meanings.
  [[nodiscard]] unsigned offset_across(unsigned along, unsigned line) const {
    return swizzle_ == 0 ? offset(along, line, stride_, leading_) : offset(along, line, leading_, stride_);
  }

  unsigned start_, leading_, stride_, swizzle_;
  bool along_k_;
  const Format* format_;
};

/// What a wgmma's opcode and operands say, the same in all threads.
struct Shape {
  unsigned n, depth;
  const Format &a, &b;
  bool a_in_registers, a_along_k, b_along_k;

  explicit Shape(const Call& call)
      : n(static_cast<unsigned>(call.size(0)) * 2),
        depth(0),
        a(format_of(call.instruction().parts.at(6))),
        b(format_of(call.instruction().parts.at(7))),
        a_in_registers(call.size(1) == 4),
        a_along_k(true),
        b_along_k(true) {
    depth = 256 / a.bits;
    const auto& parts = call.instruction().parts;  // wgmma mma_async sync aligned m64n256k16 f32 A B
    if (parts[4] != fmt::format("m64n{}k{}", n, depth) || parts[5] != "f32" || n % 8 != 0 || n > 256)
      fault("{} with {} registers for the result", call.instruction().opcode, call.size(0));
    if (call.get(4) != 1 || call.get(5) != 1) fault("the emulator knows no negated operands of wgmma");
    const std::size_t majors = a.bits != 16 ? 0 : a_in_registers ? 1 : 2;
    if (call.size() != 6 + majors)
      fault("{} with {} operands, not {}", call.instruction().opcode, call.size(), 6 + majors);
    if (majors == 0) return;
    if (!a_in_registers) a_along_k = call.get(6) == 0;
    b_along_k = call.get(a_in_registers ? 6 : 7) == 0;
  }
};

void multiply(const Shape& shape, const std::vector<float>& a, const std::vector<float>& b, bool adds,
              std::vector<float>& sums) {
  const unsigned a_thread = shape.n / 2;
  for (unsigned thread = 0; thread < 128; ++thread) {
    for (unsigned i = 0; i < a_thread; ++i) {
      const unsigned row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2),
                     column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
      float& sum = sums[thread * a_thread + i];
      float result = adds ? sum : 0.0f;
      const float *left = &a[row * shape.depth], *right = &b[column * shape.depth];
      for (unsigned k = 0; k < shape.depth; ++k) result += left[k] * right[k];
      sum = result;
    }
  }
}

std::vector<float> elements(SharedMemory& shared, const SharedMatrix& matrix, unsigned rows, unsigned depth) {
  std::vector<float> all;
  all.reserve(static_cast<std::size_t>(rows) * depth);
  for (unsigned row = 0; row < rows; ++row) {
    for (unsigned k = 0; k < depth; ++k) all.push_back(matrix.at(shared, row, k));
  }
  return all;
}

void begin(const Calls& calls) {
  const Call& any = *calls[0];
  for (const Call* call : calls) {
    if (call->get(2) != any.get(2) || call->get(3) != any.get(3) || (call->size(1) == 1 && call->get(1) != any.get(1)))
      fault("the threads of a warpgroup give wgmma different operands");
  }
  const Shape shape(any);
  std::vector<float*> registers;
  for (const Call* call : calls) {
    for (unsigned i = 0; i < shape.n / 2; ++i) registers.push_back(call->variable(0, i));
  }
  std::vector<float> a_registers;  // as they are now
  if (shape.a_in_registers) {
    const Fragments fragments{shape.a, 1, 16};
    for (unsigned row = 0; row < 64; ++row) {
      for (unsigned k = 0; k < shape.depth; ++k)
        a_registers.push_back(fragments.at(&calls[row / 16 * 32], row % 16, k));
    }
  }
  Block& block = current_block();
  Warpgroup& warpgroup = current_warpgroup();
  const auto sums = warpgroup.accumulators(std::move(registers));
  const SharedMatrix a(shape.a_in_registers ? 0 : any.get(1), shape.a, shape.a_along_k),
      b(any.get(2), shape.b, shape.b_along_k);
  warpgroup.begin(block.cluster.in_flight, sums, [&block, shape, a, b, a_registers, adds = any.get(3) != 0, sums] {
    multiply(shape, shape.a_in_registers ? a_registers : elements(block.shared, a, 64, shape.depth),
             elements(block.shared, b, shape.n, shape.depth), adds, sums->values);
  });
}

}  // namespace

void wgmma_fence(Call&) { current_warpgroup().fence(place_in_warpgroup()); }

void wgmma(Call& call) { current_warpgroup().meeting.meet("wgmma.mma_async", place_in_warpgroup(), 128, call, begin); }

void wgmma_commit(Call&) {
  char nothing{};
  current_warpgroup().meeting.meet("wgmma.commit_group", place_in_warpgroup(), 128, nothing,
                                   [](const auto&) { current_warpgroup().commit(); });
}

void wgmma_wait(Call& call) { current_warpgroup().wait(place_in_warpgroup(), call.get(0)); }

}  // namespace emulator::instructions
