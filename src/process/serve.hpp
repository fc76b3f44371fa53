// The worker's side of the conversation.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

namespace kiln::process {

/// Greets, then answers each message with what `answer` makes of it, or with the error that it throws, until the other end of the
/// socket is gone: however busy `answer` is then, the process ends. After Error(driver_failed) it ends too: nothing of a broken
/// context can be given back.
[[noreturn]] void serve(int descriptor, const std::function<nlohmann::json(const nlohmann::json& message)>& answer);

}  // namespace kiln::process
