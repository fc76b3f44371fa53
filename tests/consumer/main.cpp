// Opens an engine and lists its ops; on a machine without a GPU, says so.
#include <kiln/kiln.hpp>

#include <iostream>

int main() {
  kiln::Options options;
  options.overlay.emplace();  // nothing is left behind
  try {
    const kiln::Engine engine(options);
    for (const std::string& op : engine.ops()) std::cout << op << '\n';
    return engine.ops().empty() ? 1 : 0;
  } catch (const kiln::Error& error) {
    std::cout << to_string(error.kind()) << ": " << error.what() << '\n';
    return error.kind() == kiln::ErrorKind::no_driver || error.kind() == kiln::ErrorKind::no_device ? 0 : 1;
  }
}
