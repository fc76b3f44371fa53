// How SQLite reaches files: with its usual VFS, but no part of a file is mapped into memory, and locks are Kiln's own.
#pragma once

namespace kiln::store {

/// Returns the name of a VFS that calls SQLite's default one. It differs in two ways.
/// - It offers neither mapped pages nor the shared memory of WAL mode. A process that touches a mapped page past the
///   end of a file that was cut meanwhile is ended by SIGBUS, and any file can come to say that it is in WAL mode after
///   its header was checked.
/// - It locks a database by a FileLock. So several copies of Kiln in a process, each with an SQLite of its own, can use
///   one file.
/// Each copy of Kiln has a name of its own, since copies may share one SQLite.
const char* plain_files();

}  // namespace kiln::store
