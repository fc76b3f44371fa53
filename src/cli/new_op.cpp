// kiln new: writes an op to begin with.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "check/skeleton.hpp"
#include "cli/commands.hpp"
#include "cli/next_step.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/text.hpp"
#include "store/output_file.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct NewSettings {
  std::string op;
  std::string folder = ".";
};

void declare(CLI::App& command, NewSettings& settings) {
  command.add_option("op", settings.op, "The op's name: letters, digits and underscores")->type_name("OP")->required();
  command.add_option("folder", settings.folder, "The folder in which the op's folder is made")
      ->capture_default_str()
      ->type_name("FOLDER");
}

/// Whether Kiln, or a folder of KILN_TEMPLATE_PATH, has an op of this name. A folder that is named earlier comes first.
bool hides_another(const std::string& op) {
  const manifest::Catalogue ops(std::span<const fs::path>{});
  const auto is_it = [&](const manifest::RefusedOp& each) { return each.name == op; };
  return ops.find(op).has_value() || std::ranges::any_of(ops.refused(), is_it);
}

/// The name that two of the files have, else an empty string.
std::string name_of_two(std::span<const manifest::SourceFile> files) {
  for (std::size_t i = 1; i < files.size(); ++i)
    if (std::ranges::find(files.first(i), files[i].name, &manifest::SourceFile::name) != files.first(i).end())
      return files[i].name;
  return {};
}

/// The op's new folder, which is removed again unless all of it was written.
class NewFolder {
 public:
  explicit NewFolder(fs::path path) : path_(std::move(path)) {
    std::error_code failure;
    if (fs::symlink_status(path_, failure).type() != fs::file_type::not_found && !failure) refuse_existing();
    const bool is_made = fs::create_directories(path_, failure);
    if (failure)
      throw Error(ErrorKind::io, fmt::format("the folder '{}' cannot be made: {}", path_.string(), failure.message()));
    if (!is_made) refuse_existing();  // another process made it just now
  }
  ~NewFolder() {
    std::error_code ignored;
    if (!is_whole_) fs::remove_all(path_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  void keep() noexcept { is_whole_ = true; }

 private:
  [[noreturn]] void refuse_existing() const {
    throw Error(ErrorKind::bad_input, fmt::format("'{}' is there already; name another op", path_.string()));
  }
  fs::path path_;
  bool is_whole_ = false;
};

int run(const Globals& globals, const NewSettings& settings) {
  if (settings.op.size() > manifest::max_name_length)
    throw Error(ErrorKind::bad_input, fmt::format("the op's name has {} characters, expected {} at most",
                                                  settings.op.size(), manifest::max_name_length));
  if (!manifest::is_identifier(settings.op))
    throw Error(ErrorKind::bad_input,
                fmt::format("an op named {}; expected {}", manifest::quote(settings.op), manifest::name_rule()));
  if (const std::string what = check::what_else_it_is(settings.op); !what.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("the op's kernel would have its name, and '{}' is {}; name another op", settings.op, what));
  const std::vector<manifest::SourceFile> written = check::skeleton(settings.op);
  if (const std::string twice = name_of_two(written); !twice.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("the op's source and its reference would both be {}; name another op", twice));
  if (hides_another(settings.op))
    throw Error(ErrorKind::bad_input,
                fmt::format("there is an op '{}' already, which this one would hide; name another op", settings.op));
  const fs::path folder = fs::path(settings.folder) / settings.op;
  NewFolder made(folder);
  Json files = Json::array();
  for (const manifest::SourceFile& each : written) {
    const std::string path = (folder / each.name).string();
    store::write_text(path, each.text);
    files.push_back(path);
  }
  made.keep();
  if (globals.json) {
    print_json({{"event", "written"}, {"op", settings.op}, {"files", files}});
    return exit_good;
  }
  const std::string templates = shell_word(settings.folder);
  print(wrapped_text(fmt::format("{} is an op, y = x * factor. Change its files, and check it after each change:\n",
                                 folder.string())));
  print(wrapped_command("kiln check " + shell_word(folder.string())));
  print("Then, with a GPU:\n");
  print(wrapped_command(fmt::format("kiln tune {} count=1..1048576 --templates {}", settings.op, templates)));
  print(wrapped_command(fmt::format("kiln run {} count=1000 --templates {}", settings.op, templates)));
  return exit_good;
}

}  // namespace

void add_new(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<NewSettings>(
      app, chosen, "new", "Write the folder of a new op, which can be checked, tuned and launched as it is", declare,
      run, takes_none);
  command->footer("Examples:\n  kiln new scale my_ops    writes my_ops/scale: op.toml, an implementation, two sources");
}

}  // namespace kiln::cli
