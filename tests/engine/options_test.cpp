// What an engine's options make it do: its log, its compiles, its workspaces' memory, launches that must not wait.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cuda/nvrtc_api.hpp"
#include "engine/miss_path.hpp"
#include "engine/scale_engine.hpp"
#include "store/support.hpp"

using namespace kiln;
using namespace kiln::engine::testing;

namespace {

/// Events of an engine's log, as text: "fallback scale rows=4 ...: tiled ...".
struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;

  void add(const LogEvent& event) {
    static constexpr const char* kinds[] = {"warning", "tune", "compile", "fallback", "swap"};
    const std::lock_guard lock(mutex);
    lines.push_back(
        fmt::format("{} {} {}: {}", kinds[static_cast<std::size_t>(event.kind)], event.op, event.bucket, event.text));
  }
  [[nodiscard]] std::int64_t count(const std::string& beginning) {
    const std::lock_guard lock(mutex);
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& line) { return line.starts_with(beginning); });
  }
};

/// The process's threads, as folders of /proc.
std::set<std::string> threads() {
  std::set<std::string> all;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) all.insert(each.path());
  return all;
}

/// Whether a thread blocks all of these. One that has ended does.
bool blocks(const std::string& thread, std::initializer_list<int> signals) {
  std::ifstream status(thread + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigBlk:")) {
      const std::uint64_t mask = std::stoull(line.substr(7), nullptr, 16);
      return std::all_of(signals.begin(), signals.end(), [&](int each) { return (mask >> (each - 1) & 1U) != 0; });
    }
  return true;
}

Options small_engine(MissPolicy on_miss) {
  Options chosen;
  chosen.overlay = "";
  chosen.on_miss = on_miss;
  chosen.template_paths = {std::filesystem::path(KILN_SOURCE_DIR) / "tests/e2e/ops"};
  chosen.isolation = Isolation::in_process;
  chosen.compile_workers = 1;
  chosen.search.trials = 1;
  return chosen;
}

struct OpenEngine {
  fake_cuda_tests::Fixture machine;
  Engine engine;
  Op scale = engine.op("scale");
  Problem problem = scale.problem({{"rows", 3}, {"cols", 64}, {"dtype", "f32"}});
  Arguments arguments = scale.arguments({{"factor", 2.0}});

  explicit OpenEngine(const Options& options) : engine(options) {
    for (const char* name : {"x", "y"})
      arguments.set(scale.tensor(name), reinterpret_cast<const void*>(machine.allocate(768)));
  }
  Origin launch() const { return scale.launch(problem, arguments, machine.stream); }
};

}  // namespace

TEST_CASE("an enumerator that an option does not have is refused by the option's name") {
  const auto refusal = [](auto change) {
    Options options;
    change(options);
    std::string said;
    try {
      const Engine engine(options);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::bad_input);
      said = error.what();
    }
    return said;
  };
  CHECK(refusal([](Options& each) { each.on_miss = static_cast<MissPolicy>(77); }) ==
        "Options::on_miss is 77, expected 0 to 3");
  CHECK(refusal([](Options& each) { each.loading = static_cast<Loading>(77); }) ==
        "Options::loading is 77, expected 0 to 1");
  CHECK(refusal([](Options& each) { each.regime = static_cast<Regime>(77); }) ==
        "Options::regime is 77, expected 0 to 1");
  CHECK(refusal([](Options& each) { each.compile = static_cast<Compile>(77); }) ==
        "Options::compile is 77, expected 0 to 1");
  CHECK(refusal([](Options& each) { each.isolation = static_cast<Isolation>(77); }) ==
        "Options::isolation is 77, expected 0 to 2");
  CHECK(refusal([](Options& each) { each.search.strategy = static_cast<Strategy>(77); }) ==
        "Options::search.strategy is 77, expected 0 to 1");
  CHECK(refusal([](Options& each) { each.trust = static_cast<TrustPolicy>(77); }) ==
        "Options::trust is 77, expected 0 to 1");
}

