// The file systems of this executable: below a folder that a test names, statfs answers with the type that it says.
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "faults/skip.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "manifest/key.hpp"
#include "store/layers.hpp"

namespace {

std::string remote_folder;
std::string second_remote_folder;
unsigned remote_type = 0;

bool is_below(const char* path, const std::string& folder) {
  return !folder.empty() && std::string_view(path).starts_with(folder);
}

}  // namespace

extern "C" int statfs(const char* path, struct statfs* status) noexcept {
  const auto result = static_cast<int>(syscall(SYS_statfs, path, status));
  if (result == 0 && (is_below(path, remote_folder) || is_below(path, second_remote_folder)))
    status->f_type = static_cast<__fsword_t>(remote_type);
  return result;
}

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

struct Type {
  unsigned magic;
  std::string name;
};

const std::vector<Type> types = {
    {0x6969, "NFS"},     {0x517b, "SMB"},      {0xff534d42, "CIFS"},  {0xfe534d42, "SMB2"},   {0x65735546, "FUSE"},
    {0x5346414f, "AFS"}, {0x6b414653, "AFS"},  {0x00c36400, "Ceph"},  {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"},
    {0x01021997, "9P"},  {0x73757245, "Coda"}, {0x7461636f, "OCFS2"}, {0x01161970, "GFS2"},   {0x19830326, "BeeGFS"}};

/// While it lives, what is below the folder is on a remote file system.
class Remote {
 public:
  explicit Remote(const fs::path& folder, unsigned type, const fs::path& second = {}) {
    remote_folder = folder;
    second_remote_folder = second;
    remote_type = type;
  }
  ~Remote() { remote_folder = second_remote_folder = {}; }
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;
};

/// The stand-in of an overlay, removed at the end.
class StandIn {
 public:
  explicit StandIn(const fs::path& overlay)
      : path_(folder() /
              ("overlay-" +
               manifest::to_hex(manifest::Hasher().field(std::string_view(overlay.native())).finish()).substr(0, 16) +
               ".kiln")) {}
  ~StandIn() {
    std::error_code ignored;
    fs::remove(path_, ignored);
    fs::remove(folder(), ignored);  // unless a user's own stand-ins are there
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  static fs::path folder() { return "/var/tmp/kiln-" + std::to_string(geteuid()); }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST_CASE(
    "fault 19: an overlay on a network or user-space file system gives way to one on the local disk, with one warning") {
  const Folder folder;
  const auto overlay = folder / "deep" / "er" / "overlay.kiln";  // judged by the nearest folder that there is
  const StandIn stand_in(overlay);
  std::int64_t cases = 0;
  for (const Type& type : types) {
    CAPTURE(type.name);
    const Remote remote(folder.path(), type.magic);
    Layers layers({.overlay = overlay});
    REQUIRE(layers.warnings().size() == 1);
    CAPTURE(layers.warnings()[0]);
    CHECK(contains(layers.warnings()[0],
                   "'" + overlay.string() + "' is on " + type.name + ", where files cannot be locked reliably"));
    CHECK(contains(layers.warnings()[0], "'" + stand_in.path().string() + "' serves as overlay instead"));
    CHECK(layers.layers()[0].path == stand_in.path());
    layers.overlay().put(sample_record_at(static_cast<int>(cases)), nullptr);
    for (int at = 0; at <= cases; ++at) CHECK(layers.find_record(sample_key(at)));  // what earlier ones put is there
    CHECK(!fs::exists(folder / "deep"));
    ++cases;
  }
  struct stat status {};
  REQUIRE(stat(StandIn::folder().c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
  CHECK(Layers({.overlay = overlay}).warnings().empty());  // local by now
  faults::tally(19, cases, "types of file system");
}

TEST_CASE("fault 19: an overlay that lies on such a file system is left as it is, and serves as a base") {
  const Folder folder;
  const auto path = sample_file(folder / "overlay.kiln");
  const auto before = bytes_of(path);
  const StandIn stand_in(path);
  const Remote remote(folder.path(), 0x6969);
  Layers layers({.overlay = path, .bases = {path}});
  CHECK(layers.warnings().size() == 1);
  CHECK(layers.find_record("key0")->layer == 1);
  CHECK(layers.find_cubin(digest_named("0")));
  layers.overlay().put(sample_record("mine"), nullptr);
  CHECK(bytes_of(path) == before);
  faults::tally(19, 1, "overlays that are there already");
}

TEST_CASE("fault 19: without a local folder memory serves, with one warning") {
  const Folder folder;
  const StandIn stand_in(folder / "overlay.kiln");
  const auto check_memory = [&](std::string_view reason) {
    Layers layers({.overlay = folder / "overlay.kiln"});
    REQUIRE(layers.warnings().size() == 1);
    CAPTURE(layers.warnings()[0]);
    CHECK(contains(layers.warnings()[0], "is on FUSE"));
    CHECK(contains(layers.warnings()[0], reason));
    CHECK(contains(layers.warnings()[0], "kept in memory only"));
    layers.overlay().put(sample_record("mine"), nullptr);
    CHECK(layers.find_record("mine"));
    CHECK(!fs::exists(folder / "overlay.kiln"));
    faults::tally(19, 1, "machines without a local folder");
  };
  {
    const Remote remote(folder.path(), 0x65735546, "/var/tmp");
    check_memory("is on FUSE as well");
  }
  if (fs::exists(StandIn::folder())) return faults::skip("this user has stand-ins of his own, which are left alone");
  const Remote remote(folder.path(), 0x65735546);
  fs::create_directory_symlink(folder.path(), StandIn::folder());
  check_memory("is not a folder of this user alone");
  fs::remove(StandIn::folder());
  fs::create_directory(StandIn::folder());
  fs::permissions(StandIn::folder(), fs::perms::owner_all | fs::perms::group_write);
  check_memory("is not a folder of this user alone");
}

}  // namespace
}  // namespace kiln::store
