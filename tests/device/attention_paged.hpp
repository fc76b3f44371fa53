// Problems of attention_paged: those of packed attention whose keys and values lie in pages, among NaN.
#pragma once

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
#include "emulator/tensor_map.hpp"
// What kernels include comes after what they take for built in.
#include "attention.hpp"
#include "attention_paged/mma.cuh"
#include "attention_paged/reference.cuh"
#include "attention_paged/wgmma.cuh"
#include "attention_paged/wgmma_e4m3.cuh"

namespace test {

/// Pages lie in reverse, and between them pages of NaN. Keys and values that no query sees are NaN. Entries of pages without a key that some
/// query sees are no pages. Of caches in e4m3 each head has scales of its own.
template <typename Form, typename Cache = typename Form::T>
struct PagedAttention {
  using T = typename Form::T;
  using PackedForm = kiln::attention::Form<T, Form::head_dim, Form::value_dim, Layout::packed, Form::mask,
                                           Form::soft_cap, Form::sinks>;
  using Heads = kiln::attention::HeadRows<const Cache>;
  static constexpr bool scaled = sizeof(Cache) == 1;  // by a head's own scales

  PagedAttention(AttentionProblem problem, int keys_of_page)
      : of(std::move(problem)),
        page_size(keys_of_page),
        k(pool(of.k)),
        v(pool(of.v)),
        table(static_cast<std::size_t>(of.count() * stride()), 1 << 30) {
    for (int sequence = 0; sequence < of.count(); ++sequence) {
      const auto [queries, keys] = of.problem.lengths[static_cast<std::size_t>(sequence)];
      lengths.push_back(keys);
      const int first = queries == 0                 ? keys
                        : Form::mask == Mask::window ? std::max(keys - queries - of.problem.left, 0)
                                                     : 0;  // that a query sees
      for (int key = first; key < keys; ++key) {
        const int page = pages() - 2 - 2 * (sequence * entries() + key / page_size);
        table[static_cast<std::size_t>(sequence * stride() + key / page_size)] = page;
        const std::int64_t row = std::int64_t{page} * page_size + key % page_size, from = of.row(false, sequence, key);
        for (std::int64_t i = 0; i < k.columns(); ++i) k.at(row, i) = in_cache(of.k.at(from, i));
        for (std::int64_t i = 0; i < v.columns(); ++i) v.at(row, i) = in_cache(of.v.at(from, i));
      }
    }
    for (int head = 0; scaled && head < of.problem.key_heads; ++head) {
      of.k_scales.at(0, head) = 0.5f + 0.5f * static_cast<float>(head);
      of.v_scales.at(0, head) = 4.0f / (1.0f + 3.0f * static_cast<float>(head));
    }
  }

  Attention<PackedForm> of;  // has what is right, and takes the results
  int page_size;
  Matrix<Cache> k, v;
  std::vector<int> table, lengths;

  [[nodiscard]] int most_keys() const {
    return std::ranges::max_element(of.problem.lengths, {}, &std::pair<int, int>::second)->second;
  }
  [[nodiscard]] int entries() const { return (most_keys() + page_size - 1) / page_size; }  // of a sequence
  [[nodiscard]] int stride() const { return entries() + 1; }
  [[nodiscard]] int pages() const { return 2 * of.count() * entries() + 1; }
  [[nodiscard]] Matrix<Cache> pool(const Matrix<T>& like) const {
    const std::int64_t dim =
        like.columns() / of.problem.key_heads;  // whole heads lie between pages, as maps of several need
    return {std::int64_t{pages()} * page_size, like.columns(),
            like.columns() + (of.problem.key_heads == 1 ? std::int64_t{16 / sizeof(Cache)} : dim)};
  }
  [[nodiscard]] Heads rows(Matrix<Cache>& from, int dim) const {
    return {from.data(), page_size * from.stride(), from.stride(), dim};
  }
  [[nodiscard]] kiln::view<const int, 1> block_table() const { return {table.data(), {stride()}}; }

