// Words of 16 bytes that say whence they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "emulator/vectors.hpp"

namespace test {

inline bool equal(const uint4& a, const uint4& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
inline bool poisoned(const uint4& word) { return (word.x & word.y & word.z & word.w) == ~0u; }

/// Words among poison, themselves poison at first.
class Words {
 public:
  static constexpr int margin = 4;

  explicit Words(int count) : words_(static_cast<std::size_t>(count + 2 * margin), uint4{~0u, ~0u, ~0u, ~0u}) {}
  /// No two words are equal, nor are those of different numbers.
  static Words numbered(int count, int number) {
    Words made(count);
    for (unsigned i = 0; i < static_cast<unsigned>(count); ++i)
      made.data()[i] = {static_cast<unsigned>(number), i, i * 7 + 1, 3};
    return made;
  }

  /// Of floats: value(i) is float i.
  template <typename Value>
  static Words of(int count, Value value) {
    Words made(count);
    for (int i = 0; i < 4 * count; ++i) {
      const float number = value(i);
      std::memcpy(reinterpret_cast<std::byte*>(made.data()) + sizeof number * static_cast<std::size_t>(i), &number,
                  sizeof number);
    }
    return made;
  }

  [[nodiscard]] float number(int i) const {
    float value = 0;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(&(*this)[i / 4]) + i % 4 * sizeof value, sizeof value);
    return value;
  }
  uint4* data() { return words_.data() + margin; }
  const uint4& operator[](int i) const { return words_[static_cast<std::size_t>(i + margin)]; }
  [[nodiscard]] bool margins_untouched() const {
    for (std::size_t i = 0; i < margin; ++i) {
      if (!poisoned(words_[i]) || !poisoned(words_[words_.size() - 1 - i])) return false;
    }
    return true;
  }

 private:
  std::vector<uint4> words_;
};

}  // namespace test
