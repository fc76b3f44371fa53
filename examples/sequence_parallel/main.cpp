// Attention over a sequence that is split over ranks by rows, start to end: by Ulysses, by context parallelism, or by both together.
//
//   torchrun --no-python --nproc-per-node N example_sequence_parallel [RING]
//
// RING, a divisor of N, is the number of parts in which keys stay split while heads are attended to. With 1, which is the default, this is
// Ulysses. With N it is context parallelism alone. With another number it is both, as xDiT's USP does: N / RING ranks that follow each other
// exchange rows for heads, and RING ranks with the same heads attend to each other's keys. Each rank is in two teams, with an engine for each.
// mpirun and srun start it as well. Some rows are compared with a computation in double precision.
#include <kiln/kiln.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "../embed/device_memory.hpp"
#include "values.hpp"

namespace {

// Of a team's memory on each rank: twice the keys and values of all ranks, and more.
constexpr std::int64_t bytes = std::int64_t{1} << 30;

/// A team with the engine that launches its ops.
class Group {
 public:
  Group(int rank, int world, const std::string& name, int device) : world_(world) {
    options_.team = std::make_shared<kiln::Team>(rank, world, name, kiln::TeamOptions{device, bytes});
    options_.device = device;
    engine_.emplace(options_);
  }
  [[nodiscard]] const kiln::Engine& engine() const { return *engine_; }
  [[nodiscard]] std::int64_t world() const { return world_; }

 private:
  std::int64_t world_;
  kiln::Options options_;
  std::optional<kiln::Engine> engine_;
};

class SequenceAttention {
 public:
  /// `heads` exchange rows for heads, and each has rows of all of them then. `ring` have the same heads.
  SequenceAttention(const Group& heads, const Group& ring, const Shape& shape)
      : heads_(heads),
        exchange_(heads.engine().op("all_to_all")),
        to_heads_(exchange(shape, "scatter_heads")),
        to_rows_(exchange(shape, "gather_heads")),
        attention_(ring.engine().op(ring.world() == 1 ? "attention_forward" : "attention_context")),
        attends_(attention(ring, shape)),
        q_(shape.words()),
        k_(shape.words()),
        v_(shape.words()),
        out_(shape.words()) {}

  /// q, k, v and out are [rows, heads, dim] in bf16. All ranks call it with the same sizes.
  void launch(const void* q, const void* k, const void* v, const void* out, kiln::Stream stream) const {
    if (heads_.world() == 1) return attend(q, k, v, out, stream);
    move(to_heads_, q, q_.address(), stream);  // to [ranks * rows, heads / ranks, dim]
    move(to_heads_, k, k_.address(), stream);
    move(to_heads_, v, v_.address(), stream);
    attend(q_.address(), k_.address(), v_.address(), out_.address(), stream);
    move(to_rows_, out_.address(), out, stream);
  }

 private:
  [[nodiscard]] kiln::Problem exchange(const Shape& shape, const char* direction) const {
    return exchange_.problem({{"rows", shape.rows},
                              {"heads", shape.heads},
                              {"dim", shape.dim},
                              {"world", heads_.world()},
                              {"dtype", "bf16"},
                              {"direction", direction}});
  }
  [[nodiscard]] kiln::Problem attention(const Group& ring, const Shape& shape) const {
    const std::int64_t rows = heads_.world() * shape.rows, heads = shape.heads / heads_.world();
    if (ring.world() == 1)
      return attention_.problem({{"batch", 1},
                                 {"queries", rows},
                                 {"keys", rows},
                                 {"heads", heads},
                                 {"key_heads", heads},
                                 {"head_dim", shape.dim},
                                 {"value_dim", shape.dim},
                                 {"dtype", "bf16"}});
    return attention_.problem({{"batch", 1},
                               {"rows", rows},
                               {"heads", heads},
                               {"key_heads", heads},
                               {"head_dim", shape.dim},
                               {"value_dim", shape.dim},
                               {"world", ring.world()},
                               {"dtype", "bf16"}});
  }
  void move(const kiln::Problem& problem, const void* from, const void* to, kiln::Stream stream) const {
    exchange_.launch(problem, exchange_.arguments({{"x", from}, {"y", to}}), stream);
  }
  void attend(const void* q, const void* k, const void* v, const void* out, kiln::Stream stream) const {
    attention_.launch(attends_, attention_.arguments({{"q", q}, {"k", k}, {"v", v}, {"out", out}}), stream);
  }

  const Group& heads_;
  kiln::Op exchange_;
  kiln::Problem to_heads_, to_rows_;
  kiln::Op attention_;
  kiln::Problem attends_;
  DeviceMemory q_, k_, v_, out_;
};

int run(int ring) {
  // The team of all ranks, for its numbers alone.
  const kiln::Team all(kiln::TeamOptions{std::nullopt, 1});
  const int rank = all.rank(), world = all.world(), device = all.device();
  if (ring < 1 || world % ring != 0) throw std::runtime_error("RING must divide the number of ranks");
  const int width = world / ring, part = rank / width, place = rank % width;
  const Group heads(place, width, all.name() + "/heads/" + std::to_string(part), device);
  const Group keys(part, ring, all.name() + "/keys/" + std::to_string(place), device);
  use_device(device);

  const Shape shape = {2304, 24, 128};  // FLUX.1's heads
  if (shape.heads % width != 0) throw std::runtime_error("24 heads must be a multiple of the ranks over RING");
  const DeviceMemory q(values_of('q', shape, rank)), k(values_of('k', shape, rank)), v(values_of('v', shape, rank));
  const DeviceMemory out(shape.words());
  const SequenceAttention attention(heads, keys, shape);
  attention.launch(q.address(), k.address(), v.address(), out.address(), nullptr);
  static_cast<void>(heads.engine().check(nullptr));  // waits, and throws where a rank failed
  static_cast<void>(keys.engine().check(nullptr));
  const double error = worst_error(out.read(), shape, rank, world);
  std::printf("rank %d of %d: %lld rows, worst error %.4f\n", rank, world, static_cast<long long>(shape.rows), error);
  return error < 0.02 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoi(argv[1]) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
