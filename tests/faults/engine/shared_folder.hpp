// A folder as a shared store, with each call on its files in the test's hands.
#pragma once

#include <csignal>

#include "faults/engine/fixture.hpp"
#include "remote/folder.hpp"
#include "remote/sealed.hpp"

namespace kiln::faults {

/// Decides what calls meet. One thread at a time calls the folder.
class FolderWatcher {
 public:
  virtual ~FolderWatcher() = default;
  /// Before each call but closing. Returns its errno, or 0 to let it happen.
  virtual int before(const char* call, const char* path) = 0;
  /// Whether half of what is written reaches the file before the call that fails, or before this process ends.
  [[nodiscard]] virtual bool tears() const { return false; }
  /// Whether a name that is there is not to be seen.
  [[nodiscard]] virtual bool hides(const char*) { return false; }
};

inline FolderWatcher* folder_watcher = nullptr;

inline bool folder_call_fails(const char* call, const char* path = "") {
  errno = folder_watcher != nullptr ? folder_watcher->before(call, path) : 0;
  return errno != 0;
}

/// The calls that folder_watcher sees.
inline remote::FileCalls watched_calls() {
  remote::FileCalls calls;
  calls.open = [](const char* path, int flags, mode_t mode) {
    if (folder_call_fails("open", path)) return -1;
    if ((flags & O_CREAT) == 0 && folder_watcher != nullptr && folder_watcher->hides(path)) return errno = ENOENT, -1;
    return ::open(path, flags, mode);
  };
  calls.read = [](int file, void* into, std::size_t bytes) {
    return folder_call_fails("read") ? ssize_t{-1} : ::read(file, into, bytes);
  };
  calls.write = [](int file, const void* from, std::size_t bytes) {
    if (folder_watcher != nullptr && folder_watcher->tears()) {
      [[maybe_unused]] const auto part = ::write(file, from, bytes / 2);
      lseek(file, 0, SEEK_SET);
    }
    return folder_call_fails("write") ? ssize_t{-1} : ::write(file, from, bytes);
  };
  calls.fsync = [](int file) { return folder_call_fails("fsync") ? -1 : ::fsync(file); };
  calls.close = [](int file) {
    const int closed = ::close(file);
    return folder_call_fails("close") ? -1 : closed;
  };
  calls.fstat = [](int file, struct stat* status) { return folder_call_fails("fstat") ? -1 : ::fstat(file, status); };
  calls.touch = [](int file) { return folder_call_fails("touch") ? -1 : ::futimens(file, nullptr); };
  calls.rename = [](const char* from, const char* to) {
    return folder_call_fails("rename", from) ? -1 : ::rename(from, to);
  };
  calls.link = [](const char* from, const char* to) { return folder_call_fails("link", to) ? -1 : ::link(from, to); };
  calls.unlink = [](const char* path) { return folder_call_fails("unlink", path) ? -1 : ::unlink(path); };
  calls.mkdir = [](const char* path, mode_t mode) {
    return folder_call_fails("mkdir", path) ? -1 : ::mkdir(path, mode);
  };
  calls.opendir = [](const char* path) { return folder_call_fails("opendir", path) ? nullptr : ::opendir(path); };
  calls.readdir = [](DIR* folder) -> dirent* {
    if (folder_call_fails("readdir")) return nullptr;
    for (;;) {
      dirent* const entry = ::readdir(folder);
      if (entry == nullptr || folder_watcher == nullptr || !folder_watcher->hides(entry->d_name)) return entry;
    }
  };
  return calls;
}

inline store::RemoteStore::Deadline in_time() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

/// A bucket in a folder of its own, with two values of it, the second of which is better.
class SharedBucket {
 public:
  SharedBucket() : record_(records_of(tuned_file()).front()), place_(store::place_of(record_)) {
    fs::create_directory(path());
  }
  [[nodiscard]] fs::path path() const { return folder_ / "shared"; }
  [[nodiscard]] const store::RemotePlace& place() const noexcept { return place_; }
  [[nodiscard]] std::string value(std::int64_t samples) const {
    store::Record record = record_;
    for (store::Choice& each : record.choices) each.samples = samples;
    return remote::seal(record, {}, nullptr);
  }
  [[nodiscard]] const std::string& first() const noexcept { return first_; }
  [[nodiscard]] const std::string& second() const noexcept { return second_; }
  /// As if so much time had passed since the claims of machines that are gone.
  void age(std::chrono::seconds by) const {
    for (const auto& each : fs::recursive_directory_iterator(path()))
      if (each.path().extension() == ".put" || each.path().extension() == ".claim")
        fs::last_write_time(each.path(), fs::last_write_time(each.path()) - by);
  }
  void empty() const {
    fs::remove_all(path());
    fs::create_directory(path());
  }

