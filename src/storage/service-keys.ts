import { sql } from 'kysely'
import type { Database } from './database.ts'

const KEY_BYTES = 32

/**
 * Returns a key that the gateways of one service share. The first gateway that asks for a name
 * makes the key. Throws the driver's error.
 */
export async function openServiceKey(
  { queries }: Pick<Database, 'queries'>,
  { name, random }: { readonly name: string; readonly random: (length: number) => Uint8Array },
): Promise<Uint8Array> {
  await sql`
    insert into service_keys (name, key) values (${name}::text, ${random(KEY_BYTES)}::bytea)
    on conflict (name) do nothing`.execute(queries)
  const { rows } = await sql<{ key: Uint8Array }>`
    select key from service_keys where name = ${name}::text`.execute(queries)
  const [row] = rows
  if (row === undefined) throw new Error(`expected the key ${name} in the database`)
  return row.key
}
