// Kiln in modules that a program loads and unloads: two copies in one process, and nothing that stays behind.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace {

namespace fs = std::filesystem;

class Module {
 public:
  explicit Module(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    const char* why = handle_ == nullptr ? dlerror() : "";
    REQUIRE_MESSAGE(handle_ != nullptr, std::string(why));
  }
  ~Module() { CHECK(dlclose(handle_) == 0); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  [[nodiscard]] std::string where() const { return function<const char*()>("where")(); }
  void* begin(std::string& said) const {
    const char* text = "";
    void* use = function<void*(const char**)>("begin")(&text);
    said = text;
    return use;
  }
  void* begin_sharing(const std::string& folder, std::string& said) const {
    const char* text = "";
    void* use = function<void*(const char*, const char**)>("begin_sharing")(folder.c_str(), &text);
    said = text;
    return use;
  }
  bool drop_within_tune(std::string& said) const {
    const char* text = "";
    const bool dropped =
        function<int(const char*, const char*, const char**)>("drop_within_tune")(OPS, WORKER, &text) != 0;
    said = text;
    return dropped;
  }
  void end(void* use) const { function<void(void*)>("end")(use); }

 private:
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    void* found = dlsym(handle_, name);
    REQUIRE_MESSAGE(found != nullptr, name);
    return reinterpret_cast<Function*>(found);
  }
  void* handle_;
};

long threads() { return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()); }

std::array<void*, 65> handlers() {
  std::array<void*, 65> all{};
  for (int signal = 1; signal < 65; ++signal) {
    struct sigaction found {};
    if (sigaction(signal, nullptr, &found) == 0)
      all.at(static_cast<std::size_t>(signal)) = reinterpret_cast<void*>(found.sa_handler);
  }
  return all;
}

bool is_mapped(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  return text.find(file) != std::string::npos;
}

void write_line(const char* path, const std::string& text) { std::ofstream(path) << text; }

/// A folder on a file system that answers nothing until this object is gone, when it fails all that waits.
class HangingFolder {
 public:
  HangingFolder() {
    std::string name = (fs::temp_directory_path() / "kiln-hang-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    if (!leave_mounts(std::to_string(geteuid()), std::to_string(getegid()))) return;
    device_ = open("/dev/fuse", O_RDWR | O_CLOEXEC);  // of the namespace that it is mounted in
    const std::string options = "fd=" + std::to_string(device_) + ",rootmode=40000,user_id=0,group_id=0";
    is_mounted_ = mount("kiln", name.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
  }
  ~HangingFolder() {
    release();
    if (is_mounted_) umount2(path_.c_str(), MNT_DETACH);
    rmdir(path_.c_str());
  }
  HangingFolder(const HangingFolder&) = delete;
  HangingFolder& operator=(const HangingFolder&) = delete;
  [[nodiscard]] bool is_mounted() const { return is_mounted_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  void release() {
    if (device_ >= 0) close(std::exchange(device_, -1));
  }

 private:
  static bool leave_mounts(const std::string& user, const std::string& group) {
    if (unshare(CLONE_NEWNS) != 0) {
      if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
      write_line("/proc/self/setgroups", "deny");
      write_line("/proc/self/uid_map", "0 " + user + " 1");
      write_line("/proc/self/gid_map", "0 " + group + " 1");
    }
    return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }

  std::string path_;
  int device_ = -1;
  bool is_mounted_ = false;
};

}  // namespace

TEST_CASE("two copies of the library in one process each serve their own module") {
  const Module first(FIRST_MODULE), second(SECOND_MODULE);
  CHECK(first.where() != second.where());
  std::string said, too;
  void* use = first.begin(said);
  REQUIRE_MESSAGE(use != nullptr, said);
  CHECK(said.starts_with("bad_input, "));
  void* other = second.begin(too);
  CHECK(too == said);
  first.end(use);
  second.end(other);
}

TEST_CASE("one copy is unloaded while the other goes on, and can be loaded again") {
  const Module stays(SECOND_MODULE);
  std::string said, again;
  void* use = stays.begin(said);
  for (int round = 0; round < 2; ++round) {
    std::string where;
    {
      const Module module(FIRST_MODULE);
      where = fs::canonical(module.where());
      CHECK(is_mapped(where));
      void* own = module.begin(again);
      CHECK(again == said);
      module.end(own);
    }
    CHECK_FALSE(is_mapped(where));
    CHECK_FALSE(is_mapped(FIRST_MODULE));
  }
  stays.end(use);
}

TEST_CASE("neither loading the library nor an engine begins a thread or takes a signal") {
  const auto before = handlers();
  REQUIRE(threads() == 1);
  const Module module(FIRST_MODULE);
  CHECK(threads() == 1);
  std::string said;
  void* use = module.begin(said);
  REQUIRE_MESSAGE(use != nullptr, said);
  CHECK(threads() == 1);
  CHECK(handlers() == before);
  module.end(use);
  CHECK(threads() == 1);
  CHECK(handlers() == before);
}

TEST_CASE("a copy with an engine that was dropped on a thread of its own stays loaded, and the thread ends") {
  std::string where, said;
  {
    const Module module(SECOND_MODULE);
    where = fs::canonical(module.where());
    const bool dropped = module.drop_within_tune(said);
    if (said == "no_nvrtc") {
      MESSAGE("skipped: no NVRTC");
      return;
    }
    REQUIRE_MESSAGE(dropped, said);
  }
  CHECK(is_mapped(where));
  for (int waits = 0; threads() > 1 && waits < 2000; ++waits) usleep(5000);
  CHECK(threads() == 1);
}

// Last: it takes a namespace of its own.
TEST_CASE("a copy whose shared store hangs stays loaded, and its thread ends when the store does") {
  HangingFolder folder;
  if (!folder.is_mounted()) {
    MESSAGE("skipped: this system lets no user mount a FUSE file system");
    return;
  }
  std::string where, said;
  {
    const Module module(FIRST_MODULE);
    where = fs::canonical(module.where());
    void* use = module.begin_sharing(folder.path(), said);
    REQUIRE_MESSAGE(use != nullptr, said);
    CHECK(said == "not_tuned");
    CHECK(threads() == 2);
    module.end(use);
  }
  CHECK(threads() == 2);
  CHECK(is_mapped(where));
  folder.release();
  for (int waits = 0; threads() > 1 && waits < 2000; ++waits) usleep(5000);
  CHECK(threads() == 1);
}
