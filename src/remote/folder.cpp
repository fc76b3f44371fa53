#include "remote/folder.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "remote/sealed.hpp"

namespace kiln::remote {
namespace {

using store::RemoteFailure;
using Kind = RemoteFailure::Kind;

constexpr mode_t file_mode = 0666, folder_mode = 0777;  // as far as the umask lets others in
constexpr const char* row_suffix = ".row";
constexpr const char* claim_suffix = ".claim";
constexpr const char* put_suffix = ".put";
constexpr std::size_t most_claim_bytes = 4096;
constexpr std::size_t longest_name = 255;
constexpr std::chrono::seconds put_term{10};
constexpr int enough_tries = 3;

Kind kind_of(int error) noexcept {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return Kind::full;
    case EROFS: return Kind::read_only;
    case EACCES:
    case EPERM: return Kind::refused;
    case ETIMEDOUT: return Kind::slow;
    default: return Kind::unreachable;
  }
}

void require_time(const std::string& name, store::RemoteStore::Deadline deadline) {
  if (std::chrono::steady_clock::now() >= deadline)
    throw RemoteFailure(Kind::slow, fmt::format("{} does not answer in time", name));
}

/// One path component for each text, and another one for another text.
std::string escaped(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          std::string_view("@_|-").find(c) != std::string_view::npos || (c == '.' && !name.empty());
    name += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return name;
}

std::optional<std::string> unescaped(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    unsigned value = static_cast<unsigned char>(name.front());
    std::size_t taken = 1;
    if (name.front() == '%') {
      taken = 3;
      if (name.size() < taken ||
          std::from_chars(name.data() + 1, name.data() + taken, value, 16).ptr != name.data() + taken)
        return std::nullopt;
    }
    text += static_cast<char>(value);
    name.remove_prefix(taken);
  }
  return text;
}

std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw RemoteFailure(Kind::unreachable, "the system has no random numbers to name a file of the shared store by");
  std::string name = ".";
  for (const unsigned char each : bytes) name += fmt::format("{:02x}", each);
  return name + ".tmp";
}

std::chrono::nanoseconds since_epoch(const timespec& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// A claim's file: "token term\n". One that was cut has no token, and the term that its finder asks for.
struct Claim {
  std::string token;
  std::chrono::seconds term;
};

std::string text_of(std::string_view token, std::chrono::seconds term) {
  return fmt::format("{} {}\n", token, term.count());
}

Claim parse_claim(std::string_view text, std::chrono::seconds term) {
  const std::size_t space = text.find(' ');
  std::int64_t seconds = 0;
  if (space == std::string_view::npos || !text.ends_with('\n') ||
      std::from_chars(text.data() + space + 1, text.data() + text.size(), seconds).ec != std::errc() || seconds < 0 ||
      seconds > 3600)
    return {{}, term};
  return {std::string(text.substr(0, space)), std::chrono::seconds(seconds)};
}

}  // namespace

struct Folder::File {
  const FileCalls& calls;
  int number;
  ~File() {
    if (number >= 0) calls.close(number);
  }
};

/// Removes a file of this writer's at the end.
struct Folder::Removed {
  const FileCalls& calls;
  Path path;
  ~Removed() { calls.unlink(path.c_str()); }
};

Folder::Folder(std::filesystem::path folder, const FileCalls& calls) : folder_(std::move(folder)), calls_(calls) {}

std::string Folder::name() const { return fmt::format("the folder {}", folder_.string()); }

void Folder::fail(std::string_view doing, int error) const {
  throw RemoteFailure(kind_of(error), fmt::format("{}: {} failed: {}", name(), doing, std::strerror(error)));
}

Folder::Path Folder::folder_of(std::string_view space) const {
  std::string name = escaped(space);
  if (name.size() > longest_name)
    throw RemoteFailure(Kind::refused, fmt::format("{} cannot have a folder named after '{}'", this->name(), space));
  return folder_ / name;
}

Folder::Path Folder::file_of(const store::RemotePlace& place, const char* suffix) const {
  return folder_of(place.space) /
         (manifest::to_hex(manifest::Hasher().field(std::string_view(place.key)).finish()) + suffix);
}

std::optional<Folder::Read> Folder::read(const Path& path, std::size_t most, Deadline deadline) const {
  for (int tries = 0; tries < enough_tries; ++tries) {
    bool is_stale = false;
    std::optional<Read> found = read_once(path, most, deadline, is_stale);
    if (!is_stale) return found;
  }
  return std::nullopt;
}

