// Text of a page. Whatever comes from a file goes through Text, which escapes it: files may be hostile.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

namespace kiln::cli::report {

/// Formats as character data or as a quoted attribute's value, whatever it holds: markup characters are escaped, controls and
/// what is not UTF-8 become U+FFFD.
struct Text {
  std::string_view text;
};
std::string escaped(std::string_view text);

/// The beginning of a long text, with an ellipsis; never cut inside a character.
std::string clipped(std::string_view text, std::size_t most_bytes = 160);

/// "'sha256-...'": what a Content-Security-Policy calls an inline style or script by.
std::string policy_hash(std::string_view text);

template <class... Arguments>
void append(std::string& out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Arguments>(arguments)...);
}

/// A table that scrolls in its own frame, up to its rows. A heading that begins with '>' stands flush right, as in cli::Table.
void open_table(std::string& out, std::string_view about, std::span<const std::string> headings,
                std::string_view attributes = {}, std::string_view frame_class = {});
void close_table(std::string& out);

/// A <details> with `what` to open it by: the table behind a picture.
void open_details(std::string& out, std::string_view what, bool open = false);
void close_details(std::string& out);

/// "12 charts are left out: HINT" as a paragraph, when `count` is not 0. `what` comes in the plural.
void say_left_out(std::string& out, std::size_t count, std::string_view what, std::string_view hint);

}  // namespace kiln::cli::report

template <>
struct fmt::formatter<kiln::cli::report::Text> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(kiln::cli::report::Text value, Context& context) const {
    return fmt::formatter<std::string_view>::format(kiln::cli::report::escaped(value.text), context);
  }
};
