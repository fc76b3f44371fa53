// attention_decode against its reference: layouts, page sizes, masks, choices, lengths in each case; and what invariant promises.
#include <array>
#include <cstring>
#include <random>

#include "gpu/attention.hpp"
#include "gpu/graph.hpp"

namespace kiln::gpu_tests {
namespace {

/// A batch of sequences in pages, each with the same queries, keys and values whatever stands beside it.
struct PagedBatch {
  static constexpr std::int64_t heads = 4, key_heads = 2, dim = 64, page = 16, keys = 2048, entries = keys / page;
  static constexpr std::int64_t page_elements = page * key_heads * dim, query_elements = heads * dim;

  explicit PagedBatch(const std::vector<std::pair<int, int>>& sequences)  // a number that decides values, and a length
      : count(static_cast<std::int64_t>(sequences.size())),
        q(count * query_elements * 2),
        k(count * entries * page_elements * 2),
        v(k.bytes()),
        lengths(count * 4),
        table(count * entries * 4),
        out(q.bytes()),
        lse(count * heads * 4) {
    std::vector<std::uint16_t> host_q, host_k, host_v;
    std::vector<std::int32_t> host_lengths, host_table;
    for (const auto& [number, length] : sequences) {
      std::mt19937 generator(static_cast<unsigned>(number));
      const auto draw = [&](std::vector<std::uint16_t>& to,
                            std::int64_t elements) {  // bf16 between 0.5 and 2, of either sign
        for (std::int64_t i = 0; i < elements; ++i)
          to.push_back(static_cast<std::uint16_t>(0x3f00U | (generator() & 0x80ffU)));
      };
      draw(host_q, query_elements);
      draw(host_k, entries * page_elements);
      draw(host_v, entries * page_elements);
      for (std::int64_t i = 0; i < entries; ++i)
        host_table.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(host_lengths.size()) * entries + i));
      host_lengths.push_back(length);
    }
    const auto copy = [](const cuda::Buffer& to, const auto& from) { to.copy_from_host(from.data(), to.bytes()); };
    copy(q, host_q);
    copy(k, host_k);
    copy(v, host_v);
    copy(lengths, host_lengths);
    copy(table, host_table);
  }

  std::int64_t count;
  cuda::Buffer q, k, v, lengths, table, out, lse;

  [[nodiscard]] static const void* at(const cuda::Buffer& buffer) {
    return reinterpret_cast<const void*>(buffer.pointer());
  }
  [[nodiscard]] Arguments arguments(const Op& op) const {
    return op.arguments({{"q", at(q)},
                         {"k", at(k)},
                         {"v", at(v)},
                         {"key_lengths", at(lengths)},
                         {"block_table", at(table)},
                         {"out", at(out)},
                         {"lse", at(lse)},
                         {"page_size", page},
                         {"pages", count * entries}});
  }
  /// Bits of a sequence's out and lse.
  [[nodiscard]] std::vector<unsigned char> bits(std::int64_t sequence) const {
    std::vector<unsigned char> all_out(static_cast<std::size_t>(out.bytes())),
        all_lse(static_cast<std::size_t>(lse.bytes()));
    out.copy_to_host(all_out.data(), out.bytes());
    lse.copy_to_host(all_lse.data(), lse.bytes());
    const std::int64_t row = query_elements * 2;
    std::vector<unsigned char> own(all_out.begin() + sequence * row, all_out.begin() + (sequence + 1) * row);
    own.insert(own.end(), all_lse.begin() + sequence * heads * 4, all_lse.begin() + (sequence + 1) * heads * 4);
    return own;
  }
};

Problem paged_problem(const Op& op, std::int64_t batch, const char* invariant) {
  return op.problem({{"batch", batch},
                     {"keys", PagedBatch::keys},
                     {"queries", std::int64_t{1}},
                     {"heads", PagedBatch::heads},
                     {"key_heads", PagedBatch::key_heads},
                     {"head_dim", PagedBatch::dim},
                     {"value_dim", PagedBatch::dim},
                     {"layout", "paged"},
                     {"invariant", invariant}});
}

}  // namespace

