#include "cli/report/page.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <new>

namespace kiln::cli::report {
namespace {

/// Returns JSON as the text of a <script> element: ASCII, with each '<' escaped, so that no string can end the element.
/// JSON has '<' in strings alone.
std::string script_data(const Json& json) {
  std::string data;
  for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace))
    if (c == '<')
      data += "\\u003c";
    else
      data += c;
  return data;
}

}  // namespace

std::string policy_hash(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  std::array<unsigned char, EVP_MAX_MD_SIZE * 2> base64{};
  const int length = EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(size));
  return fmt::format("'sha256-{}'",
                     std::string_view(reinterpret_cast<const char*>(base64.data()), static_cast<std::size_t>(length)));
}

std::string page_of(const Json& facts) {
  return fmt::format(fmt::runtime(page_template()), fmt::arg("style_hash", policy_hash(page_style())),
                     fmt::arg("style", page_style()), fmt::arg("script_hash", policy_hash(page_script())),
                     fmt::arg("script", page_script()), fmt::arg("facts", script_data(facts)));
}

}  // namespace kiln::cli::report