/// `is_stale`: the server knows the file by this name no longer, as where another one took its place; a new look finds
/// that one.
std::optional<Folder::Read> Folder::read_once(const Path& path, std::size_t most, Deadline deadline,
                                              bool& is_stale) const {
  require_time(name(), deadline);
  const auto failed = [&](std::string_view doing) -> std::optional<Read> {
    is_stale = errno == ESTALE;
    if (!is_stale) fail(doing, errno);
    return std::nullopt;
  };
  // No link is followed, and no pipe waited for: others may write the folder.
  const File file{calls_, calls_.open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0)};
  if (file.number < 0) {
    if (errno == ENOENT) return std::nullopt;
    if (errno == ELOOP || errno == ENXIO) return Read();
    return failed("opening a file");
  }
  struct stat status {};
  if (calls_.fstat(file.number, &status) != 0) return failed("asking about a file");
  if (!S_ISREG(status.st_mode)) return Read();
  Read found{{}, status.st_mtim};
  std::array<char, 65536> part{};
  for (;;) {
    require_time(name(), deadline);
    const ssize_t got = calls_.read(file.number, part.data(), part.size());
    if (got == 0) return found;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("reading a file");
    found.bytes.append(part.data(), static_cast<std::size_t>(got));
    if (found.bytes.size() > most) return found;
  }
}

std::optional<std::string> Folder::read_value(const Path& path, Deadline deadline) const {
  std::optional<Read> found = read(path, store::most_remote_bytes, deadline);
  if (!found) {
    require_folder();
    return std::nullopt;
  }
  // Its writer never renames a part: the server lost the rest, or somebody else wrote it.
  if (!is_whole(found->bytes) || found->bytes.size() > store::most_remote_bytes)
    calls_.rename(path.c_str(), Path(path).replace_extension(".broken").c_str());
  return std::move(found->bytes);
}

void Folder::require_folder() const {
  const File file{calls_, calls_.open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)};
  if (file.number < 0 && errno != EACCES)
    throw RemoteFailure(Kind::unreachable,
                        fmt::format("{} is not there: {}; create or mount it", name(), std::strerror(errno)));
}

