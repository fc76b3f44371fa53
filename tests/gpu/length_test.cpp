// Lengths in device memory: a graph captured once for a bucket gives, for each length in it, what eager launches give, bit for bit.
#include <fmt/format.h>

#include <cstring>
#include <random>

#include "gpu/fixture.hpp"
#include "tune/tensor_extent.hpp"

namespace kiln::gpu_tests {
namespace {

constexpr std::int64_t edge = 64, other_size = 256, few_products = 8;
constexpr unsigned char untouched = 0xab, poison = 0xff;

/// One call of an op at a bucket's edge: its tensors in memory, how far each is filled, the graph of a launch whose lengths are on the device.
class BoundedCall {
 public:
  BoundedCall(const Engine& engine, const manifest::Op& described, const Problem& at_edge,
              const manifest::DeviceFacts& facts)
      : op_(engine.op(described.name)), described_(described), edge_(at_edge), frame_(frame_of(at_edge, facts)) {
    for (std::size_t i = 0; i < described.runtime.size(); ++i)
      if (described.runtime[i].default_integer)
        eager_.set(RuntimeId{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer},
                   frame_[static_cast<std::size_t>(described.first_runtime()) + i]);
      else if (!described.runtime[i].is_integer() && !described.runtime[i].default_real)
        eager_.set(op_.runtime(described.runtime[i].name), 0.5);
    for (const manifest::Tensor& tensor : described.tensors) add(tensor);
    bounded_ = eager_;
    for (std::size_t i = 0; i < described.axes.size(); ++i)
      if (described.axes[i].on_device)
        bounded_.set(AxisId{static_cast<std::uint8_t>(i)},
                     reinterpret_cast<const std::int32_t*>(lengths_.pointer() + i * sizeof(std::int32_t)));
  }

  void capture(CUstream stream) {
    static_cast<void>(op_.plan(edge_, stream));
    const cuda::Driver& driver = cuda::Driver::get();
    cuda::check(driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "beginning a capture");
    op_.launch(edge_, bounded_, stream);
    CUgraph graph = nullptr;
    cuda::check(driver.cuStreamEndCapture(stream, &graph), "ending a capture");
    cuda::check(driver.cuGraphInstantiateWithFlags(&graph_, graph, 0), "instantiating a graph");
    cuda::check(driver.cuGraphDestroy(graph), "destroying a graph");
  }
  ~BoundedCall() {
    if (graph_ != nullptr) cuda::Driver::get().cuGraphExecDestroy(graph_);
  }
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  /// Both launches over the same values, NaN in the inputs' padding; says what differs, or nothing.
  std::string compare(const Problem& lengths, bool run_eager, CUstream stream, std::mt19937& generator) {
    auto frame = frame_;
    std::copy_n(lengths.axes.begin(), described_.axes.size(), frame.begin());
    fill(frame, generator);
    std::vector<std::vector<unsigned char>> eager;
    if (run_eager) {
      op_.launch(lengths, eager_, stream);
      eager = outputs(stream);
      for (const Memory& each : memory_)
        if (each.output) each.buffer.copy_from_host(each.host.data(), each.buffer.bytes());
    }
    std::array<std::int32_t, max_axes> values{};
    for (std::size_t i = 0; i < described_.axes.size(); ++i) values[i] = static_cast<std::int32_t>(lengths.axes[i]);
    cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting");
    lengths_.copy_from_host(values.data(), sizeof values);
    cuda::check(cuda::Driver::get().cuGraphLaunch(graph_, stream), "launching a graph");
    const auto got = outputs(stream);
    if (run_eager && got != eager) return "the graph's result is not that of an eager launch";
    return padding_written(got, frame);
  }

 private:
  struct Memory {
    std::size_t tensor;
    bool output;
    tune::TensorExtent extent;  // at the edge
    cuda::Buffer buffer;
    std::vector<unsigned char> host;
    bool filled = false;
  };

  std::vector<std::int64_t> frame_of(const Problem& problem, const manifest::DeviceFacts& facts) const {
    return manifest::frame_of({described_, facts}, problem);
  }

