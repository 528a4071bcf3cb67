"""SQL of PostgreSQL about the snapshot of a transaction, for reading outboxes.

XMIN and XMAX are transaction ids: below xmin every transaction has ended, from xmax on none is
visible. The positions of the write-ahead log say which ids are on the server's disk; a standby
answers 0, because it has only what is on its primary's disk.
"""

from __future__ import annotations

XID = "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"  # tools do not know the type xid8
XMIN = "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
XMAX = "CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)"
_WAL = "CASE WHEN pg_is_in_recovery() THEN 0 ELSE {}() - CAST('0/0' AS pg_lsn) END"
INSERTED = _WAL.format("pg_current_wal_insert_lsn")
FLUSHED = _WAL.format("pg_current_wal_flush_lsn")
# A scan of pg_class sees the transaction's snapshot, pg_relation_filenode() the present: they
# differ for a table that was rewritten since. Rows of COPY FREEZE are visible to older snapshots.
# The oid of the table is t.oid.
IS_REWRITTEN = (
    "CASE current_setting('transaction_isolation') WHEN 'read committed' THEN false ELSE"
    " EXISTS (SELECT FROM (SELECT t.oid UNION SELECT relid FROM pg_partition_tree(t.oid)) AS part"
    " LEFT JOIN pg_class c ON c.oid = part.oid WHERE c.oid IS NULL"
    " OR nullif(c.relfilenode, 0) IS DISTINCT FROM pg_relation_filenode(part.oid)) END"
)
# Whether both triggers of the outbox, given as parameters, always run.
IS_FED = (
    "2 = (SELECT count(*) FROM pg_trigger"
    " WHERE tgrelid = t.oid AND tgname IN (:inserts, :updates) AND tgenabled = 'A')"
)
