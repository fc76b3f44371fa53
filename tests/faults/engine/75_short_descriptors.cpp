// A library cannot be opened for want of descriptors: the error names the limit, and the library is opened once there are some.
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cuda/library.hpp"
#include "faults/engine/fixture.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

/// While it lives, no further descriptor is to be had.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(STDIN_FILENO);
    close(next);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next);
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// A library that is opened as often as it is asked for.
struct Table {
  static inline int opens = 0;
  static inline std::string failure;
  static Table open(const std::string& path) {
    ++opens;
    if (!failure.empty()) throw Error(ErrorKind::no_nvrtc, path + ": " + failure);
    return {};
  }
};

/// Makes a variable name the same library by another path, which the loader has not opened.
void rename_library(const char* variable, const fs::path& link) {
  fs::create_symlink(std::getenv(variable), link);
  setenv(variable, link.c_str(), 1);
}

}  // namespace

TEST_CASE("fault 75: a failure for want of descriptors or memory is not kept, and any other is") {
  for (const int shortage : {EMFILE, ENFILE, ENOMEM}) {
    cuda::OpenedOnce<Table> library("NONE");
    Table::failure = std::strerror(shortage);
    const std::string said = error_of([&] { library.get(); }).what();
    CHECK_MESSAGE(contains(said, "tried again"), said);
    CHECK(library.find() == nullptr);
    Table::failure.clear();
    CHECK(library.find() != nullptr);
    CHECK(&library.get() == library.find());
  }
  cuda::OpenedOnce<Table> library("NONE");
  Table::failure = "no such file";
  CHECK(library.find() == nullptr);
  Table::failure.clear();
  const int opens = Table::opens;
  CHECK(library.find() == nullptr);
  CHECK(Table::opens == opens);
  tally(75, 4, "failures to open a library");
}

TEST_CASE("child: descriptors are short" * doctest::skip()) {
  const TemporaryFolder folder;
  rename_library("KILN_CUDA_LIBRARY", folder / "libcuda.so.1");
  rename_library("KILN_NVRTC_LIBRARY", folder / "libnvrtc.so");
  {
    const NoDescriptors none;
    for (const Error& error : {error_of([] { cuda::Driver::get(); }), error_of([] { cuda::Nvrtc::get(); })})
      CHECK_MESSAGE(contains(error.what(), "RLIMIT_NOFILE"), error.what());
    CHECK(cuda::Driver::find() == nullptr);
  }
  const Machine machine;
  Options chosen = options("");
  chosen.isolation = Isolation::in_process;
  const Engine engine(chosen);
  const ScaleCall call(engine, 64, 128);
  {
    const NoDescriptors none;
    const Error error = error_of([&] { call.launch(machine.stream()); });
    CHECK_MESSAGE(contains(error.what(), "RLIMIT_NOFILE"), error.what());
  }
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().compiles > 0);
}

TEST_CASE("fault 75: a driver and an NVRTC that could not be opened for want of descriptors are opened later") {
  if (address_sanitizer)
    return skip("UndefinedBehaviorSanitizer reads types through a pipe, for which no descriptor is left");
  run_child("child: descriptors are short", "");
  tally(75, 3, "libraries without a descriptor");
}
