// Compiles in worker processes through the pool. tests/faults/engine/36 tests compiles that crash, hang or take all memory.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "jit/compile_pool.hpp"
#include "processes.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;
using namespace kiln::test;

namespace {

namespace fs = std::filesystem;

manifest::Digest key_of(const Specialisation& specialisation) { return cubin_key(specialisation, compiler_identity()); }

Cubin compile_in(CompilePool& pool, const Specialisation& specialisation) {
  return pool.submit(key_of(specialisation), specialisation).get();
}

/// The worker program under a name that only this test uses.
class Program {
 public:
  Program() {
    std::string name = (fs::temp_directory_path() / "kiln-jit-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    path = folder_ / "kiln-worker";
    fs::create_symlink(KILN_WORKER_PROGRAM, path);
  }
  ~Program() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  fs::path path;

 private:
  fs::path folder_;
};

/// The field of /proc/PID/stat that holds the nice value.
int nice_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 19; ++i) fields >> field;
  return std::stoi(field);
}

}  // namespace

TEST_CASE("a process compiles what a thread compiles, byte for byte" * doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .program = program.path});
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const Specialisation specialisation = scale_kernel("3", arch);
    const Cubin here = compile(specialisation);
    const Cubin there = compile_in(pool, specialisation);
    CHECK(there.image == here.image);
    CHECK(there.lowered_names == here.lowered_names);
    CHECK(there.log == here.log);
    CHECK(there.compile_time.count() > 0);
  }
}

TEST_CASE("processes begin with the first compile, are reused, and end with the pool" * doctest::skip(!has_nvrtc())) {
  const Program program;
  {
    CompilePool pool({.workers = 4, .program = program.path});
    CHECK(processes_of(program.path).empty());
    for (const char* factor : {"1", "2", "3"}) {
      compile_in(pool, scale_kernel(factor));
      CHECK(processes_of(program.path).size() == 1);
    }
    CHECK(pool.compiled() == 3);
  }
  CHECK(processes_of(program.path).empty());
}

TEST_CASE("compiles at once have a process each, as many as were allowed" * doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 2, .program = program.path});
  std::vector<std::shared_future<Cubin>> futures;
  for (int factor = 0; factor < 6; ++factor) {
    const Specialisation specialisation = scale_kernel(std::to_string(factor));
    futures.push_back(pool.submit(key_of(specialisation), specialisation));
  }
  for (std::size_t i = 0; i < futures.size(); ++i)
    CHECK(holds(futures[i].get().lowered_names[0], "Li" + std::to_string(i) + "E"));
  CHECK(processes_of(program.path).size() == 2);
}

TEST_CASE("a process that had nothing to do for long is ended, and the next compile begins one" *
          doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .program = program.path, .idle = std::chrono::milliseconds(50)});
  for (const char* factor : {"1", "2"}) {
    compile_in(pool, scale_kernel(factor));
    CHECK(wait_for_processes(program.path, 0) == 0);
  }
}

TEST_CASE("a process that somebody ended while it had nothing to do costs no compile" * doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .program = program.path});
  for (const char* factor : {"1", "2"}) {
    CHECK(compile_in(pool, scale_kernel(factor)).image.size() > 0);
    signal_processes(program.path, SIGKILL);
    CHECK(wait_for_processes(program.path, 0) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until its end of the socket is closed
  }
}

TEST_CASE("a template that does not compile says the same from a process as from a thread" *
          doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .program = program.path});
  Specialisation broken = scale_kernel();
  edit_files(broken, [](auto& files) { append(files[1], "\n__device__ int broken() { return nonsense; }\n"); });
  const Error here = thrown_by([&] { compile(broken); });
  const Error there = thrown_by([&] { compile_in(pool, broken); });
  CHECK(holds(there.what(), "factor.cuh"));
  CHECK(std::string(there.what()) == here.what());
  CHECK(there.kind() == ErrorKind::compile_failed);
  CHECK(compile_in(pool, scale_kernel()).image.size() > 0);
}

TEST_CASE("a program that cannot be begun is an error that names it, and is tried again" *
          doctest::skip(!has_nvrtc())) {
  const Program program;
  const fs::path late = program.path.parent_path() / "late";
  CompilePool pool({.workers = 1, .program = late});
  const Error error = thrown_by([&] { compile_in(pool, scale_kernel()); });
  CHECK(error.kind() == ErrorKind::io);
  CHECK(holds(error.what(), late.string()));
  fs::create_symlink(KILN_WORKER_PROGRAM, late);
  CHECK(compile_in(pool, scale_kernel()).image.size() > 0);
}

TEST_CASE("a process that would compile under another key refuses to" * doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .program = program.path});
  const Specialisation specialisation = scale_kernel();
  const auto future = pool.submit(cubin_key(specialisation, "another compiler"), specialisation);
  const Error error = thrown_by([&] { future.get(); });
  CHECK(error.kind() == ErrorKind::io);
  CHECK(holds(error.what(), compiler_identity()));
}

TEST_CASE("processes of low priority are nice to others" * doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .program = program.path, .low_priority = true});
  compile_in(pool, scale_kernel());
  REQUIRE(processes_of(program.path).size() == 1);
  CHECK(nice_of(processes_of(program.path)[0]) == 19);
}

TEST_CASE("compiles on spare cores run beside the workers, in processes of low priority" *
          doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .program = program.path});
  const Specialisation spare = scale_kernel("2"), urgent = scale_kernel("3");
  CHECK(pool.submit(key_of(spare), spare, Urgency::spare).get().image.size() > 0);
  CHECK(compile_in(pool, urgent).image.size() > 0);
  std::vector<int> nice;
  for (const pid_t process : processes_of(program.path)) nice.push_back(nice_of(process));
  std::sort(nice.begin(), nice.end());
  CHECK(nice == std::vector{nice_of(getpid()), 19});
  CHECK(pool.compiled() == 2);
  CHECK(pool.compiled_spare() == 1);
}

TEST_CASE("a compile on spare cores that is asked for again does not wait for them" * doctest::skip(!has_nvrtc())) {
  const Program program;
  CompilePool pool({.workers = 1, .spare = 0, .program = program.path});
  const Specialisation specialisation = scale_kernel("2");
  const auto spare = pool.submit(key_of(specialisation), specialisation, Urgency::spare);
  CHECK(spare.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  CHECK(compile_in(pool, specialisation).image.size() > 0);
  CHECK(spare.get().image.size() > 0);
  CHECK(pool.compiled_spare() == 0);
}
