// Each operation once for each system call that it makes, with that call failing.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>

#include "faults/store/operations.hpp"
#include "faults/store/samples.hpp"
#include "faults/store/system_calls.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;
using faults::Attempt;
using faults::Call;
using faults::Fate;

enum class Fault : std::uint8_t { error, unreadable, no_space, torn };
enum class Span : std::uint8_t { once, from_then_on };

bool strikes(Fault fault, const Attempt& attempt) {
  switch (fault) {
    case Fault::error: return true;
    case Fault::unreadable: return attempt.call == Call::read;
    case Fault::torn: return attempt.call == Call::write;
    case Fault::no_space:
      return attempt.call == Call::write || attempt.call == Call::make_folder || attempt.call == Call::rename ||
             attempt.creates;
  }
  return false;
}

/// Fails the call of number `at` among those that the fault can strike, and perhaps all that follow.
class Injector : public faults::Watcher {
 public:
  Injector(Fault fault, Span span, std::int64_t at) : fault_(fault), span_(span), at_(at) {}
  Fate before(const Attempt& attempt) override {
    if (!strikes(fault_, attempt)) return {};
    const auto number = seen_++;
    if (number < at_ || (number > at_ && span_ == Span::once)) return {};
    if (number == at_) struck_ = attempt.call;
    const bool half = fault_ == Fault::torn || (fault_ == Fault::no_space && attempt.call == Call::write);
    return {fault_ == Fault::no_space ? ENOSPC : EIO, half ? attempt.bytes.size() / 2 : 0};
  }
  [[nodiscard]] bool struck() const { return seen_ > at_; }
  [[nodiscard]] Call call() const { return struck_; }

 private:
  Fault fault_;
  Span span_;
  std::int64_t at_, seen_ = 0;
  Call struck_ = Call::open;
};

/// The .kiln files under a folder and what they hold. A file that stopped half-way under a temporary name is not one.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".kiln") contents[entry.path().filename()] = content_of(entry.path());
  return contents;
}

using FolderContents = std::map<std::string, std::string>;

struct Prepared {
  explicit Prepared(const Operation& wanted) : operation(wanted) {
    operation.prepare(folder.path());
    before = contents_of(folder.path());
    const Folder copy;
    copy_to(copy);
    Scene scene = make_scene(operation, copy.path());
    REQUIRE(run(operation, scene) == Outcome::done);
    scene.file.reset();
    after = contents_of(copy.path());
  }
  void copy_to(const Folder& to) const { fs::copy(folder.path(), to.path(), fs::copy_options::recursive); }
  /// Each file as it was or as it was to be; nothing half-way.
  [[nodiscard]] bool is_all_or_nothing(const FolderContents& found) const {
    const auto equals = [&](const std::string& name, const FolderContents& wanted) {
      const auto a = found.find(name), b = wanted.find(name);
      return a == found.end() || b == wanted.end() ? (a == found.end()) == (b == wanted.end()) : a->second == b->second;
    };
    return std::ranges::all_of(
               found, [&](const auto& each) { return equals(each.first, before) || equals(each.first, after); }) &&
           std::ranges::all_of(before, [&](const auto& each) { return found.contains(each.first); });
  }

  [[nodiscard]] bool has_samples() const {
    const auto file = before.find("a.kiln");
    return file != before.end() && contains(file->second, "record|key0|");
  }

  const Operation& operation;
  Folder folder;
  FolderContents before, after;
};

/// Afterwards the same object serves on, as if nothing had been.
void check_serves_on(File& file) {
  const auto found = file.find_record("key0", true);
  REQUIRE(found);
  CHECK(same(*found, sample_record_at(0)));
  if (!refusal([&] { file.put(sample_record("later"), nullptr); }).empty()) {
    CHECK(contains(refusal([&] { file.put(sample_record("later"), nullptr); }), "for reading only"));
    return;
  }
  CHECK(file.find_record("later"));
}

/// False when the operation came through without having met the fault.
bool try_one(const Prepared& prepared, Fault fault, Span span, std::int64_t at) {
  const Folder folder;
  prepared.copy_to(folder);
  Scene scene = make_scene(prepared.operation, folder.path());
  Injector injector(fault, span, at);
  Outcome outcome{};
  {
    const faults::Watch watch(injector);
    outcome = run(prepared.operation, scene);
    if (span == Span::from_then_on && at % 2 == 0) scene.file.reset();  // closed while the disk still fails
  }
  const auto found = contents_of(folder.path());
  CAPTURE(prepared.operation.name);
  CAPTURE(static_cast<int>(fault));
  CAPTURE(static_cast<int>(span));
  CAPTURE(at);
  CAPTURE(static_cast<int>(injector.call()));
  CAPTURE(scene.said);
  CHECK(outcome != Outcome::wrong);
  CHECK(prepared.is_all_or_nothing(found));
  if (outcome == Outcome::done) CHECK(found == prepared.after);
  if (outcome == Outcome::refused) CHECK(!scene.said.empty());
  if (scene.file && prepared.has_samples()) check_serves_on(*scene.file);
  return injector.struck();
}

std::int64_t sweep(Fault fault) {
  std::int64_t cases = 0;
  for (const Operation& operation : operations()) {
    const Prepared prepared(operation);
    for (const Span span : {Span::once, Span::from_then_on}) {
      std::int64_t at = 0;
      while (try_one(prepared, fault, span, at)) ++at;
      cases += at;
    }
  }
  return cases;
}

TEST_CASE("fault 02: an input/output error at any system call leaves all or nothing, and an error that says so") {
  const auto cases = sweep(Fault::error);
  CHECK(cases > 500);
  faults::tally(2, cases, "system calls that fail with EIO");
}

TEST_CASE("fault 02: a file that cannot be read is not taken for one that is damaged, or that holds less") {
  const auto cases = sweep(Fault::unreadable);
  CHECK(cases > 100);
  faults::tally(2, cases, "reads that fail with EIO");
}

TEST_CASE("fault 02: a full disk at any system call leaves all or nothing, and an error that says so") {
  const auto cases = sweep(Fault::no_space);
  CHECK(cases > 100);
  faults::tally(2, cases, "system calls that fail with ENOSPC");
}

TEST_CASE("fault 02: a write that is torn at any place leaves all or nothing, and an error that says so") {
  const auto cases = sweep(Fault::torn);
  CHECK(cases > 100);
  faults::tally(2, cases, "torn writes");
}

}  // namespace
}  // namespace kiln::store
