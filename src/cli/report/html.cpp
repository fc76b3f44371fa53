#include "cli/report/html.hpp"

#include <openssl/evp.h>
#include <utf8.h>

#include <array>
#include <new>

#include "cli/units.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

std::string_view entity(char c) {
  switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    case '\n':
    case '\t': return " ";
    default: return {};
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (auto at = text.begin(); at != text.end();) {
    for (const auto invalid = utf8::find_invalid(at, text.end()); at != invalid; ++at) {
      const auto byte = static_cast<unsigned char>(*at);
      if (const auto named = entity(*at); !named.empty())
        out += named;
      else if (byte < 0x20 || byte == 0x7F)
        out += replacement;
      else
        out += *at;
    }
    if (at == text.end()) break;
    out += replacement;
    ++at;
  }
  return out;
}

std::string clipped(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xC0U) == 0x80) --most_bytes;
  return std::string(text.substr(0, most_bytes)) + "…";
}

std::string policy_hash(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  std::array<unsigned char, EVP_MAX_MD_SIZE * 2> base64{};
  const int length = EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(size));
  return fmt::format("'sha256-{}'",
                     std::string_view(reinterpret_cast<const char*>(base64.data()), static_cast<std::size_t>(length)));
}

void open_table(std::string& out, std::string_view about, std::span<const std::string> headings,
                std::string_view attributes, std::string_view frame_class) {
  append(out, "<div class=\"scroll {}\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table {}><thead><tr>",
         frame_class, Text{about}, attributes);
  for (const std::string& heading : headings) {
    const bool right = heading.starts_with("> ");
    append(out, "<th scope=\"col\"{}>{}", right ? " class=\"r\"" : "",
           Text{std::string_view(heading).substr(right ? 2 : 0)});
  }
  out += "</thead><tbody>\n";
}

void close_table(std::string& out) { out += "</tbody></table></div>\n"; }

void open_details(std::string& out, std::string_view what, bool open) {
  append(out, "<details{}><summary>{}</summary>\n", open ? " open" : "", Text{what});
}

void close_details(std::string& out) { out += "</details>\n"; }

void say_left_out(std::string& out, std::size_t count, std::string_view what, std::string_view hint) {
  if (count == 0) return;
  append(out, "<p class=\"note\">{} {} left out here: {}</p>\n", format_count(static_cast<std::int64_t>(count)), what,
         hint);
}

}  // namespace kiln::cli::report