 private:
  TemporaryFolder folder_;
  store::Record record_;
  store::RemotePlace place_;
  const std::string first_ = value(10), second_ = value(20);
};

constexpr std::chrono::seconds claim_term{30};

/// An operation, and what the folder holds before it.
struct FolderOperation {
  const char* name;
  bool has_first;            // value
  std::string_view claimed;  // by whom
  std::function<void(remote::Folder&, const SharedBucket&)> run;
};

inline std::vector<FolderOperation> folder_operations() {
  using remote::Folder;
  return {
      {"get", true, "", [](Folder& folder, const SharedBucket& of) { (void)folder.get(of.place(), in_time()); }},
      {"list", true, "",
       [](Folder& folder, const SharedBucket& of) { (void)folder.list(of.place().space, in_time()); }},
      {"put", false, "",
       [](Folder& folder, const SharedBucket& of) { folder.put(of.place(), of.second(), {}, in_time()); }},
      {"put in another's place", true, "",
       [](Folder& folder, const SharedBucket& of) { folder.put(of.place(), of.second(), of.first(), in_time()); }},
      {"put_code", true, "",
       [](Folder& folder, const SharedBucket& of) { folder.put_code(std::string(64, 'a'), of.second(), in_time()); }},
      {"claim", true, "",
       [](Folder& folder, const SharedBucket& of) { folder.claim(of.place(), "dies", claim_term, in_time()); }},
      {"claim of what a dead one held", true, "dead",
       [](Folder& folder, const SharedBucket& of) { folder.claim(of.place(), "dies", claim_term, in_time()); }},
      {"renew", true, "dies",
       [](Folder& folder, const SharedBucket& of) { folder.renew(of.place(), "dies", claim_term, in_time()); }},
      {"release", true, "dies",
       [](Folder& folder, const SharedBucket& of) { folder.release(of.place(), "dies", in_time()); }},
  };
}

inline void prepare(const FolderOperation& operation, const SharedBucket& bucket) {
  bucket.empty();
  remote::Folder folder(bucket.path());
  if (operation.has_first) REQUIRE(folder.put(bucket.place(), bucket.first(), {}, in_time()));
  if (!operation.claimed.empty()) REQUIRE(folder.claim(bucket.place(), operation.claimed, claim_term, in_time()));
  if (operation.claimed == "dead") bucket.age(2 * claim_term);
}

/// Whatever happened inside an operation: the value is the one before or the one after, nothing is torn, and another
/// machine can write and claim, at once or when the terms have passed.
inline void check_sound(const FolderOperation& operation, const SharedBucket& bucket) {
  CAPTURE(operation.name);
  remote::Folder folder(bucket.path());
  const std::optional<std::string> value = folder.get(bucket.place(), in_time());
  CHECK((value == bucket.second() ||
         value == (operation.has_first ? std::optional<std::string>(bucket.first()) : std::nullopt)));
  CHECK(folder.list(bucket.place().space, in_time()).size() == (value ? 1U : 0U));
  const auto code = folder.get_code(std::string(64, 'a'), in_time());
  CHECK((!code || code == bucket.second()));
  for (const auto& each : fs::recursive_directory_iterator(bucket.path())) CHECK(each.path().extension() != ".broken");
  bucket.age(2 * claim_term);
  CHECK(folder.claim(bucket.place(), "another", claim_term, in_time()));
  CHECK_FALSE(folder.renew(bucket.place(), "dies", claim_term, in_time()));
  CHECK(folder.put(bucket.place(), bucket.value(30), value, in_time()));
  CHECK(folder.get(bucket.place(), in_time()) == bucket.value(30));
}

}  // namespace kiln::faults
