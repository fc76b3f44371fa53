#include "cli/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "cli/output.hpp"
#include "kiln/error.hpp"
#include "spec/text_file.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> paths_of(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

TrustPolicy policy_of(const Globals& globals) {
  return globals.trust ? store::parse_trust_policy(*globals.trust, "--trust") : store::trust_policy(std::nullopt);
}

}  // namespace

void ImportedBases::PrivateFolder::make() {
  if (!path.empty()) return;
  const fs::path parent = fs::temp_directory_path();
  std::string pattern = (parent / "kiln-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    throw Error(ErrorKind::io,
                fmt::format("no folder can be made in {}; set TMPDIR to a place that can be written", parent.string()));
  path = pattern;
}

ImportedBases::PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
}

ImportedBases::ImportedBases(Globals& globals) {
  globals.base_names = globals.bases;
  for (std::size_t i = 0; i < globals.bases.size(); ++i) {
    std::string& base = globals.bases[i];
    if (!fs::exists(base))
      throw Error(ErrorKind::bad_input,
                  fmt::format("the base {} does not exist; give the path of a .kiln or .jsonl file", base));
    if (!is_text(base)) continue;
    folder_.make();
    const fs::path built = folder_.path / fmt::format("{}.{}.kiln", fs::path(base).stem().string(), i);
    import_from(base, *store::File::open(built, store::Access::read_write));
    base = built.string();
  }
}

Options engine_options(const Globals& globals) {
  Options options;
  options.device = globals.device;
  if (globals.overlay) options.overlay = *globals.overlay;
  options.bases = paths_of(globals.bases);
  options.template_paths = paths_of(globals.templates);
  options.trust = policy_of(globals);
  options.trusted_keys = paths_of(globals.trusted_keys);
  return options;
}

std::vector<spec::Op> load_ops(const Globals& globals) { return spec::load_ops(paths_of(globals.templates)); }

store::LayerSettings layer_settings(const Globals& globals) {
  return {globals.overlay ? std::optional<fs::path>(*globals.overlay) : store::default_overlay(),
          paths_of(globals.bases), policy_of(globals), store::key_folders(paths_of(globals.trusted_keys)),
          Options{}.overlay_limit_bytes};
}

store::CodeTrust code_trust(const Globals& globals) {
  std::vector<std::string> warnings;
  store::CodeTrust trust{policy_of(globals),
                         store::KeyRing::read(store::key_folders(paths_of(globals.trusted_keys)), warnings)};
  if (!globals.quiet)
    for (const std::string& warning : warnings) note(warning);
  return trust;
}

store::Layers open_layers(const Globals& globals) {
  store::Layers layers(layer_settings(globals));
  say_warnings(globals, layers);
  return layers;
}

void say_warnings(const Globals& globals, const store::Layers& layers) {
  if (globals.quiet) return;
  for (const std::string& warning : layers.warnings()) note(warning);
}

bool is_text(const fs::path& path) { return path.extension() == ".jsonl"; }

store::TransferReport import_from(const fs::path& path, store::File& to) {
  spec::check_regular_file(path);
  std::ifstream text(path);
  if (!text) throw Error(ErrorKind::io, fmt::format("{} cannot be read", path.string()));
  return store::import_text(text, path.string(), to);
}

std::unique_ptr<store::File> open_records(const fs::path& path) {
  if (!fs::exists(path)) throw Error(ErrorKind::bad_input, fmt::format("the file {} does not exist", path.string()));
  if (!is_text(path)) return store::File::open(path, store::Access::read_only);
  auto file = store::File::in_memory();
  import_from(path, *file);
  return file;
}

}  // namespace kiln::cli
