import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import type { BlockProof } from '#src/chain/anchor-blocks-store.ts'
import { createAnchorBlocksStore } from '#src/chain/anchor-blocks-store.ts'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { useDatabase } from '../../support/databases.ts'
import {
  makeLog,
  minedAt,
  OPENING,
  randomHex,
  storeCommits,
} from '../verified/commits/build-commit.ts'

const { chainId } = OPENING.domain

const database = await useDatabase()
const anchors = createAnchorsStore(database)
const blocks = createAnchorBlocksStore(database)

/**
 * Anchors of one relayer, each in the block of its number; the blocks' numbers are above all that
 * were before.
 */
async function storeMined(places: readonly { readonly number: number; readonly hash: string }[]) {
  const log = makeLog()
  const { stored } = await storeCommits(
    createCommitsStore(database),
    log,
    places.map(() => [{}]),
  )
  const move = (nonce: number, number: number, blockHash: string) =>
    anchors.markMined(log.relayer, [minedAt(nonce, number, blockHash)])
  for (const [nonce, { number, hash }] of places.entries()) await move(nonce, number, hash)
  const confirm = () => anchors.markConfirmed(log.relayer, places.length)
  return { ...log, txHashes: stored.map(({ anchor }) => anchor.hash), stored, move, confirm }
}
let number = 0
const place = () => ({ number: ++number, hash: randomHex(32) })
const proofOf = (at: { readonly number: number; readonly hash: string }): BlockProof => ({
  ...at,
  header: new Uint8Array(randomBytes(600)),
  transactionIndex: 7,
  transactionProof: [randomBytes(532), randomBytes(1), randomBytes(60)].map(
    (node) => new Uint8Array(node),
  ),
  receiptProof: [new Uint8Array(randomBytes(300))],
})
const plain = (proof: BlockProof | null | undefined) =>
  proof && {
    ...proof,
    header: encodeHex(proof.header),
    transactionProof: proof.transactionProof.map(encodeHex),
    receiptProof: proof.receiptProof.map(encodeHex),
  }

it('the anchor blocks store knows an anchor with its transaction and log, before and after it is mined', async () => {
  const at = place()
  const { txHashes, stored, relayer } = await storeMined([at])
  const [txHash = ''] = txHashes
  const common = {
    txHash,
    raw: stored[0]?.anchor.raw,
    bootConfiguration: OPENING.bootConfiguration,
    chainId,
  }
  expect(await blocks.findAnchor(txHash)).toEqual({ ...common, block: at, proof: null })
  await anchors.markLost(relayer, 0)
  expect(await blocks.findAnchor(txHash)).toEqual({ ...common, block: null, proof: null })
  expect(await blocks.findAnchor(randomHex(32))).toBeNull()
})

it('the anchor blocks store keeps the same proofs from a second gateway', async () => {
  const at = place()
  const { relayer, txHashes } = await storeMined([at, at])
  const second = createAnchorBlocksStore(database)
  const proofs = [1, 0].map((nonce) => ({ relayer, nonce, proof: proofOf(at) }))
  await Promise.all([blocks.save(proofs), second.save(proofs.toReversed()), blocks.save(proofs)])
  for (const { nonce, proof } of proofs)
    expect(plain((await blocks.findAnchor(txHashes[nonce] ?? ''))?.proof)).toEqual(plain(proof))
})

it('the anchor blocks store gives no proof of an undone block, and waits for that of the next', async () => {
  const [before, after] = [place(), place()]
  const { relayer, txHashes, move, confirm } = await storeMined([before])
  const [txHash = ''] = txHashes
  await confirm()
  const old = proofOf(before)
  await blocks.save([{ relayer, nonce: 0, proof: old }])
  await anchors.markLost(relayer, 0)
  expect(await blocks.findAnchor(txHash)).toMatchObject({ block: null, proof: null })
  await move(0, after.number, after.hash)
  await confirm()
  expect(await blocks.findAnchor(txHash)).toMatchObject({ block: after, proof: null })
  const earlier = { number: after.number - 1, hash: `0x${'ff'.repeat(32)}` }
  expect(await blocks.nextUnproven(chainId, earlier)).toEqual(after)
  // One who was slower brings the proof of the block that is gone.
  await blocks.save([{ relayer, nonce: 0, proof: old }])
  expect(await blocks.nextUnproven(chainId, earlier)).toEqual(after)
  await blocks.save([{ relayer, nonce: 0, proof: proofOf(after) }])
  expect(await blocks.nextUnproven(chainId, earlier)).toBeNull()
  expect(await blocks.findAnchor(txHash)).toMatchObject({
    block: after,
    proof: { hash: after.hash },
  })
})

it('the anchor blocks store finds the blocks that wait, by number, of confirmed anchors and of one chain', async () => {
  const places = [place(), place(), place()]
  const [first, second, third] = places
  const { relayer, confirm } = await storeMined(places)
  const start = { number: (first?.number ?? 0) - 1, hash: `0x${'ff'.repeat(32)}` }
  expect(await blocks.nextUnproven(chainId, start)).toBeNull()
  await confirm()
  expect(await blocks.nextUnproven(chainId, start)).toEqual(first)
  expect(await blocks.nextUnproven(chainId + 1, start)).toBeNull()
  expect(await blocks.nextUnproven(chainId, first ?? null)).toEqual(second)
  if (second) await blocks.save([{ relayer, nonce: 1, proof: proofOf(second) }])
  expect(await blocks.nextUnproven(chainId, first ?? null)).toEqual(third)
  expect(await blocks.nextUnproven(chainId, third ?? null)).toBeNull()
})

it('the anchor blocks store lists the anchors of a block among its transactions', async () => {
  const [here, elsewhere] = [place(), place()]
  const { relayer, txHashes } = await storeMined([here, elsewhere, here])
  const found = await blocks.listInBlock(here.hash, [randomHex(32), ...txHashes.toReversed()])
  expect(found.toSorted((left, right) => left.nonce - right.nonce)).toEqual([
    { relayer, nonce: 0, txHash: txHashes[0] },
    { relayer, nonce: 2, txHash: txHashes[2] },
  ])
  expect(await blocks.listInBlock(here.hash, [])).toEqual([])
})