TEST_CASE("a launch that must not wait is made once the bucket is ready, and begins nothing before" *
          doctest::skip(no_plans())) {
  const OpenEngine with(small_engine(MissPolicy::nearest));
  const auto attempt = [&] { return with.scale.try_launch(with.problem, with.arguments, with.machine.stream); };
  CHECK_FALSE(attempt());
  CHECK(with.engine.stats().compiles == 0);
  CHECK(with.engine.stats().launches() == 0);
  (void)with.scale.plan(with.problem, with.machine.stream);
  CHECK(attempt() == Origin::default_);
  CHECK(with.engine.stats().launches() == 1);
  Problem none = with.problem;
  none[with.scale.axis("rows")] = 0;
  CHECK(with.scale.try_launch(none, with.arguments, with.machine.stream) == Origin::hot);
  Arguments missing = with.arguments;
  missing.set(with.scale.tensor("x"), nullptr);
  CHECK(error_of([&] { (void)with.scale.try_launch(with.problem, missing, with.machine.stream); }).kind() ==
        ErrorKind::bad_input);
}

TEST_CASE("a launch that must not wait asks the driver nothing of its stream where nothing has to be made" *
          doctest::skip(no_plans())) {
  const OpenEngine with(small_engine(MissPolicy::nearest));
  const auto attempt = [&] { return with.scale.try_launch(with.problem, with.arguments, with.machine.stream); };
  (void)with.scale.plan(with.problem, with.machine.stream);
  REQUIRE(attempt().has_value());
  static constexpr const char* asked[] = {"calls cuCtxPushCurrent_v2", "calls cuStreamGetCtx",
                                          "calls cuStreamIsCapturing", "calls cuStreamGetCaptureInfo_v2",
                                          "calls cuStreamGetId"};
  std::vector<std::int64_t> before, after;
  for (const char* each : asked) before.push_back(fake_cuda_tests::query(each));
  const std::int64_t launches = fake_cuda_tests::query("calls cuLaunchKernelEx");
  REQUIRE(attempt().has_value());
  for (const char* each : asked) after.push_back(fake_cuda_tests::query(each));
  CHECK(after == before);
  CHECK(fake_cuda_tests::query("calls cuLaunchKernelEx") == launches + 1);
}

TEST_CASE("a launch that must not wait is not made by an answer that is not loaded, nor without its workspace" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  const Problem bucket = sized(64, 128);
  engine.put(bucket, {plain()});
  const cuda::Stream other;
  const auto attempt = [&](CUstream stream) { return plan::try_launch(engine.op, bucket, engine.arguments(), stream); };
  engine::make_ready(engine.op, bucket, engine.machine.stream);
  CHECK(attempt(engine.machine.stream).has_value());
  CHECK_FALSE(attempt(other.handle()));
  const Error ended = error_of([&] { (void)attempt(reinterpret_cast<CUstream>(std::uintptr_t{4096})); });
  CHECK(ended.kind() == ErrorKind::bad_input);  // and not a wait that helps nothing
  engine.launch(bucket);
  const Problem tiled_bucket = sized(32, 128);
  engine.put(tiled_bucket, {tiled("threads=64 vector=4")});
  engine::make_ready(engine.op, tiled_bucket, engine.machine.stream);
  // Its vectors are of 16 bytes, so that the default's turn comes.
  CHECK_FALSE(plan::try_launch(engine.op, tiled_bucket, engine.arguments(sizeof(float)), engine.machine.stream));
  plan::launch(engine.op, tiled_bucket, engine.arguments(sizeof(float)), engine.machine.stream);
  CHECK(plan::try_launch(engine.op, tiled_bucket, engine.arguments(sizeof(float)), engine.machine.stream).has_value());
}

