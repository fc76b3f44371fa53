// Who holds a file's lock, beside a file system that does not answer, as one of a network whose server is gone.
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fuse.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <thread>
#include <vector>

#include "store/file_lock.hpp"
#include "store/holder.hpp"
#include "store/support.hpp"

using namespace kiln;
using namespace kiln::store;

namespace {

/// A file system of one file. It answers until hush().
class Silent {
 public:
  explicit Silent(std::filesystem::path folder)
      : folder_(std::move(folder)), requests_(open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    if (requests_ < 0) return;
    const auto options = fmt::format("fd={},rootmode=40000,user_id={},group_id={}", requests_, getuid(), getgid());
    is_mounted_ = mount("silent", folder_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
    if (is_mounted_) server_ = std::thread([this] { serve(); });
  }
  ~Silent() {
    abandon();
    if (server_.joinable()) server_.join();
    if (requests_ >= 0) close(requests_);
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

  [[nodiscard]] bool is_mounted() const { return is_mounted_; }
  [[nodiscard]] std::filesystem::path file() const { return folder_ / "file"; }
  void hush() { silent_ = true; }
  /// Ends all waits for it.
  void abandon() {
    if (is_mounted_) umount2(folder_.c_str(), MNT_FORCE | MNT_DETACH);
    is_mounted_ = false;
  }

 private:
  void serve() {
    std::vector<char> request(FUSE_MIN_READ_BUFFER + (1U << 17U));
    while (read(requests_, request.data(), request.size()) > 0) {
      const auto& asked = *reinterpret_cast<const fuse_in_header*>(request.data());
      if (!silent_) answer(asked);
    }
  }
  void answer(const fuse_in_header& asked) const {
    switch (asked.opcode) {
      case FUSE_INIT: {
        fuse_init_out made{};
        made.major = FUSE_KERNEL_VERSION;
        made.minor = 31;
        made.max_write = 4096;
        return send(asked, made);
      }
      case FUSE_LOOKUP: {
        fuse_entry_out made{};
        made.nodeid = made.attr.ino = 2;
        made.attr.mode = S_IFREG | 0644;
        made.attr.nlink = 1;
        return send(asked, made);
      }
      case FUSE_GETATTR: {
        fuse_attr_out made{};
        made.attr.ino = asked.nodeid;
        made.attr.mode = asked.nodeid == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
        made.attr.nlink = 1;
        return send(asked, made);
      }
      case FUSE_OPEN: return send(asked, fuse_open_out{});
      default: return send(asked, fuse_out_header{}, -ENOSYS);
    }
  }
  template <class Answer>
  void send(const fuse_in_header& asked, const Answer& answer, int error = 0) const {
    std::vector<char> bytes(sizeof(fuse_out_header) + (error == 0 ? sizeof answer : 0));
    const fuse_out_header head{static_cast<std::uint32_t>(bytes.size()), error, asked.unique};
    std::memcpy(bytes.data(), &head, sizeof head);
    if (error == 0) std::memcpy(bytes.data() + sizeof head, &answer, sizeof answer);
    [[maybe_unused]] const auto written = write(requests_, bytes.data(), bytes.size());
  }

  std::filesystem::path folder_;
  int requests_;
  std::atomic<bool> silent_ = false;
  bool is_mounted_ = false;
  std::thread server_;
};

}  // namespace

TEST_CASE("who holds a lock is said also where that process has a file open of a file system that does not answer") {
  const Folder folder;
  std::filesystem::create_directory(folder / "silent");
  Silent silent(folder / "silent");
  if (!silent.is_mounted()) {
    MESSAGE("not tested: this user may not mount a file system of /dev/fuse");
    return;
  }
  const auto path = folder / "a.kiln";
  File::open(path, Access::read_write);
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t holder = in_child([&] {
    const int other = open(silent.file().c_str(), O_RDONLY);
    FileLock lock(open(path.c_str(), O_RDWR));
    const bool holds = other >= 0 && lock.raise_to(SQLITE_LOCK_SHARED) == SQLITE_OK &&
                       lock.raise_to(SQLITE_LOCK_RESERVED) == SQLITE_OK;
    [[maybe_unused]] const auto written = write(ready[1], &holds, sizeof holds);
    for (;;) pause();
    return true;
  });
  bool holds = false;
  REQUIRE(read(ready[0], &holds, sizeof holds) == sizeof holds);
  CHECK(holds);
  silent.hush();
  auto found = std::async(std::launch::async, [&] { return locker_in_words(path); });
  CHECK(found.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  silent.abandon();
  CHECK(found.get().starts_with(fmt::format("process {}", holder)));
  kill(holder, SIGKILL);
  exit_status(holder);
  for (const int end : ready) close(end);
}
