-- The tables of a .kiln file; README.md beside this one says what they mean.
-- A file is opened only if its table definitions equal these letter for letter, so a change to a statement, even to its
-- white space, needs a new user_version and a migration. Comments stand outside the statements for that reason.

-- "KILN"
PRAGMA application_id = 0x4b494c4e;
PRAGMA user_version = 3;

-- Facts about the file itself, such as which version of Kiln made it.
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- The stored answer for (op, bucket, device class, timing regime): what its choices have in common. Its digest covers them too.
-- Costs are nanoseconds of device time.
CREATE TABLE record (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  op TEXT NOT NULL,
  revision INTEGER NOT NULL,
  device_class TEXT NOT NULL,
  regime TEXT NOT NULL,
  bucket TEXT NOT NULL,
  baseline_ns REAL NOT NULL,
  kiln_version TEXT NOT NULL,
  device_name TEXT NOT NULL,
  driver_version INTEGER NOT NULL,
  strategy TEXT NOT NULL,
  unix_seconds INTEGER NOT NULL,
  digest BLOB NOT NULL
) STRICT;
CREATE INDEX record_by_op ON record (op);

-- The configs of a record, each with its role and the sizes that it serves. No digest of their own: see record.
CREATE TABLE choice (
  record INTEGER NOT NULL REFERENCES record (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  role TEXT NOT NULL,
  sizes TEXT NOT NULL,
  implementation TEXT NOT NULL,
  config TEXT NOT NULL,
  cost_ns REAL NOT NULL,
  low_ns REAL NOT NULL,
  high_ns REAL NOT NULL,
  samples INTEGER NOT NULL,
  source_digest TEXT NOT NULL,
  compiler TEXT NOT NULL,
  PRIMARY KEY (record, position)
) STRICT, WITHOUT ROWID;

-- Every trial that led to a record, at each of the sizes where it was timed; those of its choices included.
CREATE TABLE candidate (
  record INTEGER NOT NULL REFERENCES record (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  implementation TEXT NOT NULL,
  config TEXT NOT NULL,
  sizes TEXT NOT NULL,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  cost_ns REAL NOT NULL,
  low_ns REAL NOT NULL,
  high_ns REAL NOT NULL,
  samples INTEGER NOT NULL,
  registers INTEGER NOT NULL,
  spill_bytes INTEGER NOT NULL,
  baseline INTEGER NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (record, position)
) STRICT, WITHOUT ROWID;

-- Machine code by what determines it. op is empty for Kiln's own kernels; source_digest is that of the choices that it
-- serves. Names are JSON arrays. The machine code itself stands in a table of its own, so that seals, statistics and
-- pruning read no pages of it.
CREATE TABLE cubin (
  id INTEGER PRIMARY KEY,
  key BLOB NOT NULL UNIQUE,
  digest BLOB NOT NULL,
  op TEXT NOT NULL,
  source_digest TEXT NOT NULL,
  label TEXT NOT NULL,
  arch TEXT NOT NULL,
  compiler TEXT NOT NULL,
  name_expressions TEXT NOT NULL,
  lowered_names TEXT NOT NULL,
  image_bytes INTEGER NOT NULL
) STRICT;

-- One zstd frame of the cubin's image_bytes bytes.
CREATE TABLE image (
  cubin INTEGER PRIMARY KEY REFERENCES cubin (id) ON DELETE CASCADE,
  frame BLOB NOT NULL
) STRICT;

-- Who is tuning a record key now. Seconds are of the boot clock, which no change of date moves.
CREATE TABLE lease (
  record_key TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  pid_namespace TEXT NOT NULL,
  pid INTEGER NOT NULL,
  process_start INTEGER NOT NULL,
  boot_seconds INTEGER NOT NULL,
  term_seconds INTEGER NOT NULL,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- How often each problem was launched, at its real sizes.
CREATE TABLE histogram (
  op TEXT NOT NULL,
  problem TEXT NOT NULL,
  launches INTEGER NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (op, problem)
) STRICT, WITHOUT ROWID;

-- What this file was used for as an overlay, and when last (Unix seconds): how many processes a record or a cubin (by its
-- key in hex) served, which pruning goes by; launches by origin; misses by reason.
CREATE TABLE usage (
  source TEXT NOT NULL,
  key TEXT NOT NULL,
  uses INTEGER NOT NULL,
  last_use INTEGER NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (source, key)
) STRICT, WITHOUT ROWID;

-- What was set aside because its digest or its payload did not hold; the newest thousand.
CREATE TABLE quarantine (
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  key TEXT NOT NULL,
  reason TEXT NOT NULL
) STRICT;

-- The seal of an exported file: how many rows each table holds, and a digest over their digests. A later write removes it.
CREATE TABLE manifest (
  source TEXT PRIMARY KEY,
  row_count INTEGER NOT NULL,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Ed25519 signatures over the manifest.
CREATE TABLE signature (
  public_key BLOB PRIMARY KEY,
  signature BLOB NOT NULL
) STRICT, WITHOUT ROWID;
