// Values, keys and a folder as a shared store, with file calls that fail when they are told to.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>

#include "../store/key_files.hpp"
#include "../store/support.hpp"
#include "remote/folder.hpp"
#include "remote/sealed.hpp"

namespace kiln::remote {

inline store::RemoteStore::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

inline store::Record numbered_record(int number, std::int64_t samples = 40) {
  return store::with_samples(store::sample_record("rms_norm@3 | rows=pow2:" + std::to_string(number)), samples);
}

inline std::string value_of(const store::Record& record) { return seal(record, {}, nullptr); }

/// A call that fails from now on with this errno; 0: none does.
enum class Call { none, open, read, write, fsync, close, fstat, rename, unlink, mkdir, link, opendir, readdir };
struct Failing {
  static inline Call call = Call::none;
  static inline int error = 0;
  static inline int times = 0;  // that it fails; below 0: always
  static void begin(Call of, int with, int how_often = -1) { call = of, error = with, times = how_often; }
  static void end() { begin(Call::none, 0); }
  /// Whether the call fails now.
  static bool now(Call of) {
    if (call != of || times == 0) return false;
    if (times > 0) --times;
    errno = error;
    return true;
  }
};

inline FileCalls failing_calls() {
  FileCalls calls;
  calls.open = [](const char* path, int flags, mode_t mode) {
    return Failing::now(Call::open) ? -1 : ::open(path, flags, mode);
  };
  calls.read = [](int file, void* into, std::size_t bytes) {
    return Failing::now(Call::read) ? ssize_t{-1} : ::read(file, into, bytes);
  };
  calls.write = [](int file, const void* from, std::size_t bytes) {
    return Failing::now(Call::write) ? ssize_t{-1} : ::write(file, from, bytes);
  };
  calls.fsync = [](int file) { return Failing::now(Call::fsync) ? -1 : ::fsync(file); };
  calls.close = [](int file) {
    const int closed = ::close(file);
    return Failing::now(Call::close) ? -1 : closed;
  };
  calls.fstat = [](int file, struct stat* status) { return Failing::now(Call::fstat) ? -1 : ::fstat(file, status); };
  calls.rename = [](const char* from, const char* to) { return Failing::now(Call::rename) ? -1 : ::rename(from, to); };
  calls.unlink = [](const char* path) { return Failing::now(Call::unlink) ? -1 : ::unlink(path); };
  calls.mkdir = [](const char* path, mode_t mode) { return Failing::now(Call::mkdir) ? -1 : ::mkdir(path, mode); };
  calls.link = [](const char* from, const char* to) { return Failing::now(Call::link) ? -1 : ::link(from, to); };
  calls.opendir = [](const char* path) { return Failing::now(Call::opendir) ? nullptr : ::opendir(path); };
  calls.readdir = [](DIR* folder) { return Failing::now(Call::readdir) ? nullptr : ::readdir(folder); };
  return calls;
}

}  // namespace kiln::remote
