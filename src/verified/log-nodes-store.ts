import { sql } from 'kysely'
import type { NodeCoordinate } from '#attestation/merkle/proof-nodes.ts'
import { PREPARED } from '../storage/prepared.ts'
import type { Queries } from '../storage/tables.ts'

export type StoredNodeCoordinate = NodeCoordinate & { readonly logId: number }

/** Throws when the node is not stored, or was not in the coordinates of readNodes. */
export type HashLookup = (coordinate: StoredNodeCoordinate) => Uint8Array

/**
 * Reads nodes of one or more logs with one query. Coordinates may repeat. `limit 1` is needed,
 * because an embedded database has no statistics, so a join would read the whole table.
 */
export async function readNodes(
  queries: Queries,
  coordinates: readonly StoredNodeCoordinate[],
): Promise<HashLookup> {
  const wanted = new Map(coordinates.map((coordinate) => [keyOf(coordinate), coordinate]))
  const hashes = new Map<string, Uint8Array>()
  if (wanted.size > 0) {
    const nodes = [...wanted.values()]
    const { rows } = await sql<{ log_id: number; level: number; index: number; hash: Uint8Array }>`
      ${PREPARED} select w.log_id, w.level, w.index, n.hash
      from unnest(
        ${nodes.map((node) => node.logId)}::integer[],
        ${nodes.map((node) => node.level)}::integer[],
        ${nodes.map((node) => node.index)}::bigint[]) as w(log_id, level, index)
      cross join lateral (
        select hash from log_nodes l
        where l.log_id = w.log_id and l.level = w.level and l.index = w.index
        limit 1) n`.execute(queries)
    for (const row of rows) hashes.set(keyOf({ ...row, logId: row.log_id }), row.hash)
  }
  return (coordinate) => {
    const hash = hashes.get(keyOf(coordinate))
    if (hash === undefined)
      throw new Error(`expected a stored node at ${keyOf(coordinate)} (log/level/index)`)
    return hash
  }
}

function keyOf({ logId, level, index }: StoredNodeCoordinate): string {
  return `${logId}/${level}/${index}`
}
