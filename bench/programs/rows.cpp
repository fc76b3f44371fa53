#include "programs/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "manifest/region.hpp"
#include "manifest/variant.hpp"

namespace bench {
namespace {

using kiln::Error;
using kiln::ErrorKind;
namespace manifest = kiln::manifest;
namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::bad_input, what); }

/// The manifests and sources in a folder and its sub-folders, by their names from `root`.
std::vector<manifest::SourceFile> files_in(const fs::path& folder, const fs::path& root) {
  std::vector<manifest::SourceFile> files;
  for (const fs::directory_entry& each : fs::recursive_directory_iterator(folder)) {
    if (each.path().extension() != ".cuh" && each.path().extension() != ".toml") continue;
    std::ifstream stream(each.path(), std::ios::binary);
    files.push_back({each.path().lexically_relative(root).generic_string(),
                     std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>())});
  }
  return files;
}

std::vector<manifest::SourceFile> common_of(const fs::path& tree) {
  if (tree.empty()) return {};
  return files_in(tree / "templates" / "common", tree / "templates");
}

/// Takes a text out of the row. Empty where it has none.
std::string take(Json& row, const char* name) {
  const auto found = row.find(name);
  if (found == row.end()) return {};
  if (!found->is_string()) refuse(fmt::format("its '{}' is no text", name));
  std::string text = found->get<std::string>();
  row.erase(found);
  return text;
}

std::vector<manifest::Setting> settings_of(const std::string& words) {
  std::vector<manifest::Setting> settings;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) refuse(fmt::format("'{}' of its problem is not NAME=VALUE", word));
    settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  return settings;
}

/// The problem, or with a choice's sizes the largest of its bucket that the choice serves, for which its config is checked.
kiln::Problem problem_of(const manifest::Op& op, const std::string& words, const std::string& sizes) {
  const kiln::Problem problem = manifest::make_problem(op, settings_of(words));
  if (sizes.empty()) return problem;
  const auto region = manifest::parse_region(op, problem, sizes);
  if (!region) refuse(fmt::format("its sizes '{}' are not of the bucket '{}'", sizes, words));
  return region->high;
}

/// The config of an implementation, which must be legal for the problem on the device.
manifest::Config config_of(const manifest::Op& op, const manifest::Implementation& implementation,
                           const kiln::Problem& problem, const manifest::DeviceFacts& device, const std::string& text) {
  const auto config = manifest::parse_config(implementation, text);
  if (!config)
    refuse(
        fmt::format("the config '{}' is outside of the declared space of {}/{}", text, op.name, implementation.name));
  if (const auto why = manifest::why_not_eligible({op, device}, implementation, problem))
    refuse(fmt::format("{}/{} cannot serve this problem: {}", op.name, implementation.name, *why));
  if (const auto broken = manifest::Variant{&implementation, *config}.broken_constraint({op, device}, problem))
    refuse(fmt::format("the config breaks the constraint '{}' of {}/{}", *broken, op.name, implementation.name));
  return *config;
}

/// Fills in what the row speaks of. Throws where that is nothing.
void resolve(Program& program, Ops& ops, const std::string& problem_words, const std::string& sizes,
             const std::string& device_class) {
  const auto device = manifest::DeviceFacts::from_device_class(device_class);
  if (!device) refuse(fmt::format("the device class '{}' does not parse", device_class));
  const manifest::Op& op = ops.find(program.op);
  const manifest::Implementation* const implementation = op.find(program.implementation);
  if (implementation == nullptr)
    refuse(fmt::format("the op {} has no implementation '{}'", op.name, program.implementation));
  const kiln::Problem problem = problem_of(op, problem_words, sizes);
  const manifest::Config config = config_of(op, *implementation, problem, *device, program.config);
  const auto frame = manifest::Variant{implementation, config}.frame({op, *device}, problem);
  program.code = kiln::jit::specialise(op, *implementation, frame, kiln::jit::target_arch(device->sm()));
  program.device_class = device_class;
  program.config = manifest::to_string(*implementation, config);
  program.source = manifest::to_hex(kiln::jit::source_digest(program.code));
  program.is_current = kiln::jit::is_present_source(program.code, program.stored);
}

}  // namespace

Ops::Ops(std::vector<fs::path> templates, const fs::path& tree)
    : tree_(tree), catalogue_(std::move(templates)), common_(common_of(tree)) {}

const manifest::Op& Ops::find(const std::string& name) {
  if (tree_.empty()) return catalogue_[catalogue_.index_of(name)];
  if (const auto kept = of_tree_.find(name); kept != of_tree_.end()) return kept->second;
  fs::path folder = tree_ / "templates" / name;
  const auto is_refused = [&](const manifest::RefusedOp& each) { return each.name == name; };
  const auto refused = catalogue_.refused();
  if (std::any_of(refused.begin(), refused.end(), is_refused)) static_cast<void>(catalogue_.index_of(name));
  const manifest::Op* const given = catalogue_.op(name);
  if (given != nullptr && given->folder != "built-in") folder = given->folder;
  if (!fs::exists(folder / manifest::op_file)) refuse(fmt::format("there is no op '{}' in {}", name, tree_.string()));
  // An op's own files come before the library's headers and parts of the same name.
  std::vector<manifest::SourceFile> files = files_in(folder, folder);
  std::erase_if(files, [](const manifest::SourceFile& each) { return each.name.find('/') != std::string::npos; });
  files.insert(files.end(), common_.begin(), common_.end());
  return of_tree_.emplace(name, manifest::parse_op(name, folder.string(), files)).first->second;
}

Program read_program(Ops& ops, const std::string& line, const std::string& device_class) {
  Program program;
  try {
    Json row = Json::parse(line);
    if (!row.is_object()) refuse("the row is no object");
    program.rest = std::move(row);
    program.op = take(program.rest, "op");
    program.implementation = take(program.rest, "implementation");
    program.config = take(program.rest, "config");
    const std::string problem = take(program.rest, "problem"), sizes = take(program.rest, "sizes");
    const std::string own_class = take(program.rest, "device_class");
    program.stored = take(program.rest, "source_digest");
    resolve(program, ops, problem, sizes, own_class.empty() ? device_class : own_class);
  } catch (const Error& error) {
    program.error = error.what();
  } catch (const nlohmann::json::exception& error) {
    program.error = fmt::format("the row is not JSON: {}", error.what());
  }
  return program;
}

std::string class_of_device(const std::string& name) {
  if (name == "h100") return "sm_90/mp132/l2_52428800/smem_232448/bus_5120";
  if (name == "h200") return "sm_90/mp132/l2_62914560/smem_232448/bus_6016";
  return name;
}

}  // namespace bench