TEST_CASE("on_log receives fallbacks, compiles and warnings" * doctest::skip(no_plans())) {
  Log log;
  Options options = small_engine(MissPolicy::nearest);
  options.bases = {"/nowhere/shipped.kiln"};
  options.on_log = [&](const LogEvent& event) { log.add(event); };
  const OpenEngine with(options);
  CHECK(log.count("warning  : a base file is left out: ") == 1);
  with.launch();
  with.launch();
  CHECK(log.count("fallback scale rows=4 cols=64 dtype=f32: tiled threads=64 vector=1 serves, from default: ") == 1);
  CHECK(log.count("compile scale ") >= 1);
  CHECK(with.engine.warnings().size() >= 1);
}

TEST_CASE("on_log receives tunes, and what it throws is dropped" * doctest::skip(no_plans())) {
  Log log;
  Options options = small_engine(MissPolicy::tune);
  options.on_log = [&](const LogEvent& event) {
    log.add(event);
    throw 7;
  };
  const OpenEngine with(options);
  CHECK(with.launch() == Origin::overlay);
  CHECK(log.count("tune scale rows=4 cols=64 dtype=f32: its tune begins") == 1);
  CHECK(log.count("tune scale rows=4 cols=64 dtype=f32: tuned in ") == 1);
}

TEST_CASE("on_log receives what befalls the files later, as warnings do" * doctest::skip(no_plans())) {
  Log log;
  const store::Folder folder;
  Options options = small_engine(MissPolicy::nearest);
  options.overlay = folder / "overlay.kiln";
  options.on_log = [&](const LogEvent& event) { log.add(event); };
  const OpenEngine with(options);
  CHECK(with.engine.warnings().empty());
  std::filesystem::create_directory(*options.overlay);  // where the first write would make the file
  with.launch();
  CHECK_FALSE(with.engine.warnings().empty());
  for (const std::string& each : with.engine.warnings()) CHECK(log.count("warning  : " + each) == 1);
}

TEST_CASE("threads that an engine begins take no signal of the program" * doctest::skip(no_plans())) {
  const std::set<std::string> before = threads();
  const OpenEngine with(small_engine(MissPolicy::nearest));
  with.launch();
  int begun = 0;
  for (const std::string& each : threads())
    if (!before.contains(each)) {
      ++begun;
      CHECK_MESSAGE(blocks(each, {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD}), each);
    }
  CHECK(begun >= 2);  // that of counts, and that of compiles
}

TEST_CASE("an engine that never compiles says what the files lack" * doctest::skip(no_plans())) {
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::tune}) {
    Options options = small_engine(policy);
    options.compile = Compile::never;
    const OpenEngine with(options);
    const Error error = error_of([&] { with.launch(); });
    CHECK(error.kind() == ErrorKind::no_nvrtc);
    const std::string said = error.what();
    CHECK_MESSAGE(said.find("scale rows=4 cols=64 dtype=f32 needs a compile") != std::string::npos, said);
    CHECK_MESSAGE(said.find("no record of scale") != std::string::npos, said);
    CHECK_MESSAGE(said.find("Options::compile is never") != std::string::npos, said);
    CHECK(with.engine.stats().compiles == 0);
  }
}

TEST_CASE("an NVRTC that is named after another was opened is passed over with a warning" * doctest::skip(no_plans())) {
  Options options = small_engine(MissPolicy::nearest);
  options.nvrtc = cuda::Nvrtc::get().path;
  CHECK(OpenEngine(options).engine.warnings().empty());
  options.nvrtc = "/nowhere/libnvrtc.so";
  const std::vector<std::string> warnings = OpenEngine(options).engine.warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].starts_with("Options::nvrtc /nowhere/libnvrtc.so is not used: this process has opened "));
}

