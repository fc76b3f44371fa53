// Kiln in modules that a program loads and unloads: two copies in one process, and nothing that stays behind.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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
