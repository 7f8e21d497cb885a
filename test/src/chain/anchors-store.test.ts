import { expect, it } from 'vitest'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { useDatabase } from '../../support/databases.ts'
import { makeLog, randomAddress, storeCommits } from '../verified/commits/build-commit.ts'

const database = await useDatabase()
const anchors = createAnchorsStore(database)

async function storeAnchors(count: number) {
  const log = makeLog()
  const { stored } = await storeCommits(
    createCommitsStore(database),
    log,
    Array.from({ length: count }, () => [{}]),
  )
  return { relayer: log.relayer, stored }
}

const minedAt = (nonce: number, succeeded = true) => ({
  nonce,
  blockNumber: 100 + nonce,
  blockHash: `0x${String(nonce).padStart(64, '0')}`,
  succeeded,
  gasUsed: 50_000 + nonce,
})
const statesOf = async (relayer: string) =>
  (await anchors.listFrom(relayer, 0, 1000)).map(({ state, blockNumber }) => [state, blockNumber])

it('the anchors store gives anchors as they were committed, pending and without a block', async () => {
  const { relayer, stored } = await storeAnchors(3)
  expect(await anchors.listFrom(relayer, 0, 10)).toEqual(
    stored.map(({ anchor }) => ({
      relayer,
      nonce: anchor.nonce,
      txHash: anchor.hash,
      raw: anchor.raw,
      state: 'pending',
      blockNumber: null,
      blockHash: null,
    })),
  )
})

it('the anchors store knows the highest nonce, and that there is no nonce yet', async () => {
  const { relayer } = await storeAnchors(4)
  expect(await anchors.highestNonce(relayer)).toBe(3)
  expect(await anchors.highestNonce(randomAddress())).toBeNull()
})

it('the anchors store marks mined and reverted anchors with their blocks, again with the same outcome', async () => {
  const { relayer } = await storeAnchors(3)
  for (let time = 0; time < 2; time++) {
    await anchors.markMined(relayer, [minedAt(0), minedAt(1, false)])
    expect(await statesOf(relayer)).toEqual([
      ['mined', 100],
      ['reverted', 101],
      ['pending', null],
    ])
  }
  const [first] = await anchors.listFrom(relayer, 0, 1)
  expect(first?.blockHash).toBe(minedAt(0).blockHash)
  const row = await database.queries
    .selectFrom('anchors')
    .select('gas_used')
    .where('relayer', '=', relayer)
    .where('nonce', '=', 1)
    .executeTakeFirstOrThrow()
  expect(row.gas_used).toBe(50_001)
})

it('the anchors store confirms mined anchors up to a nonce, and no others', async () => {
  const { relayer } = await storeAnchors(5)
  const { relayer: other } = await storeAnchors(1)
  await anchors.markMined(relayer, [minedAt(0), minedAt(1, false), minedAt(2), minedAt(4)])
  await anchors.markMined(other, [minedAt(0)])
  await anchors.markConfirmed(relayer, 3)
  expect((await statesOf(relayer)).map(([state]) => state)).toEqual([
    'confirmed',
    'reverted',
    'confirmed',
    'pending',
    'mined',
  ])
  expect(await statesOf(other)).toEqual([['mined', 100]])
})

it('the anchors store makes every anchor from a nonce on pending again, whatever it was', async () => {
  const { relayer } = await storeAnchors(5)
  await anchors.markMined(relayer, [minedAt(0), minedAt(1), minedAt(2, false), minedAt(3)])
  await anchors.markConfirmed(relayer, 1)
  await anchors.markLost(relayer, 1)
  expect(await statesOf(relayer)).toEqual([['confirmed', 100], ...Array(4).fill(['pending', null])])
})

it('the anchors store finds the lowest anchor that is pending or mined', async () => {
  const { relayer } = await storeAnchors(3)
  expect(await anchors.lowestUnsettled(randomAddress())).toBeNull()
  expect(await anchors.lowestUnsettled(relayer)).toBe(0)
  await anchors.markMined(relayer, [minedAt(0), minedAt(1, false), minedAt(2)])
  expect(await anchors.lowestUnsettled(relayer)).toBe(0)
  await anchors.markConfirmed(relayer, 0)
  expect(await anchors.lowestUnsettled(relayer)).toBe(2)
  await anchors.markConfirmed(relayer, 2)
  expect(await anchors.lowestUnsettled(relayer)).toBeNull()
  await anchors.markLost(relayer, 1)
  expect(await anchors.lowestUnsettled(relayer)).toBe(1)
})
