// What every command is given: the global options, and what follows from them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kiln/options.hpp"
#include "spec/op.hpp"
#include "store/layers.hpp"
#include "store/transfer.hpp"
#include "store/trust.hpp"

namespace kiln::cli {

struct Globals {
  bool json = false;
  bool quiet = false;
  int device = 0;
  std::optional<std::string> overlay;
  std::vector<std::string> bases;
  std::vector<std::string> base_names;  // the bases as they were given, once text was imported
  std::vector<std::string> templates;
  std::optional<std::string> trust;
  std::vector<std::string> trusted_keys;
};

/// While it lives, each base that is text (.jsonl) is replaced by a .kiln file of the same records in a private folder.
/// Throws Error(bad_input) for a base that does not exist and for text that does not hold.
class ImportedBases {
 public:
  explicit ImportedBases(Globals& globals);

 private:
  /// Made at the first need, and gone with what it holds at the end.
  struct PrivateFolder {
    PrivateFolder() = default;
    ~PrivateFolder();
    PrivateFolder(const PrivateFolder&) = delete;
    PrivateFolder& operator=(const PrivateFolder&) = delete;
    void make();
    std::filesystem::path path;
  };
  PrivateFolder folder_;
};

Options engine_options(const Globals& globals);
std::vector<spec::Op> load_ops(const Globals& globals);
store::LayerSettings layer_settings(const Globals& globals);
/// What decides whether another file's machine code is copied.
store::CodeTrust code_trust(const Globals& globals);
/// What could not be opened is said on the standard error.
store::Layers open_layers(const Globals& globals);
void say_warnings(const Globals& globals, const store::Layers& layers);

/// Adds the records of a .jsonl file. Throws Error(bad_input) as import_text does, and for what is no regular file.
store::TransferReport import_from(const std::filesystem::path& path, store::File& to);
/// Reads text as a .kiln file in memory, or opens the file, by its name.
std::unique_ptr<store::File> open_records(const std::filesystem::path& path);
bool is_text(const std::filesystem::path& path);

}  // namespace kiln::cli