  void add(const manifest::Tensor& tensor) {
    const auto index = static_cast<std::size_t>(&tensor - described_.tensors.data());
    if (!manifest::Op::takes_part(tensor, frame_)) return;
    Memory memory{index, tensor.output, tune::extent_of(described_, tensor, frame_), {}, {}, false};
    memory.buffer = cuda::Buffer(memory.extent.elements * size_of(memory.extent.type));
    memory.host.resize(static_cast<std::size_t>(memory.buffer.bytes()));
    eager_.tensors[index] = reinterpret_cast<const void*>(memory.buffer.pointer());
    memory_.push_back(std::move(memory));
  }

  /// Elements inside `frame`'s sizes get values, all others poison; outputs are marked. Inputs of no such length keep their values.
  void fill(std::span<const std::int64_t> frame, std::mt19937& generator) {
    for (Memory& each : memory_) {
      const std::vector<std::int64_t> sizes = sizes_in(each, frame);
      if (std::exchange(each.filled, true) && !each.output && !described_.tensors[each.tensor].last &&
          sizes == each.extent.shape)
        continue;
      std::fill(each.host.begin(), each.host.end(), poison);
      const auto bytes = static_cast<std::size_t>(size_of(each.extent.type));
      for_each_element(each, [&](std::size_t offset, std::span<const std::int64_t> at) {
        if (inside(sizes, at))
          write_value(&each.host[offset * bytes], each.extent.type, static_cast<std::uint32_t>(generator()));
      });
      const manifest::Tensor& tensor = described_.tensors[each.tensor];
      if (tensor.last) write_offsets(each, tensor.last->evaluate(frame).number);
      if (each.output && !manifest::Op::is_initialised(tensor, frame))
        std::fill(each.host.begin(), each.host.end(), untouched);
      each.buffer.copy_from_host(each.host.data(), each.buffer.bytes());
    }
  }

  /// Finite values of every type, away from 0: of integers small ones, which may be positions.
  static void write_value(unsigned char* to, manifest::DType type, std::uint32_t random) {
    const std::uint32_t sign = random >> 31;
    const auto put = [&](auto bits) { std::memcpy(to, &bits, sizeof bits); };
    switch (type) {
      case manifest::DType::bf16: put(static_cast<std::uint16_t>(sign << 15 | 0x3f00U | (random & 0xffU))); break;
      case manifest::DType::f16: put(static_cast<std::uint16_t>(sign << 15 | 0x3800U | (random & 0x7ffU))); break;
      case manifest::DType::f32: put(sign << 31 | 0x3f000000U | (random & 0xffffffU)); break;
      case manifest::DType::i32: put(static_cast<std::int32_t>(random % 16)); break;
      case manifest::DType::i64: put(static_cast<std::int64_t>(random % 16)); break;
      default: *to = static_cast<unsigned char>(random % 64); break;
    }
  }

  /// Unequal parts, in int32.
  static void write_offsets(Memory& memory, std::int64_t last) {
    const std::int64_t parts = memory.extent.count() - 1;
    for (std::int64_t i = 0; i <= parts; ++i) {
      const auto offset = static_cast<std::int32_t>(last * i * i / (parts * parts));
      std::memcpy(&memory.host[static_cast<std::size_t>(i) * sizeof offset], &offset, sizeof offset);
    }
  }

