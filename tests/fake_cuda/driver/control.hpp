// What a test may ask of the fake driver beyond CUDA's own calls: C functions that libcuda.so.1 exports.
//
// A command is a list of statements separated by ';', each a list of words. The environment variable FAKE_CUDA holds one that
// is obeyed when the library is loaded.
//
//   devices N | driver VERSION | sm N | multiprocessors N | l2 BYTES | bus BITS | memory BYTES | noise FRACTION | overlap NS     the machine
//   granularity BYTES                      the unit of memory that is created apart from addresses; a multiple of 2 MiB
//   pcie 0|1 | hidden N                    links of PCIe in place of NVLink; devices of the machine that the process does not see, before its own
//   late 0|1                               work runs when a call waits for it or frees memory, a piece of each stream in turns
//   mode N                                 the compute mode: 2 refuses every process; 3 all but one of those that share the file $FAKE_CUDA_EXCLUSIVE
//   blocking 0|1                           launches return once their kernel has run: behind a wait for a word (cuStreamWaitValue32) not before
//                                          that is written. 1 from the first where CUDA_LAUNCH_BLOCKING says so
//   pause MICROSECONDS                     a thread sleeps after each launch, so that another thread's launch comes between two of its own
//   footprint BYTES                        launches run nothing: they walk BYTES of code and of data, as a real driver's would
//   fail FUNCTION CODE [at N] [sticky]     call N of FUNCTION from now on (1 unless given) returns CODE; sticky: all after it too
//   module CODE PATTERN                    a module that holds a kernel of that name is refused with CODE
//   launch CODE PATTERN                    launches of the kernel are refused with CODE, and the context lives
//   kernel wrong PATTERN                   the kernel writes a wrong value
//   kernel hasty PATTERN                   the same where it may begin before its predecessor ends, for which it does not wait
//   kernel peeks PATTERN                   the kernel reads what the kiln::copy_late before it writes as it was before, where it may begin early
//   kernel fault PATTERN                   the kernel reads an illegal address, which breaks the context
//   kernel hang PATTERN                    the kernel never ends
//   kernel interrupt PATTERN               its next launch sends the process SIGINT, as Ctrl-C does
//   kernel slow FACTOR PATTERN             the kernel takes FACTOR times as long
//   kernel odd FACTOR PATTERN              the same where it is launched with an odd number of blocks
//   kernel prompt FACTOR PATTERN           the same where it may begin before its predecessor ends, whatever that is
//   time MILLISECONDS EVERY                each EVERY-th elapsed time is this, such as nan, inf or -1
//   hold FUNCTION                          calls of FUNCTION wait until the machine is healed
//   heal                                   no more faults
//
// CODE is a number or a name such as CUDA_ERROR_OUT_OF_MEMORY. PATTERN is the rest of the statement, a part of the demangled name as in
// "rms_norm_block_row<kiln::bf16, 256"; blanks count.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

/// Obeys a command; returns 0, or 1 for one that is not understood, of which nothing was done.
int fake_cuda_control(const char* command);

/// A count, or -1 for a question that is not understood:
///   memory        bytes allocated now           allocations  device allocations alive
///   peak          the most bytes ever           handles      streams, events, modules, graphs alive
///   launches [PATTERN]   kernels run            calls FUNCTION   calls of it, those that were failed included
///   faults        faults that took effect       contexts     devices whose primary context is retained
///   mappings      handles, reservations and mappings of virtual memory alive
///   broken        captures that a forbidden call ended
///   blocked       launches that waited for the host behind a wait of their stream
///   unsafe        calls that allocate, free, load or synchronise, made by threads that were capturing themselves, in any mode
std::int64_t fake_cuda_query(const char* question);

/// For a library of the vendor's, which launches kernels of its own: the host twin that `name`, such as "vendor_matmul<4>", begins with, given
/// these bytes by value. Each name is loaded lazily, at its first launch. Returns a CUresult.
unsigned fake_cuda_launch(const char* name, struct CUstream_st* stream, const void* parameter, std::size_t bytes);

}  // extern "C"
#pragma GCC visibility pop

/// The types of these, for those who look them up.
using FakeCudaControl = int (*)(const char* command);
using FakeCudaQuery = std::int64_t (*)(const char* question);
using FakeCudaLaunch = unsigned (*)(const char* name, struct CUstream_st* stream, const void* parameter,
                                    std::size_t bytes);
