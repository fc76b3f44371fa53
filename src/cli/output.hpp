// The standard streams: results go to the standard output; progress, notes and errors to the standard error. Nothing here
// throws or ends the process when a stream cannot be written: what the command does is done all the same.
//   standard error    what cannot be written is let go, and the exit status is as without it
//   standard output   the first failure is kept, what follows is let go, and close_output() tells it at the end
// What comes from files, names and messages may be hostile: all text is escaped here as manifest::printable does.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kiln::cli {

using Json = nlohmann::ordered_json;

/// Once, before anything is opened: SIGPIPE is ignored, and no file gets the descriptor of a stream that is closed.
void open_output() noexcept;
/// Once, at the end. The exit status: `status`, unless part of the output is lost. Then it is exit_broken_pipe when nobody reads
/// the output any more, without a word; else exit_refused, with a sentence.
int close_output(int status, bool json);

void print(std::string_view text) noexcept;
/// One JSON object, one line.
void print_json(const Json& json);
/// "kiln: TEXT" on the standard error.
void note(std::string_view text);
/// The same; as {"error": {...}} when `json`. What was printed stands before it.
void say_error(bool json, std::string_view kind, std::string_view text);
/// Text on the standard error, with nothing before it.
void say(std::string_view text) noexcept;
/// As store::write_text; to the standard output where the path is "-" or leads there.
void write_text(const std::string& path, std::string_view text);

/// True when the standard error is a terminal that can redraw a line.
bool is_terminal();

/// Columns of the standard output's terminal, or 80.
std::size_t terminal_width();

/// A line of a terminal that is drawn over and over. Nothing is drawn unless `enabled`.
class StatusLine {
 public:
  explicit StatusLine(bool enabled) : enabled_(enabled) {}
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  /// Cut to the terminal's width; redrawn at most twenty times a second unless `now`.
  void show(std::string_view text, bool now = false);
  void clear();
  [[nodiscard]] bool enabled() const noexcept { return enabled_; }

 private:
  bool enabled_;
  bool drawn_ = false;
  double last_ = 0;  // seconds
};

double seconds_now();  // of a clock that never goes back

/// "[######----]" with `width` places between the brackets.
std::string bar(double done, double total, int width);

}  // namespace kiln::cli
