// The bytes of a whole .kiln file, opened as a base and as the overlay. It is refused, or set aside, or read: no look-up
// throws, no base is written to, and what is put into a file that was begun anew is found there.
#include <cstdint>
#include <sstream>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "sample_rows.hpp"
#include "store/layers.hpp"
#include "store/transfer.hpp"
#include "store/verify.hpp"
#include "support.hpp"

namespace kiln::fuzz {
namespace {

namespace fs = std::filesystem;

void read_everything(store::File& file) {
  for (const char* key : {"first", "second", "absent", ""})
    if (const auto record = file.find_record(key, true))
      require(record->key == key, "a record that is found has the key that was asked for");
  for (const char* name : {"one", "absent"})
    if (const auto cubin = file.find_cubin(sample_key(name)))
      require(cubin->key == sample_key(name), "a cubin that is found has the key that was asked for");
  for (const store::Record& record : file.records({}, true))
    require(!record.key.empty(), "a record that is listed has a key");
  (void)file.records("scale");
  (void)file.compilers();
  (void)file.histogram();
  (void)file.usage();
  (void)file.stats();
  (void)file.bytes_by_op();
}

/// Transfers say what they could not read, for it must not be taken for the end. Of some tables that it cannot parse SQLite
/// says that there is no memory, which is believed: a sound file must not be called damaged when there is none.
template <class Work>
void may_find_damage(Work&& work) try {
  work();
} catch (const Error& error) {
  const bool no_memory = std::string_view(error.what()).ends_with("out of memory");
  require(error.kind() == ErrorKind::bad_file || no_memory, "only damage stands in the way", error.what());
}

/// What is exported from a file can be opened and holds the same records.
void check_export(store::File& file, const fs::path& to) {
  const auto report = export_file(file, to, {}, true);
  std::ostringstream before, after;
  const auto exported = store::File::open(to, store::Access::read_only);
  export_text(*exported, after, {});
  export_text(file, before, {});
  require(exported->stats().records == report.added, "an export holds what its report says");
  require(before.str() == after.str(), "an export holds the records of its source");
  require(exported->counters().quarantined == 0, "an export holds no damaged row");
}

void read_through(store::Layers& layers) {
  (void)layers.find_record("first");
  (void)layers.find_cubin(sample_key("one"));
  (void)layers.compilers();
  (void)layers.records("scale");
}

void open_as_base(const fs::path& path, std::string_view bytes, const fs::path& exported) {
  store::Layers layers({.bases = {path}});
  read_through(layers);
  const store::Layer& base = layers.layers()[1];
  if (base.file != nullptr) {
    read_everything(*base.file);
    may_find_damage([&] { (void)base.file->cubins(); });
    may_find_damage([&] { check_export(*base.file, exported); });
  }
  may_find_damage([&] { (void)store::verify(path); });
  require(read_bytes(path) == bytes, "a base is not written to");
}

/// Nothing but damage may be found, and of that the bytes are kept, here or under another name.
void check_refusal(const fs::path& path, const store::Layers& layers, std::string_view bytes) {
  const fs::path aside = path.native() + ".damaged-1";
  const bool in_memory = !layers.layers()[0].refused.empty();
  require(in_memory || fs::exists(aside), "an overlay with a warning is replaced by one in memory or set aside");
  require(read_bytes(in_memory ? path : aside) == bytes, "a file that is refused or set aside is not changed");
}

void open_as_overlay(const fs::path& path, std::string_view bytes) {
  store::Layers layers({.overlay = path});
  const bool anew = !layers.warnings().empty();
  if (anew) check_refusal(path, layers, bytes);
  read_through(layers);
  store::File& overlay = layers.overlay();
  read_everything(overlay);
  const auto write = [&] {
    const store::CubinRow cubin = sample_cubin("new");
    overlay.put(sample_record("new"), &cubin);
    if (anew) require(overlay.find_record("new").has_value(), "what is put into a file begun anew is found there");
    (void)overlay.remove_record("first");
    overlay.add_to_histogram({{"scale", "rows=100", 1}});
    (void)overlay.acquire_lease("second", "another", 60);
    overlay.flush_usage();
    (void)overlay.prune({.max_bytes = 4096});
    overlay.compact();
  };
  if (anew)
    write();
  else
    may_find_damage(write);
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln::fuzz;
  static const Scratch folder;
  folder.clear();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  write_bytes(folder / "base.kiln", bytes);
  write_bytes(folder / "overlay.kiln", bytes);
  open_as_base(folder / "base.kiln", bytes, folder / "exported.kiln");
  open_as_overlay(folder / "overlay.kiln", bytes);
  return 0;
}
