// A program has rights that its user has not: the environment chooses nothing of what it loads, runs, reads or believes.
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "faults/engine/probe.hpp"
#include "faults/store/users.hpp"
#include "process/child.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

constexpr uid_t daemon_user = 1;

constexpr const char* libraries[] = {"KILN_CUDA_LIBRARY",     "KILN_NVRTC_LIBRARY", "KILN_NVRTC_DIR",
                                     "KILN_CUBLASLT_LIBRARY", "KILN_NCCL_LIBRARY",  "KILN_TEAM_ADDRESS"};
constexpr const char* places[] = {"HOME",      "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "CUDA_HOME",
                                  "CUDA_PATH", "VIRTUAL_ENV",    "CONDA_PREFIX"};

/// What `program` prints when the user nobody runs it with every variable set to something under `evil`.
std::string printed_to_nobody(const fs::path& program, const fs::path& evil, const fs::path& judged) {
  const fs::path output = program.string() + ".txt";
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  REQUIRE(file >= 0);
  const bool ran = store::as_nobody([&] {
    for (const char* each : libraries) setenv(each, (evil / "library.so").c_str(), 1);
    for (const char* each : places) setenv(each, evil.c_str(), 1);
    setenv("KILN_WORKER", (evil / "worker").c_str(), 1);
    setenv("KILN_CACHE", (evil / "overlay.kiln").c_str(), 1);
    setenv("KILN_TRUST", "signed", 1);
    setenv("KILN_TRUSTED_KEYS", (evil / "keys").c_str(), 1);
    setenv("KILN_TEMPLATE_PATH", (evil / "ops").c_str(), 1);
    dup2(file, STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), judged.c_str(), nullptr);
    return false;
  });
  close(file);
  CHECK(ran);
  return read(output);
}

/// Gives a file CAP_NET_BIND_SERVICE (linux/capability.h: struct vfs_cap_data, revision 2, effective).
bool give_capability(const fs::path& program) {
  constexpr std::uint32_t data[] = {0x02000001, 1U << 10, 0, 0, 0};
  return setxattr(program.c_str(), "security.capability", data, sizeof data, 0) == 0;
}

void check_nothing_chosen(const std::string& printed, const fs::path& evil) {
  CHECK(contains(printed, "overlay=\n"));
  CHECK(contains(printed, "trust=\n"));
  CHECK(contains(printed, "op=\n"));
  CHECK_MESSAGE(!contains(printed.substr(0, printed.find("objection=")), evil.string()), printed);
}

}  // namespace

TEST_CASE("fault 86: with setuid, setgid or a file capability the environment chooses nothing") {
  const OpenFolder folder;
  if (geteuid() != 0) return skip("only root can give a program another user's rights");
  if (!folder.knows_setuid()) return skip("the temporary folder is mounted nosuid");
  const fs::path evil = folder / "evil";
  fs::create_directories(evil / "ops");
  fs::create_directories(evil / "lib/python3.9/site-packages");
  fs::create_directories(evil / ".local/lib/python3.9/site-packages");
  fs::copy(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale", evil / "ops/scale");
  write(evil / "overlay.kiln", "");
  for (const fs::path& each : {evil, evil / "overlay.kiln"}) REQUIRE(chown(each.c_str(), nobody, nobody) == 0);

  const fs::path plain = copy_of_probe(folder / "plain");
  const std::string chosen = printed_to_nobody(plain, evil, evil / "overlay.kiln");
  CHECK(contains(chosen, "overlay=" + (evil / "overlay.kiln").string()));
  CHECK(contains(chosen, "worker=" + (evil / "worker").string()));
  CHECK(contains(chosen, "op=scale"));
  CHECK(contains(chosen, "trust=signed"));
  CHECK(contains(chosen, "keys=" + (evil / "keys").string()));
  CHECK(contains(chosen, "folder=" + evil.string()));
  CHECK(contains(chosen, "library=" + (evil / "library.so").string()));
  CHECK(contains(chosen, "objection=\n"));

  const fs::path setuid = copy_of_probe(folder / "setuid");
  REQUIRE(chown(setuid.c_str(), daemon_user, 0) == 0);
  REQUIRE(chmod(setuid.c_str(), 04755) == 0);
  const fs::path setgid = copy_of_probe(folder / "setgid");
  REQUIRE(chown(setgid.c_str(), 0, daemon_user) == 0);
  REQUIRE(chmod(setgid.c_str(), 02755) == 0);
  std::vector<fs::path> raised = {setuid, setgid};
  if (const fs::path capable = copy_of_probe(folder / "capable"); give_capability(capable))
    raised.push_back(capable);
  else
    skip("a file cannot be given a capability here");
  for (const fs::path& each : raised) {
    CAPTURE(each.string());
    const std::string printed = printed_to_nobody(each, evil, evil / "overlay.kiln");
    check_nothing_chosen(printed, evil);
    CHECK(contains(printed, "belongs to user 65534"));  // the overlay, if the program names it
  }
  tally(86, static_cast<std::int64_t>(raised.size()) * 18, "variables of programs with raised rights");
}

TEST_CASE("fault 86: a worker of such a program gets no variable that chooses what it loads or reads") {
  std::string texts[] = {"HOME=/evil", "CUDA_VISIBLE_DEVICES=1", "KILN_TEMPLATE_PATH=/evil", "LD_PRELOAD=/evil.so"};
  std::vector<char*> all;
  for (std::string& each : texts) all.push_back(each.data());
  all.push_back(nullptr);
  CHECK(process::worker_environment(all.data(), false) == all);
  CHECK(process::worker_environment(all.data(), true) == std::vector<char*>{texts[1].data(), nullptr});
  tally(86, 2, "environments of workers");
}

TEST_CASE("fault 86: one function alone reads the environment") {
  std::vector<std::string> readers;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(KILN_SOURCE_DIR) / "src"))
    if (entry.is_regular_file() && contains(read(entry.path()), "getenv("))
      readers.push_back(entry.path().filename().string());
  CHECK(readers == std::vector<std::string>{"environment.cpp"});
  tally(86, 1, "readers of the environment");
}
