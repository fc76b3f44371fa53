// A folder as a shared store, such as one on NFS.
//
//   FOLDER/SPACE/DIGEST.row      a value; SPACE is the space with each byte outside [A-Za-z0-9@_.|-] as %XX, DIGEST that of
//                                its key
//   FOLDER/SPACE/DIGEST.claim    a claim: "token term\n"; its term begins at the file's time
//   FOLDER/SPACE/DIGEST.put      the claim of a writer between its look at a value and the rename that replaces it
//   FOLDER/SPACE/DIGEST.broken   a value that was set aside
//   FOLDER/code/KEY.row          machine code
//   .../.RANDOM.tmp              a file that is being written
//
// No file is locked or mapped, and none is changed in its place but a claim's time. All times are the server's: those
// of files that were just written. What a killed process leaves is passed over, or ends with its term.
#pragma once

#include <filesystem>
#include <string>

#include "remote/file_calls.hpp"
#include "store/remote.hpp"

namespace kiln::remote {

class Folder final : public store::RemoteStore {
 public:
  /// Touches nothing. The folder itself is never created: a wrong path, or a missing mount, is told.
  explicit Folder(std::filesystem::path folder, const FileCalls& calls = {});
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::optional<std::string> get(const store::RemotePlace& place, Deadline deadline) override;
  bool put(const store::RemotePlace& place, std::string_view value, const std::optional<std::string>& replaces,
           Deadline deadline) override;
  [[nodiscard]] std::vector<std::string> list(std::string_view space, Deadline deadline) override;
  [[nodiscard]] std::vector<std::string> spaces(Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> get_code(std::string_view key, Deadline deadline) override;
  void put_code(std::string_view key, std::string_view value, Deadline deadline) override;
  bool claim(const store::RemotePlace& place, std::string_view token, std::chrono::seconds term,
             Deadline deadline) override;
  bool renew(const store::RemotePlace& place, std::string_view token, std::chrono::seconds term,
             Deadline deadline) override;
  void release(const store::RemotePlace& place, std::string_view token, Deadline deadline) override;

 private:
  using Path = std::filesystem::path;
  struct File;
  struct Removed;
  struct Read {
    std::string bytes;
    timespec written{};
  };
  struct Written {
    Path path;
    timespec at{};
  };

  [[noreturn]] void fail(std::string_view doing, int error) const;
  [[nodiscard]] Path folder_of(std::string_view space) const;
  [[nodiscard]] Path file_of(const store::RemotePlace& place, const char* suffix) const;
  /// Nothing where there is no such file, and an empty Read where the path names no regular file. May return more than
  /// `most` bytes of a larger one, but not all.
  [[nodiscard]] std::optional<Read> read(const Path& path, std::size_t most, Deadline deadline) const;
  [[nodiscard]] std::optional<Read> read_once(const Path& path, std::size_t most, Deadline deadline,
                                              bool& is_stale) const;
  /// A value that is not whole is returned once, for its reader to report, and renamed.
  [[nodiscard]] std::optional<std::string> read_value(const Path& path, Deadline deadline) const;
  [[nodiscard]] std::vector<std::string> names_in(const Path& folder, Deadline deadline) const;
  /// Throws RemoteFailure where the folder is missing, or is none.
  void require_folder() const;
  /// Writes a new file in the folder of `path`, which it makes.
  [[nodiscard]] Written write_beside(const Path& path, std::string_view bytes, Deadline deadline) const;
  /// Returns errno, or 0, and when the server wrote the file.
  int fill(int number, std::string_view bytes, Deadline deadline, timespec& at) const;
  void replace(const Path& path, std::string_view value, Deadline deadline) const;
  /// Returns false where the path is taken.
  [[nodiscard]] bool add(const Path& path, std::string_view value, Deadline deadline) const;
  [[nodiscard]] bool take(const Path& path, std::string_view token, std::chrono::seconds term, Deadline deadline) const;
  void drop(const Path& path, std::string_view token, Deadline deadline) const noexcept;

  Path folder_;
  FileCalls calls_;
};

}  // namespace kiln::remote
