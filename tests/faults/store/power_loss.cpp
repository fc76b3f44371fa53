#include "faults/store/power_loss.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace kiln::faults {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t sector = 512;

/// How much of what was pending reached the disk.
enum class Share : std::uint8_t { nothing, all, beginning, any, any_sectors };

Share draw(std::mt19937& random) { return static_cast<Share>(std::uniform_int_distribution(0, 4)(random)); }

bool coin(std::mt19937& random) { return std::bernoulli_distribution()(random); }

/// Which of `count` pending requests happened.
std::vector<bool> choose(Share share, std::size_t count, std::mt19937& random) {
  std::vector<bool> chosen(count, share == Share::all);
  if (share == Share::beginning)
    std::fill_n(chosen.begin(), std::uniform_int_distribution<std::size_t>(0, count)(random), true);
  if (share == Share::any || share == Share::any_sectors)
    for (std::size_t at = 0; at < count; ++at) chosen[at] = coin(random);
  return chosen;
}

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

}  // namespace

bool Recorder::is_inside(const std::string& path) const { return path.starts_with(folder_.native()); }

std::string Recorder::relative(const std::string& path) const {
  return path == folder_.native() ? "" : path.substr(folder_.native().size() + 1);
}

Fate Recorder::before(const Attempt& attempt) {
  makes_ = attempt.call == Call::open && attempt.creates && access(attempt.path.c_str(), F_OK) != 0;
  return {};
}

void Recorder::after(const Attempt& attempt) {
  using Kind = Request::Kind;
  if (attempt.file < 0 && !is_inside(attempt.path)) return;
  switch (attempt.call) {
    case Call::open: return after_open(attempt);
    case Call::sync: return after_sync(attempt.file);
    case Call::write:
      requests_.push_back({.kind = Kind::write,
                           .node = node_of(attempt.file),
                           .path = {},
                           .to = {},
                           .at = attempt.at,
                           .bytes = {reinterpret_cast<const char*>(attempt.bytes.data()), attempt.bytes.size()}});
      return;
    case Call::truncate:
      requests_.push_back(
          {.kind = Kind::truncate, .node = node_of(attempt.file), .path = {}, .to = {}, .at = attempt.at, .bytes = {}});
      return;
    case Call::unlink:
      requests_.push_back({.kind = Kind::unlink, .path = relative(attempt.path), .to = {}, .bytes = {}});
      return;
    case Call::make_folder:
      requests_.push_back({.kind = Kind::make_folder, .path = relative(attempt.path), .to = {}, .bytes = {}});
      return;
    case Call::rename:
      requests_.push_back({.kind = Kind::rename,
                           .node = node_named(attempt.to),
                           .path = relative(attempt.path),
                           .to = relative(attempt.to),
                           .bytes = {}});
      return;
    case Call::status:
    case Call::read:
    case Call::lock: return;
  }
}

void Recorder::after_open(const Attempt& attempt) {
  struct stat status {};
  if (!makes_ || stat(attempt.path.c_str(), &status) != 0) return;
  nodes_[status.st_ino] = next_node_;
  requests_.push_back(
      {.kind = Request::Kind::make, .node = next_node_++, .path = relative(attempt.path), .to = {}, .bytes = {}});
}

void Recorder::after_sync(int file) {
  struct stat status {};
  fstat(file, &status);
  if (!S_ISDIR(status.st_mode)) {
    requests_.push_back({.kind = Request::Kind::sync, .node = node_of(file), .path = {}, .to = {}, .bytes = {}});
    return;
  }
  const std::string path = fs::read_symlink("/proc/self/fd/" + std::to_string(file));
  if (is_inside(path))
    requests_.push_back({.kind = Request::Kind::sync_folder, .path = relative(path), .to = {}, .bytes = {}});
}

int Recorder::node_named(const std::string& path) const {
  struct stat status {};
  stat(path.c_str(), &status);
  return nodes_.at(status.st_ino);
}

int Recorder::node_of(int file) {
  struct stat status {};
  fstat(file, &status);
  return nodes_.at(status.st_ino);
}

void Disk::take(const Request& request) {
  using Kind = Request::Kind;
  switch (request.kind) {
    case Kind::write:
    case Kind::truncate: files_[request.node].pending.push_back(request); return;
    case Kind::sync: {
      File& file = files_[request.node];
      for (const Request& each : file.pending) change_content(file.sure, each, nullptr);
      file.pending.clear();
      return;
    }
    case Kind::sync_folder: return sync_folder(request.path);
    case Kind::make:
    case Kind::make_folder:
    case Kind::unlink:
    case Kind::rename: pending_names_.push_back(request); return;
  }
}

// Only the entries of that folder: a folder made inside another is an entry of the outer one, and a file that was renamed is one of
// the folder that it came to.
void Disk::sync_folder(const std::string& path) {
  std::vector<Request> rest;
  for (Request& each : pending_names_) {
    if (parent_of(each.kind == Request::Kind::rename ? each.to : each.path) == path)
      change_names(names_, each);
    else
      rest.push_back(std::move(each));
  }
  pending_names_ = std::move(rest);
}

void Disk::change_names(Names& names, const Request& request) {
  switch (request.kind) {
    case Request::Kind::make: names[request.path] = request.node; return;
    case Request::Kind::make_folder: names[request.path] = a_folder; return;
    case Request::Kind::unlink: names.erase(request.path); return;
    case Request::Kind::rename:
      names.erase(request.path);
      names[request.to] = request.node;
      return;
    default: return;
  }
}

void Disk::change_content(std::string& content, const Request& request, std::mt19937* sectors) {
  const auto at = static_cast<std::size_t>(request.at);
  if (request.kind == Request::Kind::truncate) {
    content.resize(at);
    return;
  }
  for (std::size_t done = 0; done < request.bytes.size();) {
    const std::size_t part = std::min(sector - (at + done) % sector, request.bytes.size() - done);
    if (sectors == nullptr || coin(*sectors)) {
      if (content.size() < at + done + part) content.resize(at + done + part);
      content.replace(at + done, part, request.bytes, done, part);
    }
    done += part;
  }
}

void Disk::lose_power(const fs::path& folder, std::mt19937& random) const {
  Names names = names_;
  const auto happened = choose(draw(random), pending_names_.size(), random);
  for (std::size_t at = 0; at < pending_names_.size(); ++at)
    if (happened[at]) change_names(names, pending_names_[at]);
  for (const auto& [path, node] : names) {
    if (path.empty() || names.find(parent_of(path)) == names.end()) continue;
    if (node == a_folder) {
      fs::create_directory(folder / path);
      fs::permissions(folder / path, fs::perms::owner_all);
      continue;
    }
    std::string content;
    if (const auto file = files_.find(node); file != files_.end()) {
      content = file->second.sure;
      const auto& pending = file->second.pending;
      const Share share = draw(random);
      const auto written = choose(share, pending.size(), random);
      for (std::size_t at = 0; at < pending.size(); ++at)
        if (written[at]) change_content(content, pending[at], share == Share::any_sectors ? &random : nullptr);
    }
    std::ofstream(folder / path, std::ios::binary) << content;
  }
}

}  // namespace kiln::faults
