// Files of earlier versions.
#pragma once

#include "store/sqlite.hpp"

namespace kiln::store {

/// Brings a file of version 1, whose tables were judged, to the present one: in the caller's transaction, so that it is
/// done whole or not at all. Rows whose digest does not hold are noted in the quarantine; a seal goes, for digests change.
void migrate_from_1(Connection& connection);

}  // namespace kiln::store
