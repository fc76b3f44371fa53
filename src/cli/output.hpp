// The standard streams. Results go to the standard output; progress, notes and errors to the standard error. A failed
// write neither throws nor ends the process: the command finishes its work.
//   standard error    text that cannot be written is dropped, and the exit status does not change
//   standard output   after the first failure text is dropped, and close_output() reports that failure
// Text from files, names and messages may be hostile, so all text is escaped by manifest::printable.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kiln::cli {

using Json = nlohmann::ordered_json;

/// Ignores SIGPIPE, and keeps files from getting the descriptor of a closed stream. Call it once, before any file is
/// opened.
void open_output() noexcept;
/// Returns the exit status: `status`, or when output was lost, exit_broken_pipe if the reader closed the pipe, else
/// exit_refused with an error. Call it once, at the end.
int close_output(int status, bool json);

void print(std::string_view text) noexcept;
/// Prints one JSON object on one line.
void print_json(const Json& json);
/// Writes "kiln: TEXT" to the standard error.
void note(std::string_view text);
/// Writes an error as note() does, or with `json` as {"error": {...}}. Flushes the standard output before.
void say_error(bool json, std::string_view kind, std::string_view text);
/// Says likewise that this machine's memory is full. Allocates nothing.
void say_out_of_memory(bool json) noexcept;
/// Writes text to the standard error as it is.
void say(std::string_view text) noexcept;
/// True for a path of the file, device or pipe that the standard output is, such as /dev/stdout.
bool is_standard_output(const std::string& path);
/// Writes as store::write_text does, or to the standard output when the path is "-" or names it.
void write_text(const std::string& path, std::string_view text);

/// True when the standard error is a terminal that can redraw a line.
bool is_terminal();

/// COLUMNS, else the columns of the standard output's terminal, else 80.
std::size_t terminal_width();
/// Columns that the standard output holds: COLUMNS, else those of its terminal; 0, without limit, for a file or a pipe.
std::size_t output_width();

/// A progress line of a terminal. Draws nothing unless `enabled`.
class StatusLine {
 public:
  explicit StatusLine(bool enabled) : enabled_(enabled) {}
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  /// Draws the text, cut to the terminal's width, at most twenty times a second unless `now`.
  void show(std::string_view text, bool now = false);
  void clear();
  [[nodiscard]] bool enabled() const noexcept { return enabled_; }

 private:
  bool enabled_;
  bool drawn_ = false;
  double last_ = 0;  // seconds
};

double seconds_now();  // of a monotonic clock

/// Returns "[######----]" with `width` characters between the brackets.
std::string bar(double done, double total, int width);

}  // namespace kiln::cli
