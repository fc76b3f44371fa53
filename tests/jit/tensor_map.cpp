#include "jit/tensor_map.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "cuda/device.hpp"
#include "fake_cuda/module/tensor_map.hpp"
#include "jit/launch_form.hpp"
#include "kiln/error.hpp"

using kiln::jit::TensorMapCache;
using kiln::jit::TensorMapForm;

namespace {

using Frame = std::array<std::int64_t, 14>;

/// Returns the form of a descriptor that depends on the first slots of a frame.
TensorMapForm form_of(TensorMapForm::Key key, std::uint8_t index = 0) {
  TensorMapForm form;
  form.key = key;
  form.index = index;
  std::iota(form.slots.begin(), form.slots.end(), std::uint8_t{0});
  return form;
}
constexpr TensorMapForm::Key narrow = TensorMapForm::Key::narrow;

const void* address_of(std::uint64_t number) { return reinterpret_cast<const void*>(number * 256); }

/// Returns a descriptor whose words hold the number and their index.
CUtensorMap map_of(std::uint64_t number) {
  CUtensorMap map;
  for (std::size_t i = 0; i < std::size(map.opaque); ++i) map.opaque[i] = number << 8 | i;
  return map;
}

bool is(const CUtensorMap* map, std::uint64_t number) {
  const CUtensorMap expected = map_of(number);
  return map != nullptr && std::memcmp(map->opaque, expected.opaque, sizeof expected.opaque) == 0;
}

const CUtensorMap* find(const TensorMapCache& cache, const TensorMapForm& form, std::uint64_t number,
                        const Frame& frame = {}) {
  return TensorMapCache::find(cache.own(), form, address_of(number), frame);
}

const CUtensorMap* keep(TensorMapCache& cache, const TensorMapForm& form, std::uint64_t number,
                        const Frame& frame = {}) {
  return cache.keep(form, address_of(number), frame, map_of(number));
}

/// Returns how many of the numbers 1 to `last` are kept.
int kept(const TensorMapCache& cache, const TensorMapForm& form, std::uint64_t last) {
  int count = 0;
  for (std::uint64_t number = 1; number <= last; ++number)
    if (const CUtensorMap* map = find(cache, form, number)) {
      CHECK(is(map, number));
      ++count;
    }
  return count;
}

}  // namespace

TEST_CASE("a descriptor is found by all of its key and by nothing else") {
  for (const TensorMapForm::Key key : {narrow, TensorMapForm::Key::wide, TensorMapForm::Key::widest}) {
    const auto slots = static_cast<std::size_t>(key);
    CAPTURE(slots);
    TensorMapCache cache(1);
    const TensorMapForm form = form_of(key);
    CHECK(find(cache, form, 7) == nullptr);
    const Frame frame = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    CHECK(is(keep(cache, form, 7, frame), 7));
    CHECK(is(find(cache, form, 7, frame), 7));
    CHECK(find(cache, form, 8, frame) == nullptr);
    CHECK(find(cache, form, 0) == nullptr);
    for (std::size_t slot = 0; slot < frame.size(); ++slot) {
      Frame other = frame;
      other[slot] += 1;
      CHECK(is(find(cache, form, 7, other), 7) == (slot >= slots));
    }
  }
}

