// A headless Chromium, spoken to in its DevTools protocol over a pair of pipes.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kiln::testing {

/// $KILN_CHROMIUM, or the first Chromium on the path; empty when there is none.
std::string chromium();

class Browser {
 public:
  Browser();
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  /// Returns once it is loaded.
  void open(const std::filesystem::path& page);
  void resize(int width, int height);
  void prefer(const std::string& colour_scheme);  // "light" or "dark"
  /// Pages opened from now on run no script; evaluate() still does.
  void disable_scripts();
  /// The value of a JavaScript expression. Throws what it throws.
  nlohmann::json evaluate(const std::string& expression);
  /// What the console and the page's scripts complained about since the last open().
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  nlohmann::json call(const std::string& method, const nlohmann::json& parameters = nlohmann::json::object());
  nlohmann::json receive();
  void note(const nlohmann::json& event);

  std::filesystem::path folder_;
  pid_t process_ = -1;
  int write_ = -1, read_ = -1;
  std::string unread_, session_;
  int last_id_ = 0;
  bool loaded_ = false;
  std::vector<std::string> problems_;
};

}  // namespace kiln::testing
