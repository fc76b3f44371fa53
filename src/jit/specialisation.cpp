#include "jit/specialisation.hpp"

#include <algorithm>

#include "cuda/nvrtc_api.hpp"
#include "jit/include_closure.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

/// Hashes the length first, so that no two pairs of lists hash alike.
void hash_list(manifest::Hasher& hasher, const std::vector<std::string>& list) {
  hasher.field(static_cast<std::int64_t>(list.size()));
  for (const std::string& each : list) hasher.field(each);
}

}  // namespace

std::string compiler_identity() {
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::get();
  return "nvrtc " + std::to_string(nvrtc.major) + "." + std::to_string(nvrtc.minor) + " build " + nvrtc.build_id;
}

std::vector<std::string> byte_determining_options(const Specialisation& specialisation) {
  std::vector<std::string> options = {"--std=c++20", "--gpu-architecture=" + specialisation.arch};
  options.insert(options.end(), specialisation.options.begin(), specialisation.options.end());
  return options;
}

namespace {

/// Whether an option asks for line numbers or for a debugger's data, which hold them.
bool asks_for_lines(const std::string& option) {
  return option == "-G" || option == "-g" || option.find("line") != std::string::npos ||
         option.find("debug") != std::string::npos;
}

manifest::Digest key_over(Over over, const Specialisation& specialisation, std::string_view compiler) {
  manifest::Hasher hasher = known_closure(specialisation)->for_cubin_key(over);
  hash_list(hasher, specialisation.name_expressions);
  hash_list(hasher, byte_determining_options(specialisation));
  hasher.field(compiler);
  return hasher.finish();
}

/// Of the cubin keys that are made now.
Over over_of(const Specialisation& specialisation) {
  const auto& options = specialisation.options;
  return std::any_of(options.begin(), options.end(), asks_for_lines) ? Over::text : Over::meaning;
}

manifest::Digest code_digest_over(Over over, const Specialisation& specialisation) {
  manifest::Hasher hasher = known_closure(specialisation)->for_source_digest(over);
  hash_list(hasher, specialisation.name_expressions);
  return hasher.finish();
}

manifest::Digest source_digest_over(Over over, const Specialisation& specialisation) {
  if (specialisation.library.empty()) return code_digest_over(over, specialisation);
  manifest::Hasher hasher;
  hasher.field(specialisation.library).field(specialisation.library_product);
  if (specialisation.has_kernels()) hasher.field(manifest::to_hex(code_digest_over(over, specialisation)));
  return hasher.finish();
}

/// Whether a digest over the text of these sources may be stored.
bool has_digest_over_text(const Specialisation& specialisation) {
  return specialisation.has_kernels() && known_closure(specialisation)->closure.meaning.has_value();
}

bool is_digest_of(manifest::Digest digest_over(Over, const Specialisation&), const Specialisation& specialisation,
                  std::string_view stored) {
  return stored == manifest::to_hex(digest_over(Over::meaning, specialisation)) ||
         (has_digest_over_text(specialisation) && stored == manifest::to_hex(digest_over(Over::text, specialisation)));
}

}  // namespace

manifest::Digest cubin_key(const Specialisation& specialisation, std::string_view compiler) {
  return key_over(over_of(specialisation), specialisation, compiler);
}

std::optional<manifest::Digest> cubin_key_over_text(const Specialisation& specialisation, std::string_view compiler) {
  if (over_of(specialisation) == Over::text || !has_digest_over_text(specialisation)) return std::nullopt;
  return key_over(Over::text, specialisation, compiler);
}

manifest::Digest code_digest(const Specialisation& specialisation) {
  return code_digest_over(Over::meaning, specialisation);
}

bool is_present_code(const Specialisation& specialisation, std::string_view stored) {
  return is_digest_of(code_digest_over, specialisation, stored);
}

manifest::Digest source_digest(const Specialisation& specialisation) {
  return source_digest_over(Over::meaning, specialisation);
}

bool is_present_source(const Specialisation& specialisation, std::string_view stored) {
  return is_digest_of(source_digest_over, specialisation, stored);
}

// From 9.0 on, the suffix adds the architecture's own instructions, such as wgmma on 9.0.
std::string target_arch(std::int64_t sm) { return "sm_" + std::to_string(sm) + (sm >= 90 ? "a" : ""); }

std::string default_arch(std::int64_t sm) {
  const cuda::Nvrtc* nvrtc = cuda::Nvrtc::find();
  if (nvrtc == nullptr) return target_arch(sm);
  const std::vector<std::string> known = supported_archs();
  const auto knows = [&](std::int64_t number) {
    return std::find(known.begin(), known.end(), "sm_" + std::to_string(number)) != known.end();
  };
  if (knows(sm)) return target_arch(sm);
  // Code for an older minor revision of the same major revision runs too, but only without the suffix.
  for (std::int64_t older = sm - 1; older / 10 == sm / 10 && older > 0; --older) {
    if (knows(older)) return "sm_" + std::to_string(older);
  }
  throw Error(ErrorKind::compile_failed,
              "code for compute capability " + std::to_string(sm / 10) + "." + std::to_string(sm % 10) +
                  " was asked for; NVRTC " + std::to_string(nvrtc->major) + "." + std::to_string(nvrtc->minor) +
                  " at " + nvrtc->path + " knows no such target. " +
                  (sm < 80 ? "Kiln's ops need compute capability 8.0" : "Install a newer NVRTC"));
}

std::vector<std::string> supported_archs() {
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::get();
  int count = 0;
  nvrtc.nvrtcGetNumSupportedArchs(&count);
  std::vector<int> numbers(static_cast<std::size_t>(std::max(count, 0)));
  nvrtc.nvrtcGetSupportedArchs(numbers.data());
  std::vector<std::string> archs;
  for (const int number : numbers) archs.push_back("sm_" + std::to_string(number));
  return archs;
}

}  // namespace kiln::jit