std::vector<std::string> Folder::names_in(const Path& folder, Deadline deadline) const {
  std::vector<std::string> names;
  DIR* const opened = calls_.opendir(folder.c_str());
  if (opened == nullptr) {
    if (errno != ENOENT && errno != ESTALE) fail("opening a folder", errno);
    require_folder();
    return names;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> closed(opened, ::closedir);
  for (errno = 0; const dirent* const entry = calls_.readdir(opened); errno = 0) {
    names.emplace_back(entry->d_name);
    if (names.size() == store::most_remote_values) break;
    require_time(name(), deadline);
  }
  if (errno != 0 && errno != ESTALE) fail("listing a folder", errno);
  return names;
}

Folder::Written Folder::write_beside(const Path& path, std::string_view bytes, Deadline deadline) const {
  require_time(name(), deadline);
  Written written{path.parent_path() / random_name(), {}};
  const auto create = [&] {
    return calls_.open(written.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, file_mode);
  };
  int number = create();
  if (number < 0 && errno == ENOENT) {
    if (calls_.mkdir(path.parent_path().c_str(), folder_mode) != 0 && errno != EEXIST) {
      if (errno == ENOENT || errno == ENOTDIR) require_folder();
      fail("making a folder", errno);
    }
    number = create();
  }
  if (number < 0) fail("making a file", errno);
  int error = fill(number, bytes, deadline, written.at);
  if (calls_.close(number) != 0 && error == 0) error = errno;  // where NFS reports a full disk
  if (error == 0) return written;
  calls_.unlink(written.path.c_str());
  if (error == ETIME) require_time(name(), Deadline::min());
  fail("writing a file", error);
}

int Folder::fill(int number, std::string_view bytes, Deadline deadline, timespec& at) const {
  while (!bytes.empty()) {
    if (std::chrono::steady_clock::now() >= deadline) return ETIME;
    const ssize_t wrote = calls_.write(number, bytes.data(), bytes.size());
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  struct stat status {};
  if (calls_.fsync(number) != 0 || calls_.fstat(number, &status) != 0) return errno;
  at = status.st_mtim;
  return 0;
}

void Folder::replace(const Path& path, std::string_view value, Deadline deadline) const {
  const Written written = write_beside(path, value, deadline);
  if (calls_.rename(written.path.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  calls_.unlink(written.path.c_str());
  fail("renaming a file", error);
}

/// The server says whether the name is taken, though this machine does not see it yet.
bool Folder::add(const Path& path, std::string_view value, Deadline deadline) const {
  const Written written = write_beside(path, value, deadline);
  const Removed removed{calls_, written.path};
  if (calls_.link(written.path.c_str(), path.c_str()) == 0) return true;
  if (errno != EEXIST) fail("adding a file", errno);
  return false;
}

std::optional<std::string> Folder::get(const store::RemotePlace& place, Deadline deadline) {
  return read_value(file_of(place, row_suffix), deadline);
}

bool Folder::put(const store::RemotePlace& place, std::string_view value, const std::optional<std::string>& replaces,
                 Deadline deadline) {
  const Path path = file_of(place, row_suffix), writing = file_of(place, put_suffix);
  const std::string token = random_name();
  if (!take(writing, token, put_term, deadline)) return false;
  const Removed removed{calls_, writing};
  if (read_value(path, deadline) != replaces) return false;
  if (!replaces) return add(path, value, deadline);
  replace(path, value, deadline);
  return true;
}

std::vector<std::string> Folder::list(std::string_view space, Deadline deadline) {
  std::vector<std::string> values;
  const Path folder = folder_of(space);
  for (const std::string& name : names_in(folder, deadline))
    if (name.ends_with(row_suffix))
      if (auto value = read_value(folder / name, deadline)) values.push_back(std::move(*value));
  return values;
}

std::vector<std::string> Folder::spaces(Deadline deadline) {
  std::vector<std::string> found;
  for (const std::string& name : names_in(folder_, deadline))
    if (const auto space = unescaped(name); space && space->find('|') != std::string::npos) found.push_back(*space);
  return found;
}

std::optional<std::string> Folder::get_code(std::string_view key, Deadline deadline) {
  return read_value(folder_of("code") / (std::string(key) + row_suffix), deadline);
}

void Folder::put_code(std::string_view key, std::string_view value, Deadline deadline) {
  replace(folder_of("code") / (std::string(key) + row_suffix), value, deadline);
}

/// Links a new file to the claim's name where there is none, else takes over a claim whose term has ended by the
/// server's clock, which the time of the new file tells.
bool Folder::take(const Path& path, std::string_view token, std::chrono::seconds term, Deadline deadline) const {
  const Written own = write_beside(path, text_of(token, term), deadline);
  const Removed removed{calls_, own.path};
  for (int tries = 0; tries < enough_tries; ++tries) {
    if (calls_.link(own.path.c_str(), path.c_str()) == 0) return true;
    if (errno != EEXIST) fail("claiming a bucket", errno);
    const auto held = read(path, most_claim_bytes, deadline);
    if (!held) continue;  // released meanwhile
    const Claim claim = parse_claim(held->bytes, term);
    if (claim.token == token) return true;  // the server had linked it, and was asked again
    if (since_epoch(own.at) - since_epoch(held->written) < claim.term) return false;
    const Path aside = path.parent_path() / random_name();
    if (calls_.rename(path.c_str(), aside.c_str()) != 0) continue;  // another one took it over
    const auto moved = read(aside, most_claim_bytes, deadline);
    if (moved && moved->bytes != held->bytes) {  // that one's, and new
      calls_.rename(aside.c_str(), path.c_str());
      return false;
    }
    calls_.unlink(aside.c_str());
  }
  return false;
}

void Folder::drop(const Path& path, std::string_view token, Deadline deadline) const noexcept {
  try {
    const auto held = read(path, most_claim_bytes, deadline);
    if (held && parse_claim(held->bytes, {}).token == token) calls_.unlink(path.c_str());
  } catch (const RemoteFailure&) {  // NOLINT(bugprone-empty-catch): its term ends
  }
}

bool Folder::claim(const store::RemotePlace& place, std::string_view token, std::chrono::seconds term,
                   Deadline deadline) {
  return take(file_of(place, claim_suffix), token, term, deadline);
}

bool Folder::renew(const store::RemotePlace& place, std::string_view token, std::chrono::seconds term,
                   Deadline deadline) {
  const Path path = file_of(place, claim_suffix);
  const auto held = read(path, most_claim_bytes, deadline);
  if (!held || parse_claim(held->bytes, term).token != token) return false;
  const File file{calls_, calls_.open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0)};
  return file.number >= 0 && calls_.touch(file.number) == 0;
}

void Folder::release(const store::RemotePlace& place, std::string_view token, Deadline deadline) {
  drop(file_of(place, claim_suffix), token, deadline);
}

}  // namespace kiln::remote
