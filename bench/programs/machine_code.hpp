// What a cubin holds, to compare two as the device runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bench {

struct Function {
  int registers = 0;
  std::int64_t spill_bytes = 0;  // local memory a thread
  std::string digest;            // as MachineCode's, of this kernel alone; empty where code reads tables
};

struct MachineCode {
  std::string digest;               // SHA-256 in hexadecimal digits
  std::vector<Function> functions;  // kernels, in the cubin's order
};

/// The digest covers instructions, initialised data, and each kernel's registers, spills, static shared memory and barriers. Not names, and not
/// which offsets its parameters have. Throws Error(bad_input) for what is no cubin.
MachineCode machine_code(std::span<const std::byte> image);

}  // namespace bench