  template <int tile_n = 32, int warps = 2>
  void launch_mma(std::uint32_t seed, int longest) {
    using kiln::attention::RowTile;
    const AttentionProblem& problem = of.problem;
    const auto row_blocks = static_cast<unsigned>((longest + 16 * warps - 1) / (16 * warps));
    const unsigned shared = RowTile<Form::head_dim, 16 * warps>::bytes +
                            2 * (RowTile<Form::head_dim, tile_n>::bytes + RowTile<Form::value_dim, tile_n>::bytes);
    emulator::launch({.grid = {row_blocks * static_cast<unsigned>(problem.heads * of.count())},
                      .block = {warps * 32},
                      .shared_bytes = shared,
                      .seed = seed},
                     [&] {
                       attention_paged_mma<Form, tile_n, warps, Cache>(
                           of.q_rows(), rows(k, Form::head_dim), rows(v, Form::value_dim), of.out_rows(), of.lse_sums(),
                           of.told_query_offsets.data(), lengths.data(), block_table(), &of.reports[0], &of.reports[1],
                           of.count(), of.rows(true), most_keys(), longest, problem.heads, problem.key_heads, page_size,
                           pages(), problem.scale, problem.cap, problem.left, of.sinks.data(),
                           scaled ? of.k_scales.data() : nullptr, scaled ? of.v_scales.data() : nullptr);
                     });
  }

  void launch_reference() {
    const AttentionProblem& problem = of.problem;
    Matrix<float> out(of.out.rows(), of.out.columns(), of.out.stride());
    emulator::launch({.grid = {static_cast<unsigned>(of.rows(true)), static_cast<unsigned>(problem.heads)},
                      .block = {256},
                      .seed = 1},
                     [&] {
                       attention_paged_reference<Form, Cache>(
                           of.q_rows(), rows(k, Form::head_dim), rows(v, Form::value_dim),
                           {out.data(), 0, out.stride(), Form::value_dim}, of.lse_sums(), of.sinks.data(),
                           of.told_query_offsets.data(), lengths.data(), block_table(), of.count(), of.rows(true),
                           most_keys(), problem.heads, problem.key_heads, page_size, pages(), problem.scale,
                           problem.cap, problem.left, 1, scaled ? of.k_scales.data() : nullptr,
                           scaled ? of.v_scales.data() : nullptr);
                     });
    for (std::int64_t row = 0; row < out.rows(); ++row)
      for (std::int64_t column = 0; column < out.columns(); ++column)
        of.out.at(row, column) = kiln::from_float<T>(out.at(row, column));
  }

  template <int tile_m = 128, int tile_n = 64, int stages = 2, bool pingpong = true, bool holds = false,
            bool late = true, int heads = 1, bool trims = false>
  bool launch_wgmma(std::uint32_t seed, int longest, unsigned blocks = 2) {
    using Tiles = kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, 2, false, holds, late, 1,
                                               heads, trims>;
    return launch_tiles<Tiles>(seed, longest, blocks, [](auto&&... arguments) {
      attention_paged_wgmma<Form, tile_m, tile_n, stages, pingpong, holds, late, heads, trims>(arguments...);
    });
  }

  template <int tile_m = 128, int tile_n = 64, int stages = 2, int staged = 1, bool pingpong = true, bool holds = false,
            bool late = true, int heads = 1, bool trims = false>
  bool launch_wgmma_e4m3(std::uint32_t seed, int longest, unsigned blocks = 2) {
    using Tiles =
        kiln::attention::PagedBytesTiling<Form, tile_m, tile_n, stages, staged, pingpong, holds, late, heads, trims>;
    return launch_tiles<Tiles>(seed, longest, blocks, [this](auto&&... arguments) {
      attention_paged_wgmma_e4m3<Form, tile_m, tile_n, stages, staged, pingpong, holds, late, heads, trims>(
          arguments..., of.k_scales.data(), of.v_scales.data());
    });
  }

