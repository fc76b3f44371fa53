// How SQLite reaches files: with its usual VFS, of which no part maps a file into memory.
#pragma once

namespace kiln::store {

/// Returns the name of a VFS that calls SQLite's default one, and offers neither mapped pages nor the shared memory of
/// WAL mode. A process that touches a mapped page past the end of a file that was cut meanwhile is ended by SIGBUS, and
/// any file can come to say that it is in WAL mode after its header was checked.
const char* plain_files();

}  // namespace kiln::store
