import { type Kysely, sql } from 'kysely'

/**
 * Where anchors stand in their blocks, and what the listing of heads and the search for missing
 * proofs need.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  // Served only while block_hash is still the anchor's: a reorganisation changes the anchor's row
  // and leaves this one. transaction_proof and receipt_proof are RLP lists of the tries' nodes,
  // root to leaf.
  await sql`
    create table anchor_blocks (
      relayer text not null,
      nonce bigint not null,
      block_hash bytea not null check (octet_length(block_hash) = 32),
      number bigint not null,
      header bytea not null,
      transaction_index integer not null check (transaction_index >= 0),
      transaction_proof bytea not null,
      receipt_proof bytea not null,
      primary key (relayer, nonce)
    )`.execute(db)
  // The block whose proofs are stored, so that a partial index holds exactly the anchors that wait
  // for theirs.
  await sql`alter table anchors add column proven_block_hash bytea`.execute(db)
  await sql`
    create index anchors_unproven on anchors (block_number, block_hash)
      where state = 'confirmed' and proven_block_hash is distinct from block_hash`.execute(db)
  await sql`create index anchors_heads on anchors (log_id, size)`.execute(db)
  await sql`
    create index anchors_mined_heads on anchors (log_id, size) where state in ('mined', 'confirmed')`.execute(
    db,
  )
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  for (const index of ['anchors_mined_heads', 'anchors_heads', 'anchors_unproven'])
    await db.schema.dropIndex(index).execute()
  await sql`alter table anchors drop column proven_block_hash`.execute(db)
  await db.schema.dropTable('anchor_blocks').execute()
}