 private:
  static Cache in_cache(T value) {  // small multiples of 1 / 8, which each type has
    if constexpr (scaled) {
      return kiln::from_float<Cache>(static_cast<float>(number_of(value)));
    } else {
      return value;
    }
  }
  static std::uint32_t word(std::int64_t value) { return static_cast<std::uint32_t>(value); }
  template <typename Element>
  static std::uint64_t bytes(std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * sizeof(Element);
  }
  /// Returns whether the counters are left as they have to be.
  template <typename Tiles, typename Kernel>
  bool launch_tiles(std::uint32_t seed, int longest, unsigned blocks, Kernel kernel) {
    const AttentionProblem& problem = of.problem;
    const auto q = map_of_queries<typename Tiles::Query>(Tiles::queries, Tiles::heads);
    int box = 128;
    while (Tiles::tile_n % box != 0 || page_size % box != 0) box /= 2;
    const auto keys = map_of_pages<typename Tiles::Key>(k, box), values = map_of_pages<typename Tiles::Value>(v, box);
    unsigned counters[2] = {};
    emulator::launch({.grid = {blocks},
                      .block = {Tiles::threads},
                      .shared_bytes = kiln::attention::SharedLayout<Tiles>::bytes,
                      .seed = seed},
                     [&] {
                       kernel(q, keys, values, of.out_rows(), of.lse_sums(), of.told_query_offsets.data(),
                              lengths.data(), block_table(), &of.reports[0], &of.reports[1], longest, counters,
                              of.count(), of.rows(true), most_keys(), problem.heads, problem.key_heads, page_size,
                              pages(), box, heads_of(k, Form::head_dim), heads_of(v, Form::value_dim), problem.scale,
                              problem.cap, problem.left, of.sinks.data(), problem.heads);
                     });
    return counters[0] == 0 && counters[1] == 0;
  }
  /// From a page to the next, along the first dimension of its map.
  [[nodiscard]] int heads_of(const Matrix<Cache>& of_pool, int dim) const {
    return of.problem.key_heads == 1 ? 1 : static_cast<int>(page_size * of_pool.stride() / dim);
  }
  template <typename Tile>
  kiln::tensor_map map_of_queries(int box_rows, int box_heads) {
    const int heads = of.problem.heads;
    return emulator::tensor_map<kiln::tensor_map>(
        of.q.data(), sizeof(T), {Form::head_dim, word(heads), word(of.rows(true)), 1},
        {bytes<T>(Form::head_dim), bytes<T>(of.q.stride()), bytes<T>(of.q.stride())},
        {Tile::box_columns, word(box_heads), word(box_rows), 1}, Tile::swizzle);
  }
  /// As kiln::attention::PagedMaps says.
  template <typename Tile>
  kiln::tensor_map map_of_pages(Matrix<Cache>& of_pool, int box_keys) {
    const std::int64_t dim = of_pool.columns() / of.problem.key_heads;
    const bool in_groups = dim % Tile::box_columns == 0;
    const std::int64_t boxes = in_groups ? dim / Tile::box_columns : 1,
                       heads = (pages() - 1) * heads_of(of_pool, static_cast<int>(dim)) + of.problem.key_heads;
    return emulator::tensor_map<kiln::tensor_map>(
        of_pool.data(), sizeof(Cache), {word(dim / boxes), 8, word(boxes), word(page_size / 8), word(heads)},
        {bytes<Cache>(of_pool.stride()), bytes<Cache>(Tile::box_columns), bytes<Cache>(8 * of_pool.stride()),
         bytes<Cache>(of.problem.key_heads == 1 ? page_size * of_pool.stride() : dim)},
        {Tile::box_columns, 8, word(boxes), word(box_keys / 8), 1}, scaled ? 0 : Tile::swizzle);
  }
};

template <Mask mask, int head_dim, int value_dim = head_dim, SoftCap soft_cap = SoftCap::none,
          Sinks sinks = Sinks::none, typename T = kiln::bf16>
using PagedForm = kiln::attention::Form<T, head_dim, value_dim, Layout::paged, mask, soft_cap, sinks>;

template <typename Form, int tile_n = 32, int warps = 2, typename Cache = typename Form::T>
double mma_error(const AttentionProblem& problem, int page_size, std::uint32_t seed = 1) {
  PagedAttention<Form, Cache> of(problem, page_size);
  of.template launch_mma<tile_n, warps>(seed, of.of.longest());
  return of.of.error();
}

/// Chunks after a prefix, whole prompts, single queries, and sequences without queries or keys.
inline const AttentionProblem chunks = {
    .lengths = {{70, 200}, {0, 40}, {1, 130}, {33, 33}, {20, 0}, {129, 300}}, .heads = 4, .key_heads = 2};

}  // namespace test
