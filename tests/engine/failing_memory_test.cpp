// Memory that fails once, on a launching thread or on those of the background: the engine serves on, and forgets no work.
#include <atomic>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "engine/ahead_engine.hpp"
#include "engine/miss_path.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;
using namespace kiln::engine::testing;

namespace {

std::atomic<long> until_failure = 0;  // allocations; 0: none fails
std::atomic<bool> fails_here = false;
thread_local bool is_here = false;

/// nlohmann's destructor of an array or an object, which is noexcept, allocates one value for each element: bad_alloc would
/// end the process there. So memory of such sizes never fails.
bool may_fail(std::size_t bytes) { return bytes % sizeof(nlohmann::json) != 0; }

void* allocated(std::size_t bytes) {
  if (until_failure.load(std::memory_order_relaxed) > 0 && is_here == fails_here && may_fail(bytes) &&
      --until_failure == 0)
    throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

/// While it lives, one `operator new` fails: number `at` from now on, of this thread or of all other threads.
class FailingNew {
 public:
  enum class Of { this_thread, other_threads };
  FailingNew(Of of, long at) {
    is_here = true;
    fails_here = of == Of::this_thread;
    until_failure = at;
  }
  ~FailingNew() {
    until_failure = 0;
    is_here = false;
  }
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  [[nodiscard]] static bool has_failed() { return until_failure <= 0; }
};

/// Launches 256 rows, of which only one config's machine code is there, while an allocation fails. Returns whether one
/// did.
bool launch_with_failure(FailingNew::Of of, long at) {
  CAPTURE(at);
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  engine.put(sized(64, 128), {tiled(loaded)});
  engine.put(sized(256, 128), {tiled(loaded, "rows=129..192 cols=65..128"), tiled(last, "rows=193..256 cols=65..128")});
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  REQUIRE(wait(engine));
  bool has_failed = false;
  {
    const FailingNew failing(of, at);
    try {
      engine.launch(sized(256, 128));
    } catch (const std::exception&) {  // it is told of
    }
    if (of == FailingNew::Of::other_threads) REQUIRE(wait(engine));
    has_failed = FailingNew::has_failed();
  }
  CHECK_NOTHROW(engine.launch(sized(256, 128)));
  CHECK_NOTHROW(engine.launch(sized(150, 128)));
  catch_up(engine.engine);
  REQUIRE(wait(engine));
  CHECK(is_hit(engine.launch(sized(256, 128))));
  CHECK(is_hit(engine.launch(sized(150, 128))));
  return has_failed;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocated(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST_CASE("memory that fails once leaves an engine that serves, and whose background makes what is missing" *
          doctest::skip(no_plans())) {
  for (const auto of : {FailingNew::Of::this_thread, FailingNew::Of::other_threads}) {
    CAPTURE(static_cast<int>(of));
    long failures = 0;
    for (long at = 1; at < 100'000; at += 1 + at / 2, ++failures)
      if (!launch_with_failure(of, at)) break;
    CHECK(failures > 10);
  }
}
