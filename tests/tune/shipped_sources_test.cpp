// What an edit of a header that all kernels include does to the records that ship.
#include <doctest/doctest.h>

#include <fstream>
#include <functional>
#include <map>

#include "answer/serving.hpp"
#include "jit/executable.hpp"
#include "store/transfer.hpp"

namespace kiln::tune {
namespace {

namespace fs = std::filesystem;
using Edit = std::function<std::string(const std::string& text)>;

/// The built-in ops, with their own common/types.cuh, which comes before the library's.
class EditedOps {
 public:
  explicit EditedOps(Edit edit) : edit_(std::move(edit)) {}
  const manifest::Op& named(const std::string& name) {
    const auto found = ops_.find(name);
    if (found != ops_.end()) return found->second;
    manifest::Op op = *built_in_.op(name);
    std::vector<manifest::SourceFile> files = op.files.files();
    for (const manifest::SourceFile& header : manifest::common_headers())
      if (header.name == "common/types.cuh") files.push_back({header.name, edit_(header.text.str())});
    op.files = std::move(files);
    return ops_.emplace(name, std::move(op)).first->second;
  }

 private:
  Edit edit_;
  manifest::Catalogue built_in_{std::span<const fs::path>()};
  std::map<std::string, manifest::Op> ops_;
};

/// The choices that were tuned from the sources of these ops, of every fifth record. A library's version does not count.
std::int64_t present_choices(store::File& file, EditedOps& ops) {
  std::int64_t present = 0, records = 0;
  for (const store::Record& record : file.records()) {
    if (records++ % 5 != 0) continue;
    const manifest::Op& op = ops.named(record.op);
    const auto device = manifest::DeviceFacts::from_device_class(record.device_class).value();
    const auto servings = servings_of({{op, device}, manifest::parse_bucket(op, record.bucket).value()}, record);
    for (const auto* role : {&servings.fastest, &servings.without_library})
      for (const Serving& each : *role)
        present +=
            jit::is_present_source(jit::specialise({op, device}, each, each.at(), {}), each.choice.source_digest);
  }
  return present;
}

}  // namespace

TEST_CASE("a comment in a header that all kernels include makes no record that ships stale, and a token does") {
  EditedOps plain([](const std::string& text) { return text; });
  EditedOps commented([](const std::string& text) { return "// A comment.\n" + text + "/* Another. */\n"; });
  EditedOps changed([](const std::string& text) { return text + ";\n"; });
  for (const char* name : {"h100.jsonl", "h200.jsonl"}) {
    CAPTURE(std::string(name));
    const auto file = store::File::in_memory();
    std::ifstream text(fs::path(KILN_SOURCE_DIR) / "cache" / name);
    store::import_text(text, name, *file);
    const std::int64_t present = present_choices(*file, plain);
    CHECK(present > 0);
    CHECK(present_choices(*file, commented) == present);
    CHECK(present_choices(*file, changed) < present);
  }
}

}  // namespace kiln::tune
