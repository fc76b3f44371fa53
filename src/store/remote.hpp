// A store that machines share: what a back end of src/remote/ offers. It moves bytes; remote/sealed.hpp says what they
// are. It knows neither records nor whom to trust.
//
//   place := space, key
//   space := "1|op@revision|device class|regime"    one folder, or one hash of a server
//   key   := a record's canonical key               one file, or one field of the hash
//   code  := a cubin's key in hexadecimal digits
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "store/record.hpp"

namespace kiln::store {

struct RemotePlace {
  std::string space, key;
};
RemotePlace place_of(const Record& record);

/// A failed operation. what() is a sentence for warnings: it names no password, user or host.
class RemoteFailure : public std::runtime_error {
 public:
  enum class Kind : std::uint8_t {
    unreachable,  // no connection, or it ended
    slow,         // the deadline passed
    refused,      // the store does not let this user in, or do this
    full,         // no space or memory is left in the store
    read_only,    // it can be read alone
    unavailable,  // it says that it cannot serve now: it loads, or another server has the data
    damaged,      // it said what makes no sense
  };
  RemoteFailure(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};
std::string_view to_string(RemoteFailure::Kind kind) noexcept;

inline constexpr std::size_t most_remote_bytes = std::size_t{4}
                                                 << 20;    // of a value; a larger one is neither written nor read
inline constexpr std::size_t most_remote_values = 65'536;  // that list() returns

/// One thread at a time calls it. Operations throw RemoteFailure, and no later than their deadline, as far as the
/// system lets them. Each may connect first: a failed one leaves nothing that keeps a later one from trying anew.
class RemoteStore {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  virtual ~RemoteStore() = default;
  /// For messages, without password, user and host name: "the folder /nfs/kiln", "the Redis server".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Returns nothing where the store has no value. What it returns may be damaged; a back end may set such a value
  /// aside.
  [[nodiscard]] virtual std::optional<std::string> get(const RemotePlace& place, Deadline deadline) = 0;
  /// Stores the value where the store has `replaces` (nothing: no value). Returns false where it has another one.
  virtual bool put(const RemotePlace& place, std::string_view value, const std::optional<std::string>& replaces,
                   Deadline deadline) = 0;
  /// Returns the values of a space in no order. Each says within of which key it is.
  [[nodiscard]] virtual std::vector<std::string> list(std::string_view space, Deadline deadline) = 0;
  /// Returns the spaces that have values.
  [[nodiscard]] virtual std::vector<std::string> spaces(Deadline deadline) = 0;
  [[nodiscard]] virtual std::optional<std::string> get_code(std::string_view key, Deadline deadline) = 0;
  /// Replaces what the key has.
  virtual void put_code(std::string_view key, std::string_view value, Deadline deadline) = 0;

  /// Claims are advice: they keep most second tunes away, and a lost one costs a second tune. `token` is its holder's
  /// alone. Returns whether the place is the holder's now: it was free, or its claim's term had ended.
  virtual bool claim(const RemotePlace& place, std::string_view token, std::chrono::seconds term,
                     Deadline deadline) = 0;
  /// Begins the term anew. Returns false where the claim is another's by now, or gone.
  virtual bool renew(const RemotePlace& place, std::string_view token, std::chrono::seconds term,
                     Deadline deadline) = 0;
  /// Leaves a claim of another token alone.
  virtual void release(const RemotePlace& place, std::string_view token, Deadline deadline) = 0;
};

}  // namespace kiln::store
