// gemm by wgmma of 8-bit floats.
#include <doctest/doctest.h>

#include "wgmma_product.hpp"

namespace {

using namespace wgmma_test;

TEST_CASE("gemm_wgmma multiplies 8-bit floats, each 128 of k summed afresh and scaled") {
  const Problem tall = {.m = 130, .n = 140, .k = 400, .seed = 1}, flat = {.m = 13, .n = 140, .k = 400, .seed = 2};
  CHECK(error_in_8_bits<Scaling::none, Shape{128, 64, 3}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::row, Shape{128, 64, 3}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{128, 64, 3}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{256, 128, 2}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 64, .tile_n = 256, .stages = 2}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::row, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(flat) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 16, .tile_n = 128, .stages = 3, .cluster_k = 2, .swap = true}>(
            flat) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .cluster_k = 3, .swap = true}>(
            flat) == 0);
}

template <Scaling scaling, Shape shape>
double largest_error_over_stages() {
  double largest = 0;
  for (const std::int64_t k : {100, 256, 300, 512, 600})  // one to five stages
    largest = std::max(largest, error_in_8_bits<scaling, shape>(
                                    {.m = 70, .n = 140, .k = k, .clusters = 1, .seed = static_cast<std::uint32_t>(k)}));
  return largest;
}

TEST_CASE("gemm_wgmma adds a sum of 8-bit products while the next ones are under way, be the stages even or odd") {
  CHECK(largest_error_over_stages<Scaling::block, Shape{64, 64, 3}>() == 0);  // a product for a stage
  CHECK(largest_error_over_stages<Scaling::block, Shape{128, 128, 2}>() == 0);
  CHECK(largest_error_over_stages<Scaling::row, Shape{128, 160, 2}>() == 0);    // two, by halves
  CHECK(largest_error_over_stages<Scaling::row, Shape{256, 64, 2}>() == 0);     // two, of 64 rows
  CHECK(largest_error_over_stages<Scaling::block, Shape{192, 128, 2}>() == 0);  // no room for a second
  CHECK(largest_error_over_stages<Scaling::none, Shape{256, 128, 2}>() == 0);
  // A consumer without rows.
  CHECK(error_in_8_bits<Scaling::row, Shape{128, 64, 3}>({.m = 60, .n = 70, .k = 300, .seed = 1}) == 0);
}

}  // namespace
