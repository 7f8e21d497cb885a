import { randomBytes, randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { createAnchorBlocksStore } from '#src/chain/anchor-blocks-store.ts'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import { createReanchorsStore } from '#src/chain/reanchors-store.ts'
import { CommitRaceLost, createRelayersStore } from '#src/chain/relayers-store.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { createLogsStore } from '#src/verified/logs/logs-store.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { useDatabase } from '../../support/databases.ts'
import {
  CREATED_AT,
  makeLog,
  minedAt,
  OPENING,
  randomAddress,
  randomHex,
  storeCommits,
} from '../verified/commits/build-commit.ts'

const { chainId } = OPENING.domain

const database = await useDatabase()

/** Two anchors, the first of which was taken, and another relayer at nonce 7. */
async function loseFirst() {
  const commits = createCommitsStore(database)
  const anchors = createAnchorsStore(database)
  const log = makeLog()
  const { state, stored } = await storeCommits(commits, log, [[{}], [{}]])
  await anchors.markTaken(log.relayer, [0])
  const other = randomAddress()
  await commits.raiseNonce(other, 7)
  const [lost, kept] = stored
  if (lost === undefined || kept === undefined) throw new Error('expected two commits')
  const relayers = [log.relayer, other]
  const isOwn = ({ relayer }: { readonly relayer: string }) => relayers.includes(relayer)
  const listTaken = async (chain: number = chainId) =>
    (await createReanchorsStore(database).listTaken(chain, 100)).filter(isOwn)
  return { log, logId: state.logId, lost, kept, other, commits, anchors, isOwn, listTaken }
}

const replacementOf = (relayer: string, nonce: number) => ({
  relayer,
  nonce,
  createdAt: CREATED_AT + 9,
  raw: randomHex(200),
  hash: randomHex(32),
})

it('lost anchors are listed with their heads, of their chain, until they are replaced', async () => {
  const { log, lost, other, listTaken } = await loseFirst()
  const reanchors = createReanchorsStore(database)
  const { size, root, signature } = lost.head
  const taken = { relayer: log.relayer, nonce: 0, contract: OPENING.domain.contract }
  const [found, ...others] = await listTaken()
  expect([found, others]).toMatchObject([taken, []])
  expect([
    found?.head.size,
    Buffer.from(found?.head.root ?? []),
    Buffer.from(found?.head.signature ?? []),
  ]).toEqual([size, Buffer.from(root), Buffer.from(signature)])
  expect(await listTaken(1)).toEqual([])
  await reanchors.replace(taken, replacementOf(other, 7))
  expect(await listTaken()).toEqual([])
})

it('a lost anchor leaves the record its hash, and shows what stands in for it, however often', async () => {
  const { log, logId, lost, other, anchors, commits, listTaken } = await loseFirst()
  const reanchors = createReanchorsStore(database)
  const [first, second] = [replacementOf(other, 7), replacementOf(log.relayer, 2)]
  await reanchors.replace({ relayer: log.relayer, nonce: 0 }, first)
  expect(await commits.nextNonce(other)).toBe(8)
  await anchors.markTaken(other, [7])
  const [again] = await listTaken()
  expect(again).toMatchObject({ relayer: other, nonce: 7, head: { size: lost.head.size } })
  await reanchors.replace({ relayer: other, nonce: 7 }, second)
  const record = await createRecordsStore(database, OPENING.domain.chainId).findByIndex(
    log.notary,
    0,
  )
  expect(record).toMatchObject({
    txHash: lost.anchor.hash,
    reanchored: [first.hash, second.hash],
  })
  const blocks = createAnchorBlocksStore(database)
  expect(await blocks.findAnchor(lost.anchor.hash)).toMatchObject({
    txHash: second.hash,
    block: null,
  })
  const logs = createLogsStore(database)
  const heads = async () =>
    (await logs.listHeads({ logId, afterSize: null, limit: 10 })).map(({ anchor }) => anchor)
  expect(await heads()).toMatchObject([
    { txHash: second.hash, state: 'pending', replaces: [lost.anchor.hash, first.hash] },
    { state: 'pending', replaces: [] },
  ])
  await anchors.markMined(log.relayer, [minedAt(2, 9)])
  expect(await blocks.findAnchor(lost.anchor.hash)).toMatchObject({
    txHash: second.hash,
    block: { number: 9 },
  })
  expect((await logs.find(log.notary))?.head).toMatchObject({
    createdAt: CREATED_AT,
    anchor: { txHash: second.hash, state: 'mined', replaces: [lost.anchor.hash, first.hash] },
  })
  // A reorganisation brings the one before into a block as well: the earliest of them counts.
  await anchors.markLost(other, 7)
  await anchors.markMined(other, [minedAt(7, 10)])
  const earliest = { txHash: first.hash, state: 'mined', replaces: [lost.anchor.hash] }
  expect(await heads()).toMatchObject([earliest, {}])
  expect((await logs.find(log.notary))?.head).toMatchObject({ anchor: earliest })
  expect(await blocks.findAnchor(lost.anchor.hash)).toMatchObject({
    txHash: first.hash,
    block: { number: 10 },
  })
})

it('a lost anchor is replaced once, by the first who does, and with a nonce that is free', async () => {
  const { log, other, commits } = await loseFirst()
  const reanchors = createReanchorsStore(database)
  const taken = { relayer: log.relayer, nonce: 0 }
  await expect(reanchors.replace(taken, replacementOf(other, 6))).rejects.toThrow(CommitRaceLost)
  await reanchors.replace(taken, replacementOf(other, 7))
  await expect(reanchors.replace(taken, replacementOf(log.relayer, 2))).rejects.toThrow(
    CommitRaceLost,
  )
  expect([await commits.nextNonce(other), await commits.nextNonce(log.relayer)]).toEqual([8, 2])
})

it('lost anchors are pending again, with what came after them, when a reorganisation frees their nonces', async () => {
  const { log, anchors } = await loseFirst()
  await anchors.markLost(log.relayer, 0)
  expect((await anchors.listFrom(log.relayer, 0, 9)).map(({ state }) => state)).toEqual([
    'pending',
    'pending',
  ])
  await anchors.markMined(log.relayer, [minedAt(0, 9)])
  await anchors.markTaken(log.relayer, [0, 1])
  expect((await anchors.listFrom(log.relayer, 0, 9)).map(({ state }) => state)).toEqual([
    'mined',
    'taken',
  ])
})

it('a lost anchor counts as pending until it is replaced, and then its replacement does', async () => {
  const { log, other, isOwn } = await loseFirst()
  const relayers = createRelayersStore(database)
  const counts = async () =>
    (await relayers.listBacklogs(chainId))
      .filter(isOwn)
      .map(({ relayer, pending, unconfirmed }) => [relayer, pending, unconfirmed])
  expect(await counts()).toEqual([[log.relayer, 2, 2]])
  await createReanchorsStore(database).replace(
    { relayer: log.relayer, nonce: 0 },
    replacementOf(other, 7),
  )
  expect((await counts()).toSorted()).toEqual(
    [
      [log.relayer, 1, 1],
      [other, 1, 1],
    ].toSorted(),
  )
  expect(await relayers.listBacklogs(1)).toEqual([])
  const nextNonces = (await relayers.list()).map(({ address, nextNonce }) => [address, nextNonce])
  expect(nextNonces).toEqual(
    expect.arrayContaining([
      [log.relayer, 2],
      [other, 8],
    ]),
  )
})

it('a relayer is followed by one gateway at a time, but for the gateway whose own it is', async () => {
  const { log } = await loseFirst()
  let now = 1_000 + randomBytes(1).readUInt8()
  const relayers = createRelayersStore(database, () => now)
  const [one, other] = [randomUUID(), randomUUID()]
  const lease = { relayer: log.relayer, seconds: 15 }
  expect(await relayers.lease({ ...lease, holder: one })).toBe(true)
  expect(await relayers.lease({ ...lease, holder: other })).toBe(false)
  now += 14
  expect(await relayers.lease({ ...lease, holder: one })).toBe(true)
  now += 15
  expect(await relayers.lease({ ...lease, holder: other })).toBe(true)
  expect(await relayers.lease({ ...lease, holder: one })).toBe(false)
  expect(await relayers.lease({ ...lease, holder: one, force: true })).toBe(true)
  expect(await relayers.lease({ ...lease, holder: other })).toBe(false)
  await relayers.release(one)
  expect(await relayers.lease({ ...lease, holder: other })).toBe(true)
  expect(await relayers.lease({ ...lease, relayer: randomAddress(), holder: one })).toBe(false)
})