TEST_CASE("a descriptor is found for no address that none was kept for, whatever the sets hold") {
  TensorMapCache cache(1);
  const TensorMapForm form = form_of(narrow);
  CHECK(keep(cache, form, 1) != nullptr);  // the sets are there now
  for (std::uint64_t number = 2; number < 1'000; ++number) CHECK(find(cache, form, number) == nullptr);
  CHECK(find(cache, form, 0) == nullptr);
}

TEST_CASE("many descriptors leave a bounded number, the last among them") {
  TensorMapCache cache(1);
  const TensorMapForm form = form_of(narrow);
  for (std::uint64_t number = 1; number <= 10'000; ++number) {
    REQUIRE(is(keep(cache, form, number), number));
    REQUIRE(is(find(cache, form, number), number));
    if (number > 1 && number <= 16) CHECK(kept(cache, form, number) >= 2);
  }
  CHECK(kept(cache, form, 10'000) <= 64);
  CHECK(kept(cache, form, 10'000) >= 48);
}

TEST_CASE("what one descriptor of a pass is replaced by leaves the others where they lie") {
  TensorMapCache cache(2);
  const TensorMapForm first = form_of(narrow, 0), second = form_of(narrow, 1);
  const CUtensorMap* const lies = keep(cache, first, 3);
  for (std::uint64_t number = 1; number <= 1'000; ++number) CHECK(is(keep(cache, second, number), number));
  CHECK(find(cache, first, 3) == lies);
  CHECK(is(lies, 3));
}

TEST_CASE("a descriptor that depends on more than a key holds is not kept") {
  TensorMapCache cache(1);
  const TensorMapForm form = form_of(TensorMapForm::Key::none);
  CHECK(keep(cache, form, 1) == nullptr);
  CHECK(keep(cache, form_of(narrow), 1) != nullptr);
  CHECK(find(cache, form, 1) == nullptr);
}

TEST_CASE("a descriptor shows the view that the manifest gives, and refuses what no descriptor can have by name") {
  const kiln::cuda::Context context(0);
  const kiln::cuda::Context::Scope scope(context);
  kiln::manifest::Symbols symbols;
  for (const char* name : {"rows", "cols", "stride"}) symbols.add(name);
  const auto sizes = [&](std::initializer_list<const char*> texts) {
    std::vector<kiln::manifest::Expression> result;
    for (const char* text : texts) result.push_back(kiln::manifest::Expression::parse(text, symbols));
    return result;
  };
  kiln::jit::LoadedArgument argument;
  argument.tensor = "x";
  argument.dtype = kiln::manifest::DType::bf16;
  argument.tensor_shape = sizes({"rows", "cols"});
  argument.tensor_strides = sizes({"stride", "1"});
  argument.shape = sizes({"rows", "2", "4", "2", "cols / 16"});
  argument.strides = sizes({"stride", "cols / 2", "cols / 8", "cols / 16", "1"});
  argument.box = sizes({"1", "1", "4", "2", "8"});
  std::vector<std::int64_t> frame = {6, 256, 320};
  std::uint64_t address = 4096;
  CUtensorMap map;
  const auto make = [&] {
    kiln::jit::make_tensor_map(argument, reinterpret_cast<const void*>(address), frame, "kernel", map);
    return std::string();
  };
  const auto refusal = [&] {
    try {
      return make();
    } catch (const kiln::Error& error) {
      CHECK(error.kind() == kiln::ErrorKind::bad_input);
      return std::string(error.what());
    }
  };
  make();
  fake_cuda::TensorMap made;
  std::memcpy(&made, &map, sizeof made);
  CHECK(made.rank == 5);
  CHECK(std::vector<std::uint64_t>(made.shape, made.shape + 5) == std::vector<std::uint64_t>{16, 2, 4, 2, 6});
  CHECK(std::vector<std::uint64_t>(made.stride_bytes, made.stride_bytes + 4) ==
        std::vector<std::uint64_t>{32, 64, 256, 640});
  CHECK(std::vector<std::uint32_t>(made.box, made.box + 5) == std::vector<std::uint32_t>{8, 2, 4, 1, 1});
  CHECK(made.promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_128B);  // some rows begin within a line of 128 bytes
  frame = {6, 1024, 1088};
  make();
  std::memcpy(&made, &map, sizeof made);
  CHECK(made.promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  frame = {6, 256, 320};

  argument.shape[0] = sizes({"rows + 1"})[0];
  CHECK(refusal() ==
        "kernel: the TMA descriptor of 'x': its view reaches 2176 elements at these sizes, and 'x' has 1856; make "
        "'shape' or 'strides' smaller, or say unbounded = true for a view whose addresses wrap around");
  argument.tensor_shape.clear();  // unbounded
  argument.tensor_strides.clear();
  CHECK(refusal().empty());
  argument.shape[0] = sizes({"4294967297"})[0];
  CHECK(refusal().find(
            "a TMA dimension = 4294967297 is 4294967297 at these sizes; it must lie between 1 and 4294967296") !=
        std::string::npos);
  argument.shape[0] = sizes({"rows"})[0];
  frame[2] = 321;
  CHECK(refusal() ==
        "kernel: the TMA descriptor of 'x': the stride 'stride' is 642 bytes at these sizes, not a multiple of 16");
  frame[2] = 320;
  address = 4104;
  CHECK(refusal() == "kernel: the TMA descriptor of 'x': the address 0x1008 is not a multiple of 16 bytes");
  address = 4096;
  argument.box[4] = sizes({"4"})[0];
  CHECK(refusal() == "kernel: the TMA descriptor of 'x': the box's rows have 8 bytes, not a multiple of 16");
  argument.box[4] = sizes({"32"})[0];
  argument.swizzle = 32;
  CHECK(refusal() == "kernel: the TMA descriptor of 'x': the box's rows have 64 bytes, more than the swizzle's 32");
  argument.box[4] = sizes({"16"})[0];
  CHECK(refusal().empty());
  argument.strides[4] = sizes({"2"})[0];
  CHECK(refusal() == "kernel: the TMA descriptor of 'x': its innermost stride is 2, and must be 1");
}

TEST_CASE("each thread finds its own descriptors, in place and whole, while others keep theirs") {
  TensorMapCache cache(1);
  const TensorMapForm form = form_of(narrow);
  constexpr std::uint64_t numbers = 200;  // far more than the sets hold
  std::mutex mutex;
  int wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread)
      threads.emplace_back([&, thread] {
        int wrong_here = 0;
        for (std::uint64_t turn = 0; turn < 20'000; ++turn) {
          const std::uint64_t number = 1 + (turn * 7 + thread * 3) % numbers;
          const CUtensorMap* map = find(cache, form, number);
          if (map == nullptr) map = keep(cache, form, number);
          if (!is(map, number)) ++wrong_here;
        }
        const std::lock_guard lock(mutex);
        wrong += wrong_here;
      });
  }
  CHECK(wrong == 0);
}

TEST_CASE(
    "threads that share a number keep no descriptors, and those that follow one that ended are served all the same") {
  TensorMapCache cache(1);
  const TensorMapForm form = form_of(narrow);
  std::mutex hold;
  std::vector<const CUtensorMap*> of_shared;
  std::optional<std::unique_lock<std::mutex>> held(std::in_place, hold);
  std::vector<std::jthread> threads;
  std::mutex mutex;
  for (unsigned i = 0; i < kiln::jit::thread_numbers + 8; ++i)
    threads.emplace_back([&] {
      const CUtensorMap* const map = keep(cache, form, 5);
      if (kiln::jit::thread_number() == kiln::jit::shared_thread_number) {
        const std::lock_guard lock(mutex);
        of_shared.push_back(map);
      }
      const std::lock_guard lock(hold);  // until all have begun
    });
  while (true) {
    const std::lock_guard lock(mutex);
    if (of_shared.size() >= 8) break;
    std::this_thread::yield();
  }
  held.reset();
  threads.clear();
  for (const CUtensorMap* map : of_shared) CHECK(map == nullptr);
  std::jthread([&] { CHECK(is(keep(cache, form, 9), 9)); });
}
