// What a test measured, as a line of JSON in the file that KILN_TEST_ROWS names (bench/shared-store), if it does.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

namespace kiln::testing {

class KeptRow {
 public:
  explicit KeptRow(std::string_view what) : text_("{\"what\":\"" + std::string(what) + '"') {}
  /// Appended in one write: tests run side by side.
  ~KeptRow() {
    const char* const path = std::getenv("KILN_TEST_ROWS");
    if (path == nullptr || *path == '\0') return;
    const int file = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    text_ += "}\n";
    [[maybe_unused]] const auto written = ::write(file, text_.data(), text_.size());
    ::close(file);
  }
  KeptRow(const KeptRow&) = delete;
  KeptRow& operator=(const KeptRow&) = delete;
  template <class Value>
  KeptRow& with(std::string_view name, const Value& value) {
    text_ += ",\"" + std::string(name) + "\":";
    if constexpr (std::is_arithmetic_v<Value>)
      text_ += std::to_string(value);
    else
      text_ += '"' + std::string(value) + '"';
    return *this;
  }

 private:
  std::string text_;
};

}  // namespace kiln::testing
