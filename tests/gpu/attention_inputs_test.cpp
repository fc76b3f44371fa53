// What attention reads from device memory when its kernels run: offsets of packed sequences, and the seed of dropout.
#include <cstring>
#include <map>
#include <random>

#include "gpu/fixture.hpp"
#include "gpu/graph.hpp"

namespace kiln::gpu_tests {
namespace {

constexpr std::int64_t heads = 2, queries = 71, keys = 92;

/// Three packed sequences of forward and backward alike. bf16 between 0.5 and 2, of either sign.
class PackedCall {
 public:
  PackedCall(const Engine& engine, const char* name, std::int64_t dim)
      : op_(engine.op(name)),
        problem_(op_.problem({{"batch", std::int64_t{3}},
                              {"queries", queries},
                              {"keys", keys},
                              {"heads", heads},
                              {"key_heads", heads},
                              {"head_dim", dim},
                              {"value_dim", dim},
                              {"layout", "packed"}})) {
    std::mt19937 generator(5);
    for (const char* of_queries : {"q", "out", "dout", "dq"}) add(of_queries, queries * heads * dim, generator);
    for (const char* of_keys : {"k", "v", "dk", "dv"}) add(of_keys, keys * heads * dim, generator);
    buffers_["lse"] = cuda::Buffer(heads * queries * 4);
    const std::vector<float> lse(static_cast<std::size_t>(heads * queries), 3.0F);
    buffers_["lse"].copy_from_host(lse.data(), buffers_["lse"].bytes());
    for (const char* offsets : {"query_offsets", "key_offsets"}) buffers_[offsets] = cuda::Buffer(4 * 4);
  }
  void launch(const std::vector<std::int32_t>& query_offsets, const std::vector<std::int32_t>& key_offsets,
              CUstream stream, std::optional<std::int64_t> longest_query = std::nullopt) {
    buffers_["query_offsets"].copy_from_host(query_offsets.data(), 16);
    buffers_["key_offsets"].copy_from_host(key_offsets.data(), 16);
    Arguments arguments;
    for (const char* tensor : {"q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv", "query_offsets", "key_offsets"}) {
      const bool of_backward = tensor[0] == 'd';
      if (of_backward && op_.name() == "attention_forward") continue;
      arguments.set(op_.tensor(tensor), reinterpret_cast<const void*>(buffers_[tensor].pointer()));
    }
    if (longest_query) arguments.set(op_.runtime("longest_query"), *longest_query);
    op_.launch(problem_, arguments, stream);
  }

 private:
  void add(const char* name, std::int64_t elements, std::mt19937& generator) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(elements));
    for (std::uint16_t& each : values) each = static_cast<std::uint16_t>(0x3f00U | (generator() & 0x80ffU));
    buffers_[name] = cuda::Buffer(elements * 2);
    buffers_[name].copy_from_host(values.data(), buffers_[name].bytes());
  }

  Op op_;
  Problem problem_;
  std::map<std::string, cuda::Buffer> buffers_;
};

constexpr std::initializer_list<std::int64_t> dims = {64, 72};  // which wgmma takes on sm_90, and mma alone

}  // namespace

TEST_CASE("Engine::check names offsets of attention that fall or pass their tensors, and sequences past the longest") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  const CUstream stream = fixture.stream.handle();
  const std::vector<std::int32_t> good_queries = {0, 40, 62, 71}, good_keys = {0, 50, 80, 92};
  for (const char* name : {"attention_forward", "attention_backward"})
    for (const std::int64_t dim : dims) {
      CAPTURE(name);
      CAPTURE(dim);
      PackedCall call(engine, name, dim);
      const auto check = [&](const char* axis, std::int64_t length, std::int64_t bound) {
        const auto fault = engine.check(stream);
        REQUIRE(fault.has_value());
        CHECK(fault->op == name);
        CHECK(fault->axis == axis);
        CHECK(fault->length == length);
        CHECK(fault->bound == bound);
        CHECK_FALSE(engine.check(stream).has_value());
      };
      call.launch(good_queries, good_keys, stream);
      CHECK_FALSE(engine.check(stream).has_value());
      call.launch({0, 40, 62, 60}, good_keys, stream);
      check("queries", -2, queries);
      call.launch(good_queries, {0, 50, 80, 1 << 30}, stream);
      check("keys", 1 << 30, keys);
      call.launch(good_queries, {-9, 50, 80, 92}, stream);
      check("keys", -9, keys);
      if (name != std::string_view("attention_forward")) continue;
      call.launch(good_queries, good_keys, stream, 32);
      check("queries", 40, 32);
    }
}

TEST_CASE(
    "a graph of attention_forward with dropout draws anew where the offset in device memory changes, and else alike") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  const Op op = engine.op("attention_forward");
  const CUstream stream = fixture.stream.handle();
  for (const std::int64_t dim : dims) {
    CAPTURE(dim);
    const Problem problem = op.problem({{"batch", std::int64_t{1}},
                                        {"queries", queries},
                                        {"keys", keys},
                                        {"heads", heads},
                                        {"key_heads", heads},
                                        {"head_dim", dim},
                                        {"value_dim", dim},
                                        {"dropout", "philox"}});
    std::mt19937 generator(7);
    const std::int64_t of_queries = queries * heads * dim * 2, of_keys = keys * heads * dim * 2;
    const cuda::Buffer q(of_queries), k(of_keys), v(of_keys), out(of_queries), lse(heads * queries * 4), seed(16);
    for (const cuda::Buffer* each : {&q, &k, &v}) {
      std::vector<std::uint16_t> values(static_cast<std::size_t>(each->bytes() / 2));
      for (std::uint16_t& value : values) value = static_cast<std::uint16_t>(0x3f00U | (generator() & 0x80ffU));
      each->copy_from_host(values.data(), each->bytes());
    }
    const auto at = [](const cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); };
    const Arguments arguments = op.arguments({{"q", at(q)},
                                              {"k", at(k)},
                                              {"v", at(v)},
                                              {"out", at(out)},
                                              {"lse", at(lse)},
                                              {"dropout_seed", at(seed)},
                                              {"dropout_p", 0.3}});
    static_cast<void>(op.plan(problem, stream));
    const Graph graph(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { op.launch(problem, arguments, stream); });
    const auto drawn = [&](std::int64_t seed_value, std::int64_t offset) {
      const std::array<std::int64_t, 2> both = {seed_value, offset};
      seed.copy_from_host(both.data(), 16);
      graph.replay();
      cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting for a graph");
      std::pair<std::vector<unsigned char>, std::vector<unsigned char>> got;
      got.first.resize(static_cast<std::size_t>(out.bytes()));
      got.second.resize(static_cast<std::size_t>(lse.bytes()));
      out.copy_to_host(got.first.data(), out.bytes());
      lse.copy_to_host(got.second.data(), lse.bytes());
      return got;
    };
    const auto first = drawn(11, 0), other = drawn(11, 4096), reseeded = drawn(12, 0);
    CHECK(drawn(11, 0) == first);
    CHECK(drawn(11, 4096) == other);
    CHECK(other.first != first.first);
    CHECK(reseeded.first != first.first);
    CHECK(other.second == first.second);  // lse is that of all weights
  }
}

}  // namespace kiln::gpu_tests
