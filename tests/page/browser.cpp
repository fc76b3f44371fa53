#include "page/browser.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void run(const std::string& program, const std::string& profile, int from_parent, int to_parent) {
  constexpr int reads_at = 3, writes_at = 4;  // where --remote-debugging-pipe looks
  const int quiet = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(quiet, stream);
  ::dup2(from_parent, reads_at);
  ::dup2(to_parent, writes_at);
  ::execl(program.c_str(), program.c_str(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
          "--no-first-run", "--remote-debugging-pipe", profile.c_str(), nullptr);
  ::_exit(127);
}

/// Both ends past the numbers that the child gives away.
std::array<int, 2> make_pipe() {
  std::array<int, 2> low{}, high{};
  if (::pipe2(low.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  for (std::size_t i = 0; i < 2; ++i) {
    high[i] = ::fcntl(low[i], F_DUPFD_CLOEXEC, 10);
    ::close(low[i]);
  }
  return high;
}

}  // namespace

std::string chromium() {
  if (const char* named = std::getenv("KILN_CHROMIUM")) return named;
  std::istringstream path(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string folder; std::getline(path, folder, ':');)
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (::access((fs::path(folder) / name).c_str(), X_OK) == 0) return fs::path(folder) / name;
  return {};
}

Browser::Browser() {
  std::string pattern = (fs::temp_directory_path() / "kiln-page-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for the browser's profile");
  folder_ = pattern;
  const auto commands = make_pipe(), answers = make_pipe();
  const std::string program = chromium(), profile = "--user-data-dir=" + folder_.string();
  process_ = ::fork();
  if (process_ == 0) run(program, profile, commands[0], answers[1]);
  ::close(commands[0]);
  ::close(answers[1]);
  write_ = commands[1];
  read_ = answers[0];
  const std::string target = call("Target.createTarget", {{"url", "about:blank"}}).at("targetId");
  session_ = call("Target.attachToTarget", {{"targetId", target}, {"flatten", true}}).at("sessionId");
  for (const char* domain : {"Page.enable", "Runtime.enable", "Log.enable"}) call(domain);
}

Browser::~Browser() {
  ::close(write_);
  ::close(read_);
  ::kill(process_, SIGTERM);
  ::waitpid(process_, nullptr, 0);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Browser::open(const fs::path& page) {
  problems_.clear();
  loaded_ = false;
  call("Page.navigate", {{"url", "file://" + page.string()}});
  while (!loaded_) note(receive());
}

void Browser::resize(int width, int height) {
  call("Emulation.setDeviceMetricsOverride",
       {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", width < 600}});
}

void Browser::prefer(const std::string& colour_scheme) {
  call("Emulation.setEmulatedMedia",
       {{"features", json::array({{{"name", "prefers-color-scheme"}, {"value", colour_scheme}}})}});
}

void Browser::disable_scripts() { call("Emulation.setScriptExecutionDisabled", {{"value", true}}); }

json Browser::evaluate(const std::string& expression) {
  const json answer = call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}});
  if (answer.contains("exceptionDetails")) throw std::runtime_error(answer["exceptionDetails"].dump());
  return answer.at("result").value("value", json());
}

json Browser::call(const std::string& method, const json& parameters) {
  json message{{"id", ++last_id_}, {"method", method}, {"params", parameters}};
  if (!session_.empty()) message["sessionId"] = session_;
  const std::string text = message.dump() + '\0';
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t wrote = ::write(write_, text.data() + sent, text.size() - sent);
    if (wrote <= 0) throw std::runtime_error("the browser does not listen");
    sent += static_cast<std::size_t>(wrote);
  }
  while (true) {
    const json answer = receive();
    if (answer.value("id", 0) != last_id_) {
      note(answer);
      continue;
    }
    if (answer.contains("error")) throw std::runtime_error(method + ": " + answer["error"].dump());
    return answer.at("result");
  }
}

json Browser::receive() {
  constexpr int longest_wait_ms = 120'000;  // of a browser that hangs; a busy machine takes seconds to start one
  std::size_t end = 0;
  while ((end = unread_.find('\0')) == std::string::npos) {
    pollfd ready{read_, POLLIN, 0};
    std::array<char, 65536> part{};
    if (::poll(&ready, 1, longest_wait_ms) != 1) throw std::runtime_error("the browser does not answer");
    const ssize_t got = ::read(read_, part.data(), part.size());
    if (got <= 0) throw std::runtime_error("the browser ended");
    unread_.append(part.data(), static_cast<std::size_t>(got));
  }
  json message = json::parse(unread_.substr(0, end));
  unread_.erase(0, end + 1);
  return message;
}

void Browser::note(const json& event) {
  const std::string method = event.value("method", "");
  if (method == "Page.loadEventFired") loaded_ = true;
  if (method == "Log.entryAdded" || method == "Runtime.exceptionThrown" || method == "Runtime.consoleAPICalled")
    problems_.push_back(event.at("params").dump());
}

}  // namespace kiln::testing