TEST_CASE("a base that is overwritten in place is told by the log, the warnings and explain" *
          doctest::skip(no_plans())) {
  const store::Folder folder;
  const auto path = folder / "base.kiln";
  std::vector<store::Record> records(40, store::sample_record(""));
  for (std::size_t at = 0; at < records.size(); ++at) records[at].key = std::to_string(at);
  store::File::open(path, store::Access::read_write)->put_all(records, {});
  std::vector<std::string> logged;
  Options options = small_engine(MissPolicy::nearest);
  options.bases = {path};
  options.on_log = [&](const LogEvent& event) {
    if (event.kind == LogEvent::Kind::warning) logged.emplace_back(event.text);
  };
  const OpenEngine with(options);
  CHECK(logged.empty());
  store::write_bytes(path, "");
  CHECK(with.launch() == Origin::default_);
  (void)with.scale.launch(with.scale.problem({{"rows", 1}, {"cols", 128}, {"dtype", "f32"}}), with.arguments,
                          with.machine.stream);
  REQUIRE(logged.size() == 1);
  CHECK_MESSAGE(logged[0].starts_with("'" + path.string() + "' was overwritten in place"), logged[0]);
  CHECK(with.engine.warnings() == logged);
  CHECK(with.engine.explain(with.scale, with.problem).layers.back().found == logged[0]);
}

TEST_CASE("workspaces come from the caller's allocator, and go back to it" * doctest::skip(no_plans())) {
  const fake_cuda_tests::Fixture machine;
  struct Lent {
    std::size_t bytes;
    CUstream stream;
  };
  std::vector<Lent> lent;
  std::size_t returned = 0;
  bool has_memory = true;
  {
    plan::Workspaces workspaces(std::int64_t{1} << 30,
                                {[&](std::size_t bytes, CUstream stream, bool captured) -> void* {
                                   CHECK_FALSE(captured);
                                   if (!has_memory) return nullptr;
                                   lent.push_back({bytes, stream});
                                   return reinterpret_cast<void*>(machine.allocate(bytes));
                                 },
                                 [&](void*, std::size_t bytes, CUstream stream) {
                                   CHECK(stream == machine.stream);
                                   returned += bytes;
                                 }});
    workspaces.make(machine.stream, {1024, 256});
    REQUIRE(lent.size() == 2);
    CHECK((lent[0].bytes == 1024 && lent[1].bytes == 256 && lent[0].stream == machine.stream));
    CHECK(workspaces.bytes() == 1280);
    CHECK(workspaces.trim() == 1280);
    CHECK(returned == 1280);
    workspaces.make(machine.stream, {512, 0});
    has_memory = false;
    const cuda::Stream other;
    CHECK(error_of([&] { workspaces.make(other.handle(), {2048, 0}); }).kind() == ErrorKind::out_of_memory);
  }
  CHECK(returned == 1280 + 512);
  Options half = small_engine(MissPolicy::nearest);
  half.workspace_allocator.free = [](void*, std::size_t, CUstream) {};
  CHECK(error_of([&] { (void)Engine(half); }).kind() == ErrorKind::bad_input);
}

TEST_CASE("an allocator that has no more, or throws, is asked again once other streams gave theirs back" *
          doctest::skip(no_plans())) {
  const fake_cuda_tests::Fixture machine;
  const cuda::Stream first, second;
  int left = 1;
  enum class Ends { null, exception, number } ends = Ends::null;
  plan::Workspaces workspaces(std::int64_t{1} << 30, {[&](std::size_t bytes, CUstream, bool) -> void* {
                                                        if (left-- > 0)
                                                          return reinterpret_cast<void*>(machine.allocate(bytes));
                                                        if (ends == Ends::exception)
                                                          throw std::length_error("pool is full");
                                                        if (ends == Ends::number) throw 7;
                                                        return nullptr;
                                                      },
                                                      [&](void*, std::size_t, CUstream) { left = 1; }});
  for (const Ends each : {Ends::null, Ends::exception, Ends::number}) {
    ends = each;
    left = 1;
    workspaces.make(first.handle(), {1024, 0});
    workspaces.make(second.handle(), {1024, 0});  // by what the first had
    CHECK_FALSE(workspaces.serves(first.handle(), {1024, 0}));
    static_cast<void>(workspaces.trim());
    left = 0;
    const Error error = error_of([&] { workspaces.make(first.handle(), {1024, 0}); });
    CHECK(error.kind() == ErrorKind::out_of_memory);
    CHECK(std::string(error.what()).starts_with("Options::workspace_allocator has not the 1024 bytes of a workspace"));
    CHECK((std::string(error.what()).find("pool is full") != std::string::npos) == (each == Ends::exception));
  }
}