TEST_CASE("attention_decode is right with each layout, page size and case of lengths, on the host and the device") {
  Fixture fixture;
  std::mt19937 generator(73);
  const manifest::Op& op = fixture.op("attention_decode");
  const AttentionSizes sizes = {"5", "2", "1500", "8", "2", "128", "128"};
  for (std::size_t each = 0; each < op.prepare.value().cases.size(); ++each) {
    tune::Placement placement;
    placement.prepare_case = each;
    check_all(fixture, op, attention(op, sizes, {}), placement, generator);
    check_all(fixture, op, attention(op, sizes, {{"layout", "indexed"}}), placement, generator);
    for (const std::int64_t page_size : {16, 32, 64, 128, 256}) {
      placement = placed(op, {{"page_size", page_size}});
      placement.prepare_case = each;
      check_all(fixture, op, attention(op, sizes, {{"layout", "paged"}}), placement, generator);
      placement.bound = attention(op, {"8", "2", "2048", "8", "2", "128", "128"}, {{"layout", "paged"}});
      check_all(fixture, op, attention(op, sizes, {{"layout", "paged"}}), placement, generator);
    }
  }
}

TEST_CASE("attention_decode is right with each mask, head dimension, group and number of queries") {
  Fixture fixture;
  std::mt19937 generator(79);
  const manifest::Op& op = fixture.op("attention_decode");
  const std::vector<std::pair<AttentionSizes, const char*>> all = {
      {{"3", "1", "777", "4", "4", "64", "64"}, "bf16"},    {{"2", "1", "5000", "16", "2", "128", "128"}, "f16"},
      {{"1", "3", "40000", "8", "1", "96", "96"}, "bf16"},  {{"4", "16", "333", "8", "2", "192", "128"}, "f16"},
      {{"2", "4", "1025", "8", "1", "256", "256"}, "bf16"}, {{"70", "2", "130", "4", "2", "72", "40"}, "bf16"},
      {{"2", "16", "600", "32", "2", "128", "128"}, "bf16"}};
  const std::vector<std::pair<AttentionSizes, const char*>> of_bytes = {
      {{"3", "1", "777", "4", "4", "64", "64"}, "bf16"},   {{"2", "1", "5000", "16", "2", "128", "128"}, "f16"},
      {{"4", "16", "333", "8", "2", "192", "128"}, "f16"}, {{"2", "4", "1025", "8", "1", "256", "256"}, "bf16"},
      {{"70", "2", "130", "4", "2", "80", "48"}, "bf16"},  {{"2", "16", "600", "32", "2", "48", "112"}, "bf16"}};
  for (const char* mask : {"causal", "none", "window"})
    for (const char* layout : {"contiguous", "paged"}) {
      tune::Placement placement = placed(op, {{"window_left", 100}});
      placement.prepare_case = 3;  // one_long
      for (const auto& [sizes, dtype] : all)
        check_all(fixture, op, attention(op, sizes, {{"mask", mask}, {"dtype", dtype}, {"layout", layout}}), placement,
                  generator);
      for (const auto& [sizes, dtype] : of_bytes)
        check_all(fixture, op,
                  attention(op, sizes, {{"mask", mask}, {"dtype", dtype}, {"cache_dtype", "e4m3"}, {"layout", layout}}),
                  placement, generator);
    }
}

TEST_CASE("attention_decode is right with a soft cap and sinks, invariant, without lse, and where heads lie apart") {
  Fixture fixture;
  std::mt19937 generator(83);
  const manifest::Op& op = fixture.op("attention_decode");
  for (const auto& [invariant, cache] : std::vector<std::pair<const char*, const char*>>{
           {"no", "bf16"}, {"yes", "bf16"}, {"no", "e4m3"}, {"yes", "e4m3"}})
    for (const char* layout : {"contiguous", "paged"}) {
      const Problem problem = attention(op, {"3", "2", "3000", "8", "2", "64", "64"},
                                        {{"cache_dtype", cache},
                                         {"layout", layout},
                                         {"soft_cap", "tanh"},
                                         {"sinks", "head"},
                                         {"invariant", invariant}});
      check_cases(fixture, op, problem, generator);
      // Heads outermost in a sequence or page, and rows with something behind them.
      const std::int64_t rows = layout == std::string_view("paged") ? 64 : 3000;
      const std::int64_t row = cache == std::string_view("e4m3") ? 80 : 72, head = rows * row;
      check_all(fixture, op, problem,
                placed(op, {{"k_row_stride", row},
                            {"k_head_stride", head},
                            {"k_outer_stride", 2 * head},
                            {"v_row_stride", row},
                            {"v_head_stride", head},
                            {"v_outer_stride", 2 * head},
                            {"out_row_stride", 8 * 64 + 8},
                            {"out_batch_stride", 2 * (8 * 64 + 8)},
                            {"lse_head_stride", 5},
                            {"lse_batch_stride", 8 * 5}}),
                generator);
    }
}

