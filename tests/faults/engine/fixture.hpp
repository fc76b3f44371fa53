// What the rows share: a tuned file to begin from, an op whose files may be edited, and a file's rows as values.
#pragma once

#include <fstream>
#include <iterator>

#include "answer/resolver.hpp"
#include "cuda/device.hpp"
#include "cuda/nvrtc_api.hpp"
#include "e2e/command.hpp"
#include "faults/tally.hpp"
#include "jit/executable.hpp"
#include "manifest/variant.hpp"
#include "store/file.hpp"

namespace kiln::faults {

using namespace e2e;
namespace fs = std::filesystem;

/// The op `scale`, tuned at 64 x 128 in f32, with its machine code. Written by the test `setup`, or here when run alone.
fs::path tuned_file();

/// A copy of tuned_file(), for one test.
inline fs::path tuned_overlay(const TemporaryFolder& folder, const char* name = "overlay.kiln") {
  fs::copy_file(tuned_file(), folder / name);
  return folder / name;
}

inline std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  REQUIRE(file);
}

/// A copy of the op `scale` in a folder of its own.
class CopiedOp {
 public:
  explicit CopiedOp(const TemporaryFolder& folder) : root_(folder / "ops") {
    fs::create_directories(root_);
    fs::copy(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale", root_ / "scale");
  }
  /// Replaces the first `from` in one of its files.
  void edit(const char* file, const std::string& from, const std::string& to) const {
    std::string text = read(root_ / "scale" / file);
    const std::size_t at = text.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, std::string(file), " holds no ", from);
    write(root_ / "scale" / file, text.replace(at, from.size(), to));
  }
  void add(const char* file, const std::string& text) const { write(root_ / "scale" / file, text); }
  [[nodiscard]] const fs::path& root() const noexcept { return root_; }
  [[nodiscard]] manifest::Op load() const { return manifest::load_op(root_ / "scale"); }
  /// The same as options(), with these ops.
  [[nodiscard]] Options options(const fs::path& overlay, MissPolicy on_miss = MissPolicy::tune) const {
    Options chosen = e2e::options(overlay, on_miss);
    chosen.template_paths = {root_};
    return chosen;
  }
  /// Global options of the command.
  [[nodiscard]] std::string globals(const fs::path& overlay) const {
    return " --overlay " + overlay.string() + templates();
  }
  [[nodiscard]] std::string templates() const { return " --templates " + root_.string() + " "; }

 private:
  fs::path root_;
};

inline manifest::Op scale_op() { return manifest::load_op(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale"); }
/// Of the fake driver's H200.
inline manifest::DeviceFacts h200() { return cuda::device_info(0).facts; }

/// Of tuned_file()'s record.
inline Problem tuned_bucket(const manifest::Op& op) {
  return manifest::make_problem(op, std::vector<manifest::Setting>{{"rows", "64"}, {"cols", "128"}, {"dtype", "f32"}});
}

/// Of an implementation of `scale` with this config, as its plan at tuned_bucket() has it.
inline jit::Specialisation specialisation_of(const manifest::Op& op, std::string_view implementation,
                                             const manifest::Config& config) {
  const manifest::Implementation& found = *op.find(implementation);
  return jit::specialise(op, found, manifest::Variant{&found, config}.frame({op, h200()}, tuned_bucket(op)), "sm_90a");
}

/// Leaves a record of `scale` the choice of its upper edge, for all sizes.
inline store::Choice& one_choice(store::Record& record) {
  const manifest::Op op = scale_op();
  store::Choice choice = record.at_edge();
  choice.sizes = manifest::to_string(op, manifest::whole_of(op, *manifest::parse_bucket(op, record.bucket)));
  record.choices = {choice};
  return record.choices.front();
}

inline std::vector<store::Record> records_of(const fs::path& path) {
  return store::File::open(path, store::Access::read_only)->records({}, true);
}

/// The record of tuned_file(), changed by `change`, in a file whose digests are those of its rows.
template <class Change>
void change_record(const fs::path& path, Change change) {
  const std::vector<store::Record> records = records_of(path);
  const auto tuned = std::find_if(records.begin(), records.end(),
                                  [](const store::Record& each) { return each.bucket.starts_with("rows=64 "); });
  REQUIRE(tuned != records.end());
  store::Record record = *tuned;
  const auto file = store::File::open(path, store::Access::read_write);
  REQUIRE(file->remove_record(record.key));
  change(record);
  file->put(record, nullptr);
}

/// Variables under which a child compiles by the library that fails as `order` says (see faulty_nvrtc).
inline std::string under_faulty_nvrtc(const std::string& order = "") {
  return "KILN_NVRTC_LIBRARY='" FAULTY_NVRTC "' FAULTY_NVRTC_REAL='" + cuda::Nvrtc::get().path + "' FAULTY_NVRTC='" +
         order + "' ";
}

}  // namespace kiln::faults