TEST_CASE("memory of an allocator that is not aligned is refused, and goes back" * doctest::skip(no_plans())) {
  const fake_cuda_tests::Fixture machine;
  const CUdeviceptr block = machine.allocate(2048);
  std::vector<void*> returned;
  plan::Workspaces workspaces(std::int64_t{1} << 30,
                              {[&](std::size_t, CUstream, bool) { return reinterpret_cast<void*>(block + 8); },
                               [&](void* address, std::size_t, CUstream) { returned.push_back(address); }});
  const Error error = error_of([&] { workspaces.make(machine.stream, {1024, 0}); });
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK(returned == std::vector<void*>{reinterpret_cast<void*>(block + 8)});
  CHECK(workspaces.bytes() == 0);
}

TEST_CASE("memory comes back without a stream where its handle may name another by then" * doctest::skip(no_plans())) {
  const fake_cuda_tests::Fixture machine;
  std::vector<CUstream> returned_by;
  plan::Workspaces workspaces(
      std::int64_t{1} << 30,
      {[&](std::size_t bytes, CUstream, bool) { return reinterpret_cast<void*>(machine.allocate(bytes)); },
       [&](void*, std::size_t, CUstream stream) { returned_by.push_back(stream); }});
  CUstream gone = nullptr, again = nullptr;
  REQUIRE(driver().cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  workspaces.make(gone, {1024, 0});
  workspaces.make(gone, {2048, 0});
  REQUIRE(driver().cuStreamDestroy_v2(gone) == CUDA_SUCCESS);
  REQUIRE(driver().cuStreamCreate(&again, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(again == gone);
  workspaces.make(again, {1024, 0});
  static_cast<void>(workspaces.trim());
  CHECK(std::count(returned_by.begin(), returned_by.end(), nullptr) >= 1);  // the larger block of the first
  CHECK(std::count(returned_by.begin(), returned_by.end(), again) >= 1);
  returned_by.clear();
  workspaces.make(reinterpret_cast<CUstream>(std::uintptr_t{2}), {1024, 0});  // CU_STREAM_PER_THREAD
  static_cast<void>(workspaces.trim());
  CHECK(returned_by == std::vector<CUstream>{nullptr});
  driver().cuStreamDestroy_v2(again);
}

TEST_CASE("an allocator is called by one thread at a time" * doctest::skip(no_plans())) {
  const fake_cuda_tests::Fixture machine;
  std::atomic<int> inside = 0, overlaps = 0;
  const auto alone = [&](auto work) {
    if (inside.fetch_add(1) != 0) overlaps.fetch_add(1);
    std::this_thread::yield();
    work();
    inside.fetch_sub(1);
  };
  plan::Workspaces workspaces(std::int64_t{1} << 30,
                              {[&](std::size_t bytes, CUstream, bool) {
                                 void* address = nullptr;
                                 alone([&] {
                                   CUdeviceptr made = 0;
                                   driver().cuMemAlloc_v2(&made, bytes);
                                   address = reinterpret_cast<void*>(made);
                                 });
                                 return address;
                               },
                               [&](void* address, std::size_t, CUstream) {
                                 alone([&] { driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(address)); });
                               }});
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const fake_cuda_tests::Fixture own;
      for (int turn = 0; turn < 100; ++turn) {
        workspaces.make(own.stream, {1024, 256});
        static_cast<void>(workspaces.trim());
      }
    });
  for (std::thread& each : threads) each.join();
  CHECK(overlaps == 0);
}
