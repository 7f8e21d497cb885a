import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

let machine: Machine

beforeAll(async () => {
  machine = await startMachine()
})
afterAll(() => machine.stop())

async function createKey(name: string): Promise<{ readonly id: string; readonly key: string }> {
  const { stdout } = await runCli(
    ['keys', 'create', '--account', 'customer', '--name', name, '--json'],
    { variables: { DATABASE_URL: machine.postgres.url } },
  )
  return JSON.parse(stdout) as { id: string; key: string }
}

const statusFor = async (key: string) =>
  (
    await fetch(`${machine.gateways[0].origin}/v1/dashboard/me`, {
      headers: { authorization: `Bearer ${key}` },
    })
  ).status

it('the runbook for API keys is followed for a key in use and for a leaked key that made others', async () => {
  const old = await createKey('production')
  const leaked = await createKey('laptop')
  await machine.complete({ key: old.key })
  const made = await fetch(`${machine.gateways[0].origin}/v1/dashboard/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${leaked.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'of a thief' }),
  })
  const stolen = ((await made.json()) as { readonly key: string }).key
  expect(await statusFor(stolen)).toBe(200)
  const client = new pg.Client({ connectionString: machine.postgres.url })
  await client.connect()
  const isUseRecorded = async () => {
    const { rows } = await client.query(
      'select 1 from api_keys where last_used_at is not null and name = $1',
      ['production'],
    )
    return rows.length > 0
  }
  await until('its use is noted', isUseRecorded)

  const variables = { ...machine.walking.variables, OLD: old.id, LEAKED: leaked.id }
  await walkPage('rotate-api-keys', { ...machine.walking, variables }, async (walk) => {
    await walk.section('Before you begin')
    await walk.section('Make the new key')
    const fresh = (await readFile(join(walk.folder, 'new.key'), 'utf8')).trim()
    await walk.section('Hand it over')
    // Two minutes go by in which the holder uses the new key alone.
    await client.query('update api_keys set last_used_at = last_used_at - 120')
    await machine.complete({ key: fresh })
    await walk.section('Watch the old one')
    expect(await statusFor(old.key)).toBe(200)
    await walk.section('Revoke it')
    await until('it is refused', async () => (await statusFor(old.key)) === 401)
    expect(await statusFor(fresh)).toBe(200)
    await walk.section('How to know that it worked')
    await walk.section('A leaked key')
    for (const key of [leaked.key, stolen])
      await until('it is refused', async () => (await statusFor(key)) === 401)
    expect(await statusFor(fresh)).toBe(200)
  })
  await client.end()
})
