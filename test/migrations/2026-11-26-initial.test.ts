import { sql } from 'kysely'
import { beforeAll, expect, it } from 'vitest'
import { NODE_STATES } from '#src/nodes/registry/node-state.ts'
import { useDatabase } from '../support/databases.ts'

const database = await useDatabase()
beforeAll(async () => {
  await sql`
    insert into nodes (node_id, account_id, name, created_at)
    values ('one', gen_random_uuid(), 'rig', 0)`.execute(database.queries)
}, 60_000)

it.each([
  ['an address in upper case', sql`insert into relayers values (${`0x${'AB'.repeat(20)}`}, 0)`],
  ['a nonce below zero', sql`insert into relayers values (${`0x${'ab'.repeat(20)}`}, -1)`],
  [
    'a digest of another length',
    sql`insert into attestation_documents values (decode('00', 'hex'), decode('00', 'hex'), 0)`,
  ],
  [
    'a key of no account',
    sql`insert into api_keys values ('x', gen_random_uuid(), decode(repeat('00', 32), 'hex'), 'x', 0, null)`,
  ],
  [
    'a key with a scope that there is not',
    sql`
      with account as (insert into accounts values (gen_random_uuid(), 'x', 0) returning id)
      insert into api_keys (id, account_id, secret_hash, name, created_at, scopes)
        select 'x', id, decode(repeat('00', 32), 'hex'), 'x', 0, '{inference,root}' from account`,
  ],
  ['a state of a node that there is not', sql`update nodes set state = 'BUSY'`],
  ['a machine with a negative memory', sql`update nodes set ram = -1`],
  ['an uptime below zero', sql`update nodes set total_uptime_seconds = -1`],
  ['hardware that was reported and is not there', sql`update nodes set hardware_at = 0`],
  ['a negative benchmark', sql`insert into node_benchmarks values ('one', 'm', -1, 0)`],
  ['a benchmark of no node', sql`insert into node_benchmarks values ('two', 'm', 1, 0)`],
  ['an attested root of 31 bytes', attestation({ root: 31 })],
  ['an attested block hash of 33 bytes', attestation({ hash: 33 })],
  ['an attested size below 0', attestation({ size: -1 })],
  ['an attested block number below 0', attestation({ block: -1 })],
])('the initial schema refuses %s', async (_, statement) => {
  await expect(statement.execute(database.queries)).rejects.toMatchObject({
    code: expect.stringMatching(/^23(514|503)$/),
  })
})

it('the initial schema takes every state of a node that the code knows', async () => {
  for (const state of NODE_STATES)
    await sql`update nodes set state = ${state} where node_id = 'one'`.execute(database.queries)
})

function attestation({ root = 32, hash = 32, size = 0, block = 0 }: Record<string, number>) {
  return sql`
    insert into head_attestations values (1, ${size}, true, ${new Uint8Array(root)}, ${block},
      ${new Uint8Array(hash)}, ${new Uint8Array(1)}, 0)`
}
