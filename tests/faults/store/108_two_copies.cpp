// Two copies of Kiln in one process, each with its own SQLite, which knows nothing of the other one's locks.
#include <dlfcn.h>

#include <thread>

#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

// LeakSanitizer finds what a module's SQLite keeps by the module's own variables, so the module stays mapped under it.
constexpr int kept_mapped = kiln::faults::address_sanitizer ? RTLD_NODELETE : 0;

/// Another copy of the module's file is another module.
class Copy {
 public:
  explicit Copy(const fs::path& file) : handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | kept_mapped)) {
    const char* why = handle_ == nullptr ? dlerror() : "";
    REQUIRE_MESSAGE(handle_ != nullptr, std::string(why));
  }
  ~Copy() { CHECK(dlclose(handle_) == 0); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  [[nodiscard]] void* hold(const fs::path& path) const { return function<void*(const char*)>("hold")(path.c_str()); }
  void release(void* held) const { function<void(void*)>("release")(held); }
  [[nodiscard]] bool put(const fs::path& path, const std::string& key, bool patient) const {
    return function<int(const char*, const char*, int)>("put")(path.c_str(), key.c_str(), patient ? 1 : 0) != 0;
  }

 private:
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    void* const found = dlsym(handle_, name);
    REQUIRE_MESSAGE(found != nullptr, name);
    return reinterpret_cast<Function*>(found);
  }
  void* handle_;
};

/// The module, and a copy of its file in `folder`. Empty where this build has no archive of SQLite to link into it.
std::pair<fs::path, fs::path> two_modules(const Folder& folder) {
#ifdef COPY_MODULE
  fs::copy_file(COPY_MODULE, folder / "copy.so");
  return {COPY_MODULE, folder / "copy.so"};
#else
  (void)folder;
  faults::skip("SQLite's archive, libsqlite3.a, is not there: a second SQLite needs it");
  return {};
#endif
}

}  // namespace

TEST_CASE("fault 108: two copies of Kiln in a process exclude each other, and closing takes no lock away") {
  const Folder folder;
  const auto [one, two] = two_modules(folder);
  if (one.empty()) return;
  const Copy first(one), second(two);
  const auto path = sample_file(folder / "a.kiln");
  void* const held = first.hold(path);
  CHECK(!second.put(path, "within", false));  // opens and closes the file
  const pid_t other = in_child([&] {
    const auto file = File::open(path, Access::read_write);
    file->stop_waiting_when([] { return true; });
    return contains(refusal([&] { file->put(sample_record("beside"), nullptr); }), "is locked");
  });
  CHECK(exit_status(other) == 0);
  first.release(held);
  CHECK(second.put(path, "after", false));
  CHECK(quick_check(path) == "ok\n");
  faults::tally(108, 3, "writes beside another copy's lock");
}

TEST_CASE("fault 108: two copies of Kiln in a process write one file, and lose nothing") {
  const Folder folder;
  const auto [one, two] = two_modules(folder);
  if (one.empty()) return;
  const Copy first(one), second(two);
  const auto path = sample_file(folder / "a.kiln", 0);
  constexpr int puts = 100;
  const auto put_all = [&](const Copy& copy, const std::string& name) {
    for (int at = 0; at < puts; ++at) CHECK(copy.put(path, name + std::to_string(at), true));
  };
  std::thread thread([&] { put_all(second, "second"); });
  put_all(first, "first");
  thread.join();
  CHECK(quick_check(path) == "ok\n");
  CHECK(File::open(path, Access::read_only)->stats().records == 2 * puts);
  CHECK(!fs::exists(path.native() + ".damaged-1"));
  faults::tally(108, 2 * puts, "writes of two copies to one file");
}

// A lock of a description ends when the last process closes it, and a child of fork has the parent's descriptors.
TEST_CASE("fault 108: a child of fork keeps no lock of a parent that is killed, and takes none from one that lives") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t parent = in_child([&] {
    Connection connection = Connection::open(path.native(), OpenMode::read_write);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      for (;;) pause();
    }
    const Transaction transaction(connection, Transaction::Kind::write);
    const pid_t closes = fork();
    if (closes == 0) {
      connection = Connection();
      _exit(0);
    }
    exit_status(closes);
    [[maybe_unused]] const auto written = write(ready[1], &child, sizeof child);
    for (;;) pause();
    return true;
  });
  pid_t child = 0;
  REQUIRE(read(ready[0], &child, sizeof child) == sizeof child);
  const auto file = File::open(path, Access::read_write);
  file->stop_waiting_when([] { return true; });
  CHECK(contains(refusal([&] { file->put(sample_record("early"), nullptr); }), "is locked by process"));
  kill(parent, SIGKILL);
  exit_status(parent);
  CHECK_NOTHROW(file->put(sample_record("late"), nullptr));
  kill(child, SIGKILL);
  for (const int end : ready) close(end);
  faults::tally(108, 2, "children that inherit a lock");
}

}  // namespace kiln::store
