// A layer of a stack that is cut over the ranks of a team, as a user of Kiln writes one.
#pragma once

#include <cstdint>
#include <memory>

#include "kiln/kiln.hpp"

namespace kiln::bench {

class Layers {
 public:
  virtual ~Layers() = default;
  /// Makes the problems of a batch of which each rank has `rows` tokens.
  virtual void take(std::int64_t rows) = 0;
  /// Layer `index`, in place: its output is the next one's input.
  virtual void launch(int index, Stream stream) = 0;
  /// Whether the activations of this rank's tokens are numbers.
  [[nodiscard]] virtual bool is_finite(Stream stream) const = 0;
};

std::unique_ptr<Layers> make_llama_layers(const Engine& engine, std::int64_t world, std::int64_t most_rows);
std::unique_ptr<Layers> make_flux_layers(const Engine& engine, std::int64_t world, std::int64_t most_rows);

}  // namespace kiln::bench
