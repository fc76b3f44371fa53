// A shared folder whose calls fail, as NFS fails them: stale handles, a server that is gone, quotas; and names that other
// machines made and that this one sees late.
#include <array>

#include "faults/engine/shared_folder.hpp"

namespace kiln::faults {
namespace {

class Fails final : public FolderWatcher {
 public:
  Fails(int at, int error, int times) : at_(at), error_(error), times_(times) {}
  int before(const char*, const char*) override {
    const int call = calls_++;
    return call >= at_ && call < at_ + times_ ? error_ : 0;
  }
  [[nodiscard]] bool has_failed() const { return calls_ > at_; }

 private:
  int at_, error_, times_, calls_ = 0;
};

/// Values and claims of other machines are not seen so often.
class SeesLate final : public FolderWatcher {
 public:
  explicit SeesLate(int looks) : left_(looks) {}
  int before(const char*, const char*) override { return 0; }
  bool hides(const char* path) override {
    const std::string_view name(path);
    return (name.ends_with(".row") || name.ends_with(".claim") || name.ends_with(".put")) && left_-- > 0;
  }

 private:
  int left_;
};

template <class Work>
bool fails(Work&& work) {
  try {
    work();
  } catch (const store::RemoteFailure&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE(
    "fault 104: whichever call of an operation on a shared folder fails, once or from then on, values stay whole") {
  const SharedBucket bucket;
  int tried = 0;
  for (const FolderOperation& operation : folder_operations())
    for (const int error : {ESTALE, EIO, EDQUOT, EACCES, ENOENT})
      for (const int times : {1, 1'000'000})
        for (int at = 0; times == 1 || error == EIO || error == ESTALE; ++at) {
          CAPTURE(operation.name);
          CAPTURE(error);
          CAPTURE(at);
          prepare(operation, bucket);
          Fails watcher(at, error, times);
          folder_watcher = &watcher;
          remote::Folder folder(bucket.path(), watched_calls());
          (void)fails([&] { operation.run(folder, bucket); });
          folder_watcher = nullptr;
          if (!watcher.has_failed()) break;
          check_sound(operation, bucket);
          ++tried;
        }
  tally(104, tried, "calls on a shared folder that fail");
}

TEST_CASE("fault 104: a machine that sees others' names late replaces no value and takes no claim of theirs") {
  const SharedBucket bucket;
  int tried = 0;
  for (const int looks : {1, 2, 3, 4, 8, 1000}) {
    CAPTURE(looks);
    bucket.empty();
    remote::Folder sound(bucket.path()), late(bucket.path(), watched_calls());
    REQUIRE(sound.put(bucket.place(), bucket.second(), {}, in_time()));
    REQUIRE(sound.claim(bucket.place(), "another", claim_term, in_time()));
    const auto beside = [&](auto&& work) {
      SeesLate watcher(looks);
      folder_watcher = &watcher;
      work();
      folder_watcher = nullptr;
      CHECK(sound.get(bucket.place(), in_time()) == bucket.second());
      CHECK(sound.renew(bucket.place(), "another", claim_term, in_time()));
      ++tried;
    };
    beside([&] { CHECK_FALSE(late.put(bucket.place(), bucket.first(), {}, in_time())); });
    beside([&] { CHECK_FALSE(late.claim(bucket.place(), "late", claim_term, in_time())); });
    beside([&] { CHECK_FALSE(late.renew(bucket.place(), "late", claim_term, in_time())); });
    beside([&] { late.release(bucket.place(), "late", in_time()); });
    beside([&] {
      const auto found = late.get(bucket.place(), in_time());
      CHECK((!found || found == bucket.second()));
    });
    beside([&] { CHECK(late.list(bucket.place().space, in_time()).size() <= 1); });
  }
  tally(104, tried, "names that are seen late");
}

}  // namespace kiln::faults
