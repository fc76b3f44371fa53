// The calls by which a folder is reached, as a table, so that tests can put failing ones in their place. Each is the
// system's of its name: it sets errno.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace kiln::remote {

struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode) = [](const char* path, int flags, mode_t mode) {
    return ::open(path, flags, mode);
  };
  ssize_t (*read)(int file, void* into, std::size_t bytes) = ::read;
  ssize_t (*write)(int file, const void* from, std::size_t bytes) = ::write;
  int (*fsync)(int file) = ::fsync;
  int (*close)(int file) = ::close;
  int (*fstat)(int file, struct stat* status) = ::fstat;
  int (*touch)(int file) = [](int file) { return ::futimens(file, nullptr); };
  int (*rename)(const char* from, const char* to) = ::rename;
  int (*link)(const char* from, const char* to) = ::link;
  int (*unlink)(const char* path) = ::unlink;
  int (*mkdir)(const char* path, mode_t mode) = ::mkdir;
  DIR* (*opendir)(const char* path) = ::opendir;
  dirent* (*readdir)(DIR* folder) = ::readdir;
};

}  // namespace kiln::remote
