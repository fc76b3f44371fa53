// A page is sent to others, so it names no home folder.
#include <cctype>

#include "cli/report/facts.hpp"
#include "manifest/environment.hpp"

namespace kiln::cli::report {
namespace {

bool is_of_name(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

/// Replaces `home`, and with `any` the name of a folder in it, by "~" wherever a path begins with it.
void hide(std::string& text, const std::string& home, bool any) {
  for (std::size_t at = 0; (at = text.find(home, at)) != std::string::npos;) {
    std::size_t end = at + home.size();
    if (any)
      while (end < text.size() && is_of_name(text[end])) ++end;
    const bool begins = at == 0 || (!is_of_name(text[at - 1]) && text[at - 1] != '/');
    const bool ends = end == text.size() || !is_of_name(text[end]);
    if (begins && ends && end > at + (any ? home.size() : 0)) text.replace(at, end - at, "~");
    ++at;
  }
}

}  // namespace

void hide_homes(Json& document) {
  if (document.is_string()) {
    auto& text = document.get_ref<std::string&>();
    if (text.find('/') == std::string::npos) return;
    if (const std::string own = manifest::environment("HOME"); own.size() > 1 && own.front() == '/')
      hide(text, own, false);
    hide(text, "/home/", true);
    hide(text, "/root", false);
    return;
  }
  if (!document.is_structured()) return;  // a number iterates over itself
  for (Json& each : document) hide_homes(each);
}

}  // namespace kiln::cli::report
