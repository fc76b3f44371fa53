#include "process/child.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kiln/error.hpp"
#include "process/message.hpp"
#include "processes.hpp"

using namespace kiln;
using namespace kiln::process;
using namespace kiln::test;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "kiln-process-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  /// Links kiln-worker into this folder and returns the path.
  [[nodiscard]] fs::path worker() const {
    fs::path link = path_ / "kiln-worker";
    fs::create_symlink(KILN_WORKER_PROGRAM, link);
    return link;
  }
  [[nodiscard]] fs::path script(const std::string& text) const {
    fs::path path = path_ / "script";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

 private:
  fs::path path_;
};

std::string begun_badly(const fs::path& program) {
  try {
    const Child child(program);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::io);
    return error.what();
  }
  return {};
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a program that is no worker is named as soon as it ends or speaks otherwise, with what to do") {
  const Folder folder;
  const fs::path absent = "/nonexistent/kiln-worker";
  CHECK(holds(begun_badly(absent), absent.string() + " cannot be run: No such file"));
  const std::string ended = begun_badly("/bin/true");
  CHECK(holds(ended, "/bin/true"));
  CHECK(holds(ended, "ended with status 0"));
  CHECK(holds(ended, "KILN_WORKER"));
  // 8 bytes of length, then CBOR: {"kiln-worker": "0"}.
  const fs::path other =
      folder.script("printf '\\017\\0\\0\\0\\0\\0\\0\\0\\241\\153kiln-worker\\1410' >&0; read -r line");
  CHECK(holds(begun_badly(other), "greets as {\"kiln-worker\":\"0\"}"));
}

TEST_CASE("a worker ends with its owner's handle, and one that was killed is known to be gone") {
  const Folder folder;
  const fs::path program = folder.worker();
  {
    const Child first(program);
    Child second(program);
    CHECK(processes_of(program).size() == 2);
    CHECK_FALSE(second.gone());
    const std::string how = second.stop();  // ends by itself when the socket closes, or is killed after a while
    CHECK((how == "ended with status 0" || how == "was stopped"));
    CHECK(second.gone());
    CHECK(processes_of(program).size() == 1);
  }
  CHECK(processes_of(program).empty());
  Child killed(program);
  signal_processes(program, SIGKILL);
  for (int waits = 0; waits < 1500 && !killed.gone(); ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(killed.gone());
  CHECK(killed.stop() == "was ended by signal 9 (Killed)");
}

TEST_CASE("a worker that answers nothing is late, and one that is stopped by a signal can still be ended") {
  const Folder folder;
  const fs::path program = folder.worker();
  Child child(program);
  signal_processes(program, SIGSTOP);
  nlohmann::json answer;
  CHECK(child.ask({{"anything", 1}}, answer, std::chrono::milliseconds(100)) == Channel::Outcome::late);
  CHECK(child.stop() == "was stopped");
  CHECK(processes_of(program).empty());
  CHECK(child.ask({{"anything", 1}}, answer, std::chrono::milliseconds(100)) == Channel::Outcome::closed);
}

TEST_CASE("what a worker cannot answer is an error of the asker, and it goes on") {
  const Folder folder;
  Child child(folder.worker());
  for (int ask = 0; ask < 2; ++ask) {
    nlohmann::json answer;
    REQUIRE(child.ask({{"compile", "nothing"}}, answer, std::chrono::seconds(20)) == Channel::Outcome::received);
    CHECK_THROWS_AS(rethrow(answer), Error);
  }
}
