// From a row of a result, or a choice of a record, to the specialisation that it speaks of. Needs no GPU and no NVRTC.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jit/specialisation.hpp"
#include "manifest/catalogue.hpp"

namespace bench {

using Json = nlohmann::ordered_json;

/// Ops of folders, then those of the library, or of another checkout in place of the library's.
class Ops {
 public:
  /// `templates`: folders of ops, as Options::template_paths. `tree`: a checkout, with manifests, common/ headers and parts in its templates/;
  /// empty: the library's. Throws Error(io) for a folder that cannot be listed.
  Ops(std::vector<std::filesystem::path> templates, const std::filesystem::path& tree);
  /// Throws Error(bad_input) for an unknown op, and Error(bad_manifest) for one that today's parser refuses.
  const kiln::manifest::Op& find(const std::string& name);

 private:
  std::filesystem::path tree_;
  kiln::manifest::Catalogue catalogue_;
  std::vector<kiln::manifest::SourceFile> common_;     // the tree's, by include name
  std::map<std::string, kiln::manifest::Op> of_tree_;  // with common_ among their own files
};

/// What a row speaks of, or why nothing.
struct Program {
  std::string op, implementation, config;  // the config with each parameter
  std::string device_class;
  std::string source;       // jit::source_digest in hexadecimal digits
  std::string stored;       // the row's own digest, if any
  bool is_current = false;  // by `stored`
  kiln::jit::Specialisation code;
  Json rest = Json::object();  // the row's further fields
  std::string error;           // not empty: the members above are what the row says
};

/// `device_class` is that of rows without one. Never throws for what a row holds.
Program read_program(Ops& ops, const std::string& line, const std::string& device_class);

/// The device class of the records that ship for "h100" or "h200"; another word is returned as it is.
std::string class_of_device(const std::string& name);

}  // namespace bench
