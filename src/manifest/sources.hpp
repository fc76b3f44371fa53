// The source files of an op, shared by everything derived from them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::manifest {

inline constexpr std::string_view op_file = "op.toml";  // the op's own manifest in its folder

/// The text of a file. Copies share it. An embedded text is never copied, because each page that a process writes takes
/// microseconds of its start.
class SourceText {
 public:
  SourceText(std::string text)  // NOLINT(google-explicit-constructor): a text is what this is
      : owned_(std::make_shared<const std::string>(std::move(text))), text_(owned_->c_str()), size_(owned_->size()) {}
  SourceText(const char* text) : SourceText(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  SourceText(const SourceText&) = default;  // no move: a moved-from view would point into another's text
  SourceText& operator=(const SourceText&) = default;
  ~SourceText() = default;
  /// `text` must outlive every copy and be followed by a zero byte.
  static SourceText of_static(std::string_view text) noexcept { return SourceText(text.data(), text.size()); }

  operator std::string_view() const noexcept { return {text_, size_}; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] std::string str() const { return {text_, size_}; }
  [[nodiscard]] const char* c_str() const noexcept { return text_; }
  friend bool operator==(const SourceText& a, const SourceText& b) noexcept {
    return std::string_view(a) == std::string_view(b);
  }

 private:
  SourceText(const char* text, std::size_t size) noexcept : text_(text), size_(size) {}
  std::shared_ptr<const std::string> owned_;  // null for a static text
  const char* text_;
  std::size_t size_;
};

/// A source file of an op's folder or of common/, by the name it is included by.
struct SourceFile {
  std::string name;
  SourceText text;
  friend bool operator==(const SourceFile&, const SourceFile&) = default;
};

/// An immutable list of files; copies share it. It also holds results derived from the files, which are freed with the
/// last copy. Thread-safe.
class Sources {
 public:
  Sources() : Sources(std::vector<SourceFile>()) {}
  Sources(std::vector<SourceFile> files);  // NOLINT(google-explicit-constructor): a list of files is what this is

  [[nodiscard]] auto begin() const noexcept { return files().begin(); }
  [[nodiscard]] auto end() const noexcept { return files().end(); }
  [[nodiscard]] std::size_t size() const noexcept { return files().size(); }
  [[nodiscard]] bool empty() const noexcept { return files().empty(); }
  [[nodiscard]] const SourceFile& operator[](std::size_t index) const noexcept { return files()[index]; }
  [[nodiscard]] const std::vector<SourceFile>& files() const noexcept;
  friend bool operator==(const Sources& a, const Sources& b) {
    return a.shared_ == b.shared_ || a.files() == b.files();
  }

  /// Base class of such results.
  struct Finding {
    Finding() = default;
    Finding(const Finding&) = delete;
    Finding& operator=(const Finding&) = delete;
    virtual ~Finding() = default;
  };
  /// Returns null when nothing is kept under this name.
  [[nodiscard]] std::shared_ptr<const Finding> kept(const std::string& name) const;
  void keep(const std::string& name, std::shared_ptr<const Finding> finding) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace kiln::manifest
