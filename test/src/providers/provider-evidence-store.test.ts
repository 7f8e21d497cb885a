import { beforeAll, expect, it } from 'vitest'
import { createProviderEvidenceStore } from '#src/providers/provider-evidence-store.ts'
import { createProviderTurnsStore } from '#src/providers/provider-turns-store.ts'
import { useDatabase } from '../../support/databases.ts'

const ORIGIN = 'https://tee.example'
const [A = '', B = '', C = '', D = ''] = ['a1', 'b2', 'c3', 'd4'].map((byte) => byte.repeat(32))
const BLOCK = { chainId: 1, number: 17, hash: new Uint8Array(32).fill(0xb1) }
const turn = { origin: ORIGIN, kind: 'tinfoil', limitMs: 60_000, laterMaxMs: 3_600_000 } as const

const database = await useDatabase()
const store = createProviderEvidenceStore(database)
const turns = createProviderTurnsStore(database)
beforeAll(async () => {
  for (const [digest, atMs, keys] of [
    [A, 1_000, [A]],
    [B, 2_000, [A, B]],
    [C, 3_000, [B]],
  ] as const)
    await store.save({
      digest,
      provider: 'tee',
      origin: ORIGIN,
      kind: 'tinfoil',
      fetchedAtMs: atMs,
      endsAtMs: digest === C ? null : atMs + 1_500,
      block: digest === C ? BLOCK : null,
      keys,
      document: Buffer.from(digest, 'hex'),
    })
}, 60_000)

it.each([
  ['before all', A, 999, null],
  ['at the first', A, 1_000, A],
  ['between', A, 2_999, B],
  ['after evidence without an end, while another has not ended', B, 3_200, B],
  ['after all, under an earlier key', A, 9_000, B],
  ['after all, under the newest key', B, 9_000, C],
  ['under a key of none', C, 9_000, null],
])('a receipt %s gets the newest evidence that states its key', async (_, key, atMs, digest) => {
  const found = await store.findFor({ origin: ORIGIN, spkiSha256: key, atMs })
  expect(found && Buffer.from(found).toString('hex')).toBe(digest)
})

it('the newest evidence has its block, its end and its keys', async () => {
  expect(await store.findNewest({ origin: ORIGIN, kind: 'tinfoil' })).toEqual({
    digest: C,
    fetchedAtMs: 3_000,
    endsAtMs: null,
    block: BLOCK,
    keys: [B],
  })
  expect(await store.findNewest({ origin: ORIGIN, kind: 'aci' })).toBeNull()
})

it('a document is read by its digest, and is null for another digest', async () => {
  expect(Buffer.from((await store.read(B)) ?? []).toString('hex')).toBe(B)
  expect(await store.read('00'.repeat(32))).toBeNull()
})

it('a key is new only where other keys were seen before it', async () => {
  const see = (spkiSha256: string, atMs: number) =>
    store.recordKey({ origin: ORIGIN, spkiSha256, atMs })
  expect(await see(A, 10)).toBe(false)
  expect(await see(A, 20)).toBe(false)
  expect(await see(B, 30)).toBe(true)
  expect(await see(A, 25)).toBe(false)
  expect(await store.recordKey({ origin: 'https://o.example', spkiSha256: B, atMs: 1 })).toBe(false)
  expect(await store.listKeys(ORIGIN)).toEqual([
    { spkiSha256: B, firstSeenMs: 30, lastSeenMs: 30 },
    { spkiSha256: A, firstSeenMs: 10, lastSeenMs: 25 },
  ])
})

it('evidence is due for a seen key that no document states, after a pause that grows', async () => {
  const isDue = async (
    spkiSha256: string,
    atMs: number,
    [pauseMinMs, pauseMaxMs]: [number, number],
  ) => {
    await store.recordKey({ origin: ORIGIN, spkiSha256, atMs })
    return await store.isEvidenceDue({ origin: ORIGIN, spkiSha256, pauseMinMs, pauseMaxMs })
  }
  // C is first seen 900 ms before the newest document.
  expect(await isDue(C, 2_100, [0, 0])).toBe(false)
  expect(await isDue(C, 3_899, [100, 10_000])).toBe(false)
  expect(await isDue(C, 3_899, [100, 899])).toBe(true)
  expect(await isDue(C, 3_900, [100, 10_000])).toBe(true)
  expect(await isDue(C, 4_999, [2_000, 10_000])).toBe(false)
  expect(await isDue(C, 5_000, [2_000, 10_000])).toBe(true)
  // D is first seen after the newest document.
  expect(await isDue(D, 9_000, [100, 10_000])).toBe(false)
  expect(await isDue(D, 9_100, [100, 10_000])).toBe(true)
  expect(await isDue(A, 9_000_000, [100, 10_000])).toBe(false)
})

it('evidence that a gateway with a fast clock collected hides no other evidence, and delays none', async () => {
  const [origin, nowMs, day] = ['https://fast.example', Date.now(), 86_400_000]
  const save = (digest: string, fetchedAtMs: number) =>
    store.save({
      digest,
      provider: 'fast',
      origin,
      kind: 'tinfoil',
      fetchedAtMs,
      endsAtMs: null,
      block: null,
      keys: [A],
      document: Buffer.from(digest, 'hex'),
    })
  const newest = async () => (await store.findNewest({ origin, kind: 'tinfoil' }))?.digest
  await save('f0'.repeat(32), nowMs + day)
  expect(await newest()).toBe('f0'.repeat(32))
  const see = (atMs: number) => store.recordKey({ origin, spkiSha256: C, atMs })
  await see(nowMs - 2 * day)
  await see(nowMs - day)
  const key = { origin, spkiSha256: C, pauseMinMs: 60_000, pauseMaxMs: 3_600_000 }
  expect(await store.isEvidenceDue(key)).toBe(true)
  await see(nowMs + day)
  const [seen] = await store.listKeys(origin)
  expect(seen?.lastSeenMs).toBeLessThan(nowMs + 60_000)
  await save('f1'.repeat(32), nowMs - day)
  expect(await newest()).toBe('f1'.repeat(32))
  await save('f2'.repeat(32), nowMs + 60_000)
  expect(await newest()).toBe('f2'.repeat(32))
})

it('one of many simultaneous gateways takes a turn, and again when it is due', async () => {
  const take = () => Promise.all(Array.from({ length: 8 }, () => turns.takeTurn(turn)))
  expect((await take()).filter((taken) => taken !== null)).toEqual([0])
  await turns.settleTurn({ ...turn, pauseMs: 0, failures: 3 })
  expect((await take()).filter((taken) => taken !== null)).toEqual([3])
})

it('a turn of a gateway that died is due after its time limit', async () => {
  await turns.settleTurn({ ...turn, pauseMs: 0, failures: 0 })
  expect(await turns.takeTurn({ ...turn, limitMs: 1_000 })).toBe(0)
  expect(await turns.takeTurn(turn)).toBeNull()
  await expect.poll(() => turns.takeTurn(turn)).toBe(0)
})

it('a turn that is later than the interval is taken, since the interval was made shorter', async () => {
  await turns.settleTurn({ ...turn, pauseMs: 7_200_000, failures: 0 })
  expect(await turns.takeTurn({ ...turn, laterMaxMs: 7_300_000 })).toBeNull()
  expect(await turns.takeTurn(turn)).toBe(0)
})
