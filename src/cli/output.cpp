#include "cli/output.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kiln/error.hpp"

namespace kiln::cli {

void print(std::string_view text) { fmt::print(stdout, "{}", text); }

void print_json(const Json& json) {
  fmt::print(stdout, "{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

void note(std::string_view text) { fmt::print(stderr, "kiln: {}\n", text); }

void write_text(const std::string& path, std::string_view text) {
  const std::string beside = path + ".new";
  std::ofstream file(beside, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(beside, path, error);
  if (file && !error) return;
  std::filesystem::remove(beside, error);
  throw Error(ErrorKind::io, fmt::format("{} cannot be written; is its folder there, and yours?", path));
}

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

std::size_t terminal_width() {
  winsize size{};
  constexpr std::size_t usual = 80;
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : usual;
}

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
  fmt::print(stderr, "\r{}\x1b[K", text.substr(0, width));
  std::fflush(stderr);
}

void StatusLine::clear() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

std::string bar(double done, double total, int width) {
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(share * width);
  return fmt::format("[{:#<{}}{:-<{}}]", "", full, "", width - full);
}

}  // namespace kiln::cli
