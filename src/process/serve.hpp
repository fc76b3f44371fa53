// The worker's side: receive a request, send an answer.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

namespace kiln::process {

/// Sends the greeting, then answers each message with the result of `answer` or with the error that it throws. The
/// process exits with status 0 when the other end of the socket closes, even while `answer` runs. It exits after
/// Error(driver_failed) too, because a broken CUDA context cannot be used again.
[[noreturn]] void serve(int descriptor, const std::function<nlohmann::json(const nlohmann::json& message)>& answer);

}  // namespace kiln::process