TEST_CASE("invariant results of attention_decode have the same bits in every batch and bucket") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  const Op op = engine.op("attention_decode");
  const CUstream stream = fixture.stream.handle();
  const auto bits = [&](const std::vector<std::pair<int, int>>& sequences, std::int64_t sequence) {
    const PagedBatch batch(sequences);
    op.launch(paged_problem(op, batch.count, "yes"), batch.arguments(op), stream);
    cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting");
    return batch.bits(sequence);
  };
  for (const int length : {1, 511, 513, 1999}) {
    CAPTURE(length);
    const auto alone = bits({{7, length}}, 0);
    CHECK(bits({{1, 2000}, {7, length}, {2, 0}}, 1) == alone);
    std::vector<std::pair<int, int>> many;
    for (int i = 0; i < 100; ++i) many.emplace_back(100 + i, i * 20);
    many[60] = {7, length};
    CHECK(bits(many, 60) == alone);
  }
}

TEST_CASE("a graph of attention_decode serves every batch of its bucket, its bits those of an eager launch") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  const Op op = engine.op("attention_decode");
  const CUstream stream = fixture.stream.handle();
  std::mt19937 generator(89);
  std::vector<std::pair<int, int>> sequences;
  for (int i = 0; i < 16; ++i) sequences.emplace_back(i, 0);
  const PagedBatch batch(sequences);
  const Problem problem = paged_problem(op, batch.count, "no");
  op.plan(problem, stream);
  const Graph graph(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                    [&] { op.launch(problem, batch.arguments(op), stream); });
  for (int round = 0; round < 50; ++round) {
    std::array<std::int32_t, 16> lengths{};
    for (std::int32_t& each : lengths)
      each = static_cast<std::int32_t>(generator() % (round % 2 == 0 ? PagedBatch::keys + 1 : 40));
    batch.lengths.copy_from_host(lengths.data(), batch.lengths.bytes());
    std::array<std::vector<std::vector<unsigned char>>, 2> found;
    for (const bool replayed : {false, true}) {
      batch.out.fill_bytes(0xff, stream);
      batch.lse.fill_bytes(0xff, stream);
      if (replayed)
        graph.replay();
      else
        op.launch(problem, batch.arguments(op), stream);
      cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting");
      for (std::int64_t i = 0; i < batch.count; ++i) found[replayed ? 1 : 0].push_back(batch.bits(i));
    }
    CHECK(found[0] == found[1]);
  }
}

TEST_CASE("attention_decode clamps and reports lengths past the bound") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  const Op op = engine.op("attention_decode");
  const CUstream stream = fixture.stream.handle();
  constexpr int keys = PagedBatch::keys;
  const PagedBatch batch({{1, 2000}, {2, keys + 1}});
  const cuda::Buffer bound(4);

  bound.copy_from_host(&keys, 4);
  Arguments arguments = batch.arguments(op);
  arguments.set(op.axis("keys"), reinterpret_cast<const std::int32_t*>(bound.pointer()));
  op.launch(paged_problem(op, 2, "no"), arguments, stream);
  cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting");
  const auto fault = engine.check(stream);
  REQUIRE(fault.has_value());
  CHECK(fault->op == "attention_decode");
  CHECK(fault->axis == "keys");
  CHECK(fault->length == keys + 1);
  CHECK(fault->bound == keys);
  const PagedBatch clamped({{1, 2000}, {2, keys}});
  op.launch(paged_problem(op, 2, "no"), clamped.arguments(op), stream);
  cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting");
  CHECK(batch.bits(1) == clamped.bits(1));
}

}  // namespace kiln::gpu_tests
