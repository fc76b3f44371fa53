// A disk that is asked to write, and what it may hold after the power went.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "faults/store/system_calls.hpp"

namespace kiln::faults {

/// One thing asked of the disk. Paths are relative to the recorded folder.
struct Request {
  enum class Kind : std::uint8_t { make, make_folder, write, truncate, sync, sync_folder, unlink, rename };
  Kind kind = Kind::write;
  int node = -1;         // which file: names come and go
  std::string path, to;  // make, make_folder, sync_folder, unlink, rename
  std::int64_t at = 0;   // write: the offset; truncate: the length
  std::string bytes;     // write
};

/// Takes down what is asked of the disk below a folder, which is empty at first.
class Recorder : public Watcher {
 public:
  explicit Recorder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Fate before(const Attempt& attempt) override;
  void after(const Attempt& attempt) override;
  [[nodiscard]] const std::vector<Request>& requests() const { return requests_; }

 private:
  [[nodiscard]] bool is_inside(const std::string& path) const;
  [[nodiscard]] std::string relative(const std::string& path) const;
  void after_open(const Attempt& attempt);
  void after_sync(int file);
  int node_of(int file);
  [[nodiscard]] int node_named(const std::string& path) const;

  std::filesystem::path folder_;
  std::vector<Request> requests_;
  std::map<ino_t, int> nodes_;
  int next_node_ = 0;
  bool makes_ = false;  // the file of the open under way is not there yet
};

/// The disk's state request by request: what is sure to outlive a loss of power, and what only may.
class Disk {
 public:
  void take(const Request& request);
  /// Writes one of the states that a loss of power may leave into `folder`: of what was not synced, all, nothing, the
  /// first part, or any part; of a write any of its sectors.
  void lose_power(const std::filesystem::path& folder, std::mt19937& random) const;

 private:
  struct File {
    std::string sure;
    std::vector<Request> pending;
  };
  static constexpr int a_folder = -2;
  using Names = std::map<std::string, int>;
  static void change_names(Names& names, const Request& request);
  static void change_content(std::string& content, const Request& request, std::mt19937* sectors);
  void sync_folder(const std::string& path);

  Names names_{{"", a_folder}};
  std::vector<Request> pending_names_;
  std::map<int, File> files_;
};

}  // namespace kiln::faults
