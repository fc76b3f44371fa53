#include "cli/output.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cli/exit_code.hpp"
#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "manifest/text.hpp"
#include "process/setup.hpp"
#include "store/custody.hpp"
#include "store/output_file.hpp"

namespace kiln::cli {
namespace {

std::atomic<int> lost_output = 0;  // errno of the first write to the standard output that failed

void lose_output() noexcept {
  int none = 0;
  lost_output.compare_exchange_strong(none, errno != 0 ? errno : EIO);
}

void flush_output() noexcept {
  if (lost_output == 0 && std::fflush(stdout) != 0) lose_output();
}

/// Some file systems report at close() that there was no space.
void close_a_copy_of_output() noexcept {
  const int copy = ::dup(STDOUT_FILENO);
  if (lost_output == 0 && copy >= 0 && ::close(copy) != 0) lose_output();
}

void write_errors(std::string_view text) noexcept {
  [[maybe_unused]] const std::size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Returns COLUMNS, or 0 where it is no positive number.
std::size_t columns_asked() {
  const std::string text = manifest::environment("COLUMNS");
  std::size_t columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  return error == std::errc{} && end == text.data() + text.size() ? columns : 0;
}

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

void open_output() noexcept {
  process::hold_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
}

int close_output(int status, bool json) {
  flush_output();
  close_a_copy_of_output();
  if (lost_output == 0) return status;
  if (lost_output == EPIPE) return exit_broken_pipe;
  say_error(
      json, to_string(ErrorKind::io),
      fmt::format("the standard output cannot be written: {}; part of the output is lost", std::strerror(lost_output)));
  return exit_refused;
}

void print(std::string_view text) noexcept try {
  const std::string shown = manifest::printable(text);
  if (lost_output == 0 && std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size()) lose_output();
} catch (const std::bad_alloc&) {
  lose_output();
}

void print_json(const Json& json) {
  print(line_of(json));
  flush_output();
}

void say(std::string_view text) noexcept try {
  write_errors(manifest::printable(text));
} catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): a note that cannot be written is dropped
}

void note(std::string_view text) { say(fmt::format("kiln: {}\n", text)); }

void say_error(bool json, std::string_view kind, std::string_view text) {
  flush_output();
  json ? say(line_of({{"error", {{"kind", kind}, {"message", text}}}})) : note(text);
}

void say_out_of_memory(bool json) noexcept {
  flush_output();
  write_errors(json ? "{\"error\":{\"kind\":\"out_of_memory\",\"message\":\"this machine's memory is full\"}}\n"
                    : "kiln: this machine's memory is full\n");
}

bool is_standard_output(const std::string& path) {
  struct stat given {
  }, output{};
  return ::stat(path.c_str(), &given) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 && given.st_dev == output.st_dev &&
         given.st_ino == output.st_ino;
}

void write_text(const std::string& path, std::string_view text) {
  if (path == "-" || is_standard_output(path)) return print(text);
  store::write_text(store::literal_path(path), text);
}

bool is_terminal() {
  const std::string kind = manifest::environment("TERM");
  return ::isatty(STDERR_FILENO) == 1 && !kind.empty() && kind != "dumb";
}

std::size_t terminal_width() {
  winsize size{};
  constexpr std::size_t usual = 80;
  if (const std::size_t asked = columns_asked(); asked > 0) return asked;
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : usual;
}

std::size_t output_width() { return columns_asked() > 0 || ::isatty(STDOUT_FILENO) == 1 ? terminal_width() : 0; }

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void StatusLine::show(std::string_view text, bool now) {
  constexpr double least_interval = 0.05;
  if (!enabled_ || (!now && drawn_ && seconds_now() - last_ < least_interval)) return;
  last_ = seconds_now();
  drawn_ = true;
  winsize size{};
  const std::size_t width = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1U : 79U;
  write_errors(fmt::format("\r{}\x1b[K", manifest::printable(text, manifest::Lines::escaped).substr(0, width)));
}

void StatusLine::clear() {
  if (!drawn_) return;
  drawn_ = false;
  write_errors("\r\x1b[K");
}

std::string bar(double done, double total, int width) {
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(share * width);
  return fmt::format("[{:#<{}}{:-<{}}]", "", full, "", width - full);
}

}  // namespace kiln::cli
