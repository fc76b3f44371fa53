// The calls on files that SQLite and the store make, in the test's hands: each can be seen, and made to fail.
//
// SQLite's go through its own table (sqlite3_vfs::xSetSystemCall), which the packaged library offers too. Those that the
// table lacks (fsync, fdatasync), and those that the store makes itself, are defined in system_calls.cpp, where the linker
// finds them before the C library's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kiln::faults {

enum class Call : std::uint8_t { open, status, read, write, truncate, lock, sync, unlink, rename, make_folder };

struct Attempt {
  Call call = Call::open;
  int file = -1;                          // the descriptor, where the call takes one
  std::string path = {}, to = {};         // the path or paths, where it takes them
  bool creates = false;                   // open: the file may be made
  std::int64_t at = 0;                    // write: the offset; truncate: the length
  std::span<const std::byte> bytes = {};  // write
};

struct Fate {
  int error = 0;         // errno of a call that fails; 0 lets it happen
  std::size_t torn = 0;  // of a write that fails: how many bytes reach the file nevertheless
};

class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual Fate before(const Attempt&) { return {}; }
  /// Of a call that succeeded.
  virtual void after(const Attempt&) {}
};

/// While it lives, every such call of this thread is shown to `watcher`; then all is as before.
class Watch {
 public:
  explicit Watch(Watcher& watcher);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
};

}  // namespace kiln::faults
