#include "cli/signatures.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "cli/output.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "store/signing.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {

std::size_t signatures_of(const std::string& path) try {
  std::error_code ignored;
  if (path.empty() || store::is_text(path) || !std::filesystem::exists(path, ignored)) return 0;
  return store::signature_states(path, store::KeyRing()).size();
} catch (const Error&) {
  return 0;
}

void say_unsigned(const Globals& globals, const std::string& path, std::size_t lost) {
  if (lost == 0 || globals.quiet) return;
  note(fmt::format(
      "{} is not signed: {} of its former content or of its inputs cannot be kept; sign it with kiln cache sign {} --key KEY.pem",
      path, counted(static_cast<std::int64_t>(lost), "signature"), path));
}

}  // namespace kiln::cli
