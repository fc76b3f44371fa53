// Ulysses: attention over a sequence whose rows are cut over the ranks of a team, by two all_to_all around attention_forward.
// Start it by torchrun, mpirun or srun, a process a GPU of one host.
#include <kiln/kiln.hpp>

#include <cstdio>
#include <memory>

#include "../embed/device_memory.hpp"

namespace {

/// Of each rank: `rows` rows of the sequence outside of attention, `heads` / world heads within. Elements are bf16.
struct Shape {
  std::int64_t rows, heads, dim, world;  // heads: a multiple of world

  [[nodiscard]] std::size_t floats() const { return static_cast<std::size_t>(rows * heads * dim / 2); }
};

class Ulysses {
 public:
  Ulysses(const kiln::Engine& engine, const Shape& shape)
      : exchange_(engine.op("all_to_all")),
        attention_(engine.op("attention_forward")),
        to_heads_(exchange(shape, "scatter_heads")),
        to_rows_(exchange(shape, "gather_heads")),
        attends_(attention_.problem({{"batch", 1},
                                     {"queries", shape.world * shape.rows},
                                     {"keys", shape.world * shape.rows},
                                     {"heads", shape.heads / shape.world},
                                     {"key_heads", shape.heads / shape.world},
                                     {"head_dim", shape.dim},
                                     {"value_dim", shape.dim},
                                     {"dtype", "bf16"}})),
        q_(shape.floats()),
        k_(shape.floats()),
        v_(shape.floats()),
        out_(shape.floats()) {}

  /// q, k, v and out are [rows, heads, dim]. All ranks call it alike.
  void launch(const void* q, const void* k, const void* v, const void* out, kiln::Stream stream) const {
    move(to_heads_, q, q_.address(), stream);  // to [world * rows, heads / world, dim]
    move(to_heads_, k, k_.address(), stream);
    move(to_heads_, v, v_.address(), stream);
    attention_.launch(
        attends_,
        attention_.arguments({{"q", q_.address()}, {"k", k_.address()}, {"v", v_.address()}, {"out", out_.address()}}),
        stream);
    move(to_rows_, out_.address(), out, stream);
  }

 private:
  [[nodiscard]] kiln::Problem exchange(const Shape& shape, const char* direction) const {
    return exchange_.problem({{"rows", shape.rows},
                              {"heads", shape.heads},
                              {"dim", shape.dim},
                              {"world", shape.world},
                              {"dtype", "bf16"},
                              {"direction", direction}});
  }
  void move(const kiln::Problem& problem, const void* from, const void* to, kiln::Stream stream) const {
    exchange_.launch(problem, exchange_.arguments({{"x", from}, {"y", to}}), stream);
  }

  kiln::Op exchange_, attention_;
  kiln::Problem to_heads_, to_rows_, attends_;
  DeviceMemory q_, k_, v_, out_;
};

}  // namespace

int main() {
  try {
    const auto team = std::make_shared<kiln::Team>(kiln::TeamOptions{});
    kiln::Options options;
    options.team = team;
    options.device = team->device();
    const kiln::Engine engine(options);
    use_device(team->device());

    const Shape shape = {2304, 24, 128, team->world()};  // FLUX.1's heads
    const DeviceMemory q(shape.floats()), k(shape.floats()), v(shape.floats()), out(shape.floats());
    const Ulysses ulysses(engine, shape);
    ulysses.launch(q.address(), k.address(), v.address(), out.address(), nullptr);
    static_cast<void>(engine.check(nullptr));  // waits, and throws where a rank failed
    std::printf("rank %d of %d: %lld rows\n", team->rank(), team->world(), static_cast<long long>(shape.rows));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
