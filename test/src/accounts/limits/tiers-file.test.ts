import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { chooseTiers, findGroup } from '#src/accounts/limits/tiers.ts'

let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-tiers-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function store(value: unknown): Promise<string> {
  const file = join(folder, `${crypto.randomUUID()}.json`)
  await writeFile(file, JSON.stringify(value))
  return file
}

const verified = { kind: 'verified', model: 'gpt-4o' } as const

it('the tiers of a gateway limit nothing in development without a file', async () => {
  const { standard } = await chooseTiers(null, { isProduction: false })
  expect(Object.values(findGroup(standard, verified).limits)).toEqual([null, null, null, null])
})

it('the tiers of a gateway in production are never without limits for want of a file', async () => {
  const { standard } = await chooseTiers(null, { isProduction: true })
  expect(findGroup(standard, verified).limits).toEqual({
    requestsPerMinute: 60,
    tokensPerMinute: 40_000,
    requestsPerDay: 33_000,
    tokensPerDay: 4_000_000,
  })
})

it('the tiers of a gateway are those of the file', async () => {
  const file = await store({
    default_tier: 'a',
    tiers: { a: { groups: [{ name: 'all', requests_per_day: 7 }] } },
  })
  for (const isProduction of [false, true]) {
    const { standard } = await chooseTiers(file, { isProduction })
    expect(findGroup(standard, verified).limits.requestsPerDay).toBe(7)
  }
})

it('the tiers file keeps the gateway from starting when it is not there', async () => {
  await expect(chooseTiers(join(folder, 'none.json'), { isProduction: false })).rejects.toThrow(
    /RATE_LIMIT_TIERS_FILE .*none\.json cannot be read \(ENOENT\)/,
  )
})
