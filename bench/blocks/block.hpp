// A transformer block as a user of Kiln writes one: what bench_blocks asks of it, its device memory, and how its ops are launched.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "kiln/kiln.hpp"

namespace kiln::bench {

using Bf16 = std::uint16_t;  // its bits

/// Llama: the lengths of packed sequences. Flux: text tokens, then image tokens, of one sequence.
struct Batch {
  std::vector<int> lengths;
  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t longest() const;
};

/// The device memory of a block. Values are those of bench/peers/blocks.py, bit for bit: a hash of seed and index, uniform with this
/// standard deviation around this mean, as f32, then rounded to bf16.
class Tensors {
 public:
  template <class T>
  T* empty(std::int64_t elements) {
    buffers_.emplace_back(elements * static_cast<std::int64_t>(sizeof(T)));
    bytes_ += buffers_.back().bytes();
    return reinterpret_cast<T*>(buffers_.back().pointer());
  }
  template <class T>
  T* upload(const std::vector<T>& values) {
    T* made = empty<T>(static_cast<std::int64_t>(values.size()));
    copy(made, values);
    return made;
  }
  Bf16* drawn(std::int64_t elements, unsigned seed, double deviation, double mean = 0);
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

  template <class T>
  static void copy(T* to, const std::vector<T>& values) {
    copy_bytes(to, values.data(), values.size() * sizeof(T));
  }

 private:
  static void copy_bytes(void* to, const void* from, std::size_t bytes);
  std::vector<cuda::Buffer> buffers_;
  std::int64_t bytes_ = 0;
};
std::vector<Bf16> draw(std::int64_t elements, unsigned seed, double deviation, double mean = 0);
std::vector<float> as_floats(const std::vector<Bf16>& values);

/// Angles of rotary embeddings: rows of 64 cosines and sines, as f32.
struct Angles {
  std::vector<float> cos, sin;
  void add(double angle);
};

/// Names are looked up at each launch, some hundred nanoseconds: docs/embedding.md has the way without.
inline void launch(const Op& op, std::initializer_list<Op::Setting> problem,
                   std::initializer_list<Op::Argument> arguments, Stream stream) {
  op.launch(op.problem(problem), op.arguments(arguments), stream);
}

/// A result that is compared with bench/peers/blocks.py.
struct Result {
  std::string name;
  const Bf16* values;
  std::int64_t elements;
};

class Block {
 public:
  virtual ~Block() = default;
  /// Copies to the device what says where sequences and tokens of a batch are. Waits for the copies.
  virtual void take(const Batch& batch) = 0;
  /// y, for inference: nothing is kept.
  virtual void infer(Stream stream) = 0;
  /// y, and from dy the gradients of x and of all weights.
  virtual void train(Stream stream) = 0;
  [[nodiscard]] virtual std::vector<Result> results() const = 0;  // y first
  [[nodiscard]] virtual std::int64_t tensor_bytes() const = 0;
};

std::unique_ptr<Block> make_llama(const Engine& engine, std::int64_t most_tokens);
std::unique_ptr<Block> make_flux(const Engine& engine, std::int64_t most_tokens);

}  // namespace kiln::bench
