#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "jit/compile_pool.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

namespace {

manifest::Digest key_by_some_compiler(const Specialisation& specialisation) {
  return cubin_key(specialisation, "some compiler");
}

/// Returns a specialisation that the include scan refuses, so that no NVRTC is needed.
Specialisation refused(int number) {
  return specialise({{"k.cuh", "#include \"/etc/" + std::to_string(number) + "\"\n"}});
}

manifest::Digest number_key(int number) { return manifest::Hasher().field(number).finish(); }

}  // namespace

TEST_CASE("a key that is asked for many times is compiled once" * doctest::skip(!has_nvrtc())) {
  CompilePool pool(2);
  const Specialisation specialisation = scale_kernel();
  std::vector<std::shared_future<Cubin>> futures;
  for (int ask = 0; ask < 16; ++ask)
    futures.push_back(pool.submit(key_by_some_compiler(specialisation), specialisation));
  for (const auto& future : futures) CHECK(future.get().image == futures.front().get().image);
  CHECK(pool.submit(key_by_some_compiler(specialisation), specialisation).get().lowered_names.size() == 1);
  CHECK(pool.compiled() == 1);
}

TEST_CASE("different keys are compiled apart" * doctest::skip(!has_nvrtc())) {
  CompilePool pool;
  std::vector<std::shared_future<Cubin>> futures;
  for (int factor = 0; factor < 6; ++factor) {
    const Specialisation specialisation = scale_kernel(std::to_string(factor));
    futures.push_back(pool.submit(key_by_some_compiler(specialisation), specialisation));
  }
  for (std::size_t i = 0; i < futures.size(); ++i) {
    CHECK(holds(futures[i].get().lowered_names[0], "Li" + std::to_string(i) + "E"));
  }
  CHECK(pool.compiled() == 6);
}

TEST_CASE("a compile that fails throws from its future, and the pool goes on") {
  CompilePool pool(1);
  const auto first = pool.submit(number_key(1), refused(1));
  const auto second = pool.submit(number_key(2), refused(2));
  CHECK(thrown_by([&] { first.get(); }).kind() == ErrorKind::compile_failed);
  CHECK(holds(thrown_by([&] { second.get(); }).what(), "/etc/2"));
  CHECK(pool.compiled() == 2);
}

TEST_CASE("cancelling drops what has not begun, and the pool takes the same keys again") {
  CompilePool pool(1);
  std::vector<std::shared_future<Cubin>> futures;
  for (int number = 0; number < 64; ++number) futures.push_back(pool.submit(number_key(number), refused(number)));
  pool.cancel();
  int interrupted = 0;
  for (const auto& future : futures) {
    interrupted += thrown_by([&] { future.get(); }).kind() == ErrorKind::interrupted ? 1 : 0;
  }
  CHECK(interrupted + pool.compiled() == 64);
  const auto again = pool.submit(number_key(63), refused(63));
  CHECK(thrown_by([&] { again.get(); }).kind() == ErrorKind::compile_failed);
}

TEST_CASE("a pool that ends leaves no future without an answer") {
  std::vector<std::shared_future<Cubin>> futures;
  {
    CompilePool pool(2);
    for (int number = 0; number < 64; ++number) futures.push_back(pool.submit(number_key(number), refused(number)));
  }
  for (const auto& future : futures) {
    const ErrorKind kind = thrown_by([&] { future.get(); }).kind();
    CHECK((kind == ErrorKind::interrupted || kind == ErrorKind::compile_failed));
  }
}

TEST_CASE("compiles ahead of time and those that are waited for are each done once") {
  CompilePool pool(4);
  std::vector<std::shared_future<Cubin>> all;
  for (int number = 0; number < 500; ++number)
    for (const Urgency urgency : {Urgency::ahead, Urgency::now, Urgency::ahead})
      if (urgency == Urgency::ahead || number % 3 == 0)
        all.push_back(pool.submit(number_key(number), refused(number), urgency));
  for (const auto& each : all) CHECK(thrown_by([&] { each.get(); }).kind() == ErrorKind::compile_failed);
  CHECK(pool.compiled() == 500);
}

TEST_CASE("a pool of one worker compiles nothing ahead of time until it is asked for") {
  CompilePool pool(1);
  const auto ahead = pool.submit(number_key(1), refused(1), Urgency::ahead);
  CHECK(ahead.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  const auto now = pool.submit(number_key(1), refused(1));
  CHECK(holds(thrown_by([&] { now.get(); }).what(), "/etc/1"));
  CHECK(thrown_by([&] { ahead.get(); }).kind() == ErrorKind::compile_failed);
}

TEST_CASE("compiles that have ended are kept up to a number of bytes, those that were asked for last") {
  const auto long_failure = [](int number) {
    return specialise({{"k.cuh", "#include \"/etc/" + std::string(8'192, static_cast<char>('a' + number)) + "\"\n"}});
  };
  const auto compiles_of = [&](CompilePool& pool, std::initializer_list<int> numbers) {
    const std::int64_t before = pool.compiled();
    for (const int number : numbers) {
      const auto future = pool.submit(number_key(number), long_failure(number));
      CHECK(thrown_by([&] { future.get(); }).kind() == ErrorKind::compile_failed);
    }
    return pool.compiled() - before;
  };
  const auto bytes = static_cast<std::int64_t>(std::string(thrown_by([&] { compile(long_failure(1)); }).what()).size());
  CompilePool none(CompileSettings{.workers = 1, .kept_bytes = 0});
  CHECK(compiles_of(none, {1, 1, 2, 1}) == 4);
  CompilePool all(1);
  CHECK(compiles_of(all, {1, 2, 3, 1, 2, 3}) == 3);
  CompilePool two(CompileSettings{.workers = 1, .kept_bytes = bytes * 5 / 2});
  CHECK(compiles_of(two, {1, 2, 1, 2}) == 2);
  CHECK(compiles_of(two, {1, 3}) == 1);  // 2 leaves, since it was asked for longest ago
  CHECK(compiles_of(two, {3, 1, 2}) == 1);
}

TEST_CASE("machine code counts among the bytes that a pool keeps" * doctest::skip(!has_nvrtc())) {
  const Specialisation specialisation = scale_kernel();
  const auto bytes = static_cast<std::int64_t>(compile(specialisation).image.size());
  for (const bool fits : {false, true}) {
    CompilePool pool(CompileSettings{.workers = 1, .kept_bytes = fits ? bytes + 4'096 : bytes});
    for (int ask = 0; ask < 2; ++ask)
      CHECK(pool.submit(key_by_some_compiler(specialisation), specialisation).get().image.size() > 0);
    CHECK(pool.compiled() == (fits ? 1 : 2));
  }
}