  template <typename Work>
  static void for_each_element(const Memory& memory, Work work) {
    const auto& shape = memory.extent.shape;
    std::vector<std::int64_t> at(shape.size(), 0);
    for (std::int64_t i = 0; i < memory.extent.count(); ++i) {
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * memory.extent.strides[d];
      work(static_cast<std::size_t>(offset), std::span<const std::int64_t>(at));
      for (std::size_t d = at.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
    }
  }

  std::vector<std::int64_t> sizes_in(const Memory& memory, std::span<const std::int64_t> frame) const {
    std::vector<std::int64_t> sizes;
    for (const manifest::Expression& each : described_.tensors[memory.tensor].shape)
      sizes.push_back(each.evaluate(frame).number);
    return sizes;
  }
  static bool inside(std::span<const std::int64_t> sizes, std::span<const std::int64_t> at) {
    for (std::size_t d = 0; d < at.size(); ++d)
      if (at[d] >= sizes[d]) return false;
    return true;
  }

  std::vector<std::vector<unsigned char>> outputs(CUstream stream) const {
    cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting");
    std::vector<std::vector<unsigned char>> result;
    for (const Memory& each : memory_) {
      if (!each.output) continue;
      result.emplace_back(static_cast<std::size_t>(each.buffer.bytes()));
      each.buffer.copy_to_host(result.back().data(), each.buffer.bytes());
    }
    return result;
  }

  std::string padding_written(const std::vector<std::vector<unsigned char>>& got,
                              std::span<const std::int64_t> frame) const {
    std::size_t output = 0;
    std::string found;
    for (const Memory& each : memory_) {
      if (!each.output) continue;
      const std::vector<unsigned char>& bytes = got[output++];
      const auto size = static_cast<std::size_t>(size_of(each.extent.type));
      const std::vector<std::int64_t> sizes = sizes_in(each, frame);
      for_each_element(each, [&](std::size_t offset, std::span<const std::int64_t> at) {
        if (inside(sizes, at)) return;
        for (std::size_t i = 0; i < size; ++i)
          if (bytes[offset * size + i] != each.host[offset * size + i])
            found = fmt::format("padding of '{}' was written at [{}]", described_.tensors[each.tensor].name,
                                fmt::join(at, ","));
      });
    }
    return found;
  }

  Op op_;
  const manifest::Op& described_;
  Problem edge_;
  std::vector<std::int64_t> frame_;
  cuda::Buffer lengths_{max_axes * sizeof(std::int32_t)};
  std::vector<Memory> memory_;
  Arguments eager_, bounded_;
  CUgraphExec graph_ = nullptr;
};

Problem edge_problem(const manifest::Op& op, std::int64_t products) {
  Problem problem;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const manifest::Axis& axis = op.axes[i];
    const std::int64_t size = axis.name == "batch" || axis.name == "groups" ? products : other_size;
    problem.axes[i] = std::min(axis.on_device ? edge : size, axis.maximum);
  }
  return problem;
}

/// The first values of all types and choices, with more products than blocks run at once; then each other value of one of them, of few
/// products, for the host fills and compares element by element.
std::vector<Problem> variants(const manifest::Op& op) {
  std::vector<Problem> all{edge_problem(op, other_size)};
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    for (std::size_t value = 1; value < op.selections[i].values.size(); ++value) {
      Problem problem = edge_problem(op, few_products);
      problem.selections[i] = static_cast<std::uint8_t>(value);
      all.push_back(problem);
    }
  return all;
}

}  // namespace

TEST_CASE("a graph captured at a bucket's edge serves every length of the bucket as eager launches do") {
  Fixture fixture;
  Options options;
  options.overlay = "";
  options.on_miss = MissPolicy::nearest;
  const Engine engine(options);
  std::mt19937 generator(23);
  int ops = 0;
  for (const manifest::Op& op : fixture.ops) {
    if (std::none_of(op.axes.begin(), op.axes.end(), [](const manifest::Axis& axis) { return axis.on_device; }))
      continue;
    if (op.team_axis() >= 0) continue;  // this engine is of no team
    // An op with prepared inputs has a test of its own: values at random are no lengths or tables.
    if (std::ranges::any_of(op.tensors, [](const auto& each) { return each.fill == manifest::Fill::prepared; }))
      continue;
    const std::vector<std::string> known = engine.ops();
    if (std::find(known.begin(), known.end(), op.name) == known.end()) continue;
    ++ops;
    for (const Problem& at_edge : variants(op)) {
      BoundedCall call(engine, op, at_edge, fixture.facts());
      call.capture(fixture.stream.handle());
      const auto try_length = [&](std::int64_t length, bool in_bucket) {
        Problem lengths = at_edge;
        for (std::size_t i = 0; i < op.axes.size(); ++i)
          if (op.axes[i].on_device) lengths.axes[i] = length == edge || i == 0 ? length : edge - (edge - length) / 2;
        const std::string wrong = call.compare(lengths, in_bucket, fixture.stream.handle(), generator);
        CHECK_MESSAGE(wrong.empty(), fmt::format("{} {}: {}", op.name, manifest::to_string(op, lengths), wrong));
      };
      for (std::int64_t length = edge; length > edge / 2; --length) try_length(length, true);
      for (const std::int64_t length : {17, 1, 0}) try_length(length, false);
      CHECK_FALSE(engine.check(fixture.stream.handle()).has_value());
    }
  }
  CHECK(ops >= 3);
}

}  // namespace kiln::gpu_tests
