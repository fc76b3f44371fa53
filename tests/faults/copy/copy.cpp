// A module that holds a store and an SQLite of its own, as a plug-in with a static Kiln does.
#include <memory>
#include <string>

#include "store/file.hpp"
#include "store/sqlite.hpp"
#include "store/support.hpp"

#define MODULE_API extern "C" __attribute__((visibility("default")))

namespace {

using namespace kiln::store;

struct HeldLock {
  explicit HeldLock(const char* path)
      : connection(Connection::open(path, OpenMode::read_write)), transaction(connection, Transaction::Kind::write) {}
  Connection connection;
  Transaction transaction;
};

}  // namespace

/// Opens the file and begins to write, until release().
MODULE_API void* hold(const char* path) { return std::make_unique<HeldLock>(path).release(); }
MODULE_API void release(void* held) { delete static_cast<HeldLock*>(held); }

/// Opens the file, puts a record of this key, and closes it. Returns whether the record was put. Waits for no lock where
/// it is not `patient`.
MODULE_API int put(const char* path, const char* key, int patient) try {
  const auto file = File::open(path, Access::read_write);
  if (patient == 0) file->stop_waiting_when([] { return true; });
  file->put(sample_record(key), nullptr);
  return 1;
} catch (const kiln::Error&) {
  return 0;
}
