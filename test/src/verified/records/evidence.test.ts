import { expect, it } from 'vitest'
import { parseEvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import type { BundleSource } from '#attestation/evidence/bundle-source.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { RpcError } from '#client/rpc.ts'
import type { AnchorEvidence, BlockProof } from '#src/chain/anchor-blocks-store.ts'
import type { BlockProofs } from '#src/chain/block-proofs.ts'
import { BlockUnreadable } from '#src/chain/read-block.ts'
import type { ProviderEvidenceStore } from '#src/providers/provider-evidence-store.ts'
import { createEvidence, PUBLIC_WAITS_MAX } from '#src/verified/records/evidence.ts'
import type { RecordScope, StoredRecord } from '#src/verified/records/records-store.ts'
import { NOTARY } from '../../../attestation/build-record.ts'
import { providerPart } from '../../../attestation/evidence/build-attested.ts'
import { BOOT_CONFIGURATION, buildEvidence } from '../../../attestation/evidence/build-evidence.ts'
import { recordLog } from '../../../support/chain.ts'

const { bundle } = buildEvidence()
const { record, transaction, block } = bundle
if (block === null || !('request' in record) || !('response' in record))
  throw new Error('expected a whole bundle')
const CHAIN_ID = record.log.chain_id
const PLACE = { number: block.number, hash: block.hash }
const bytesOf = (hex: string) => new Uint8Array(Buffer.from(hex.slice(2), 'hex'))

const STORED: StoredRecord = {
  id: '6f1c8f0e-6f0b-4a55-9b0e-3f7a1f0f3a11',
  notary: NOTARY.address.toLowerCase(),
  index: record.receipt.index,
  hash: record.hash,
  request: JSON.stringify(record.request),
  response: JSON.stringify(record.response),
  receipt: JSON.stringify(record.receipt),
  publicKey: record.public_key,
  signature: record.signature,
  txHash: record.tx_hash,
  reanchored: [],
  attestation: record.attestation,
  accountId: 'mine',
  requestId: null,
  createdAt: record.created_at,
  outcome: 'complete',
  usage: null,
  logProof: { ...record.log, chainId: CHAIN_ID },
}

const PROOF: BlockProof = {
  ...PLACE,
  header: bytesOf(block.header),
  transactionIndex: block.transaction_index,
  transactionProof: block.transaction_proof.map(bytesOf),
  receiptProof: block.receipt_proof.map(bytesOf),
}

/**
 * Evidence of one record; notes which blocks were read at once, and for whom the record was looked
 * up.
 */
function evidenceOf(
  anchor: Partial<AnchorEvidence>,
  options: {
    readonly prove?: BlockProofs['prove']
    readonly isOpen?: boolean
    readonly waitMs?: number
    readonly source?: BundleSource
    readonly providers?: Pick<ProviderEvidenceStore, 'findFor'>
  } = {},
) {
  const asked: string[] = []
  const scopes: RecordScope[] = []
  const stored: AnchorEvidence = {
    txHash: record.tx_hash,
    raw: transaction ?? '',
    bootConfiguration: JSON.stringify(BOOT_CONFIGURATION),
    chainId: CHAIN_ID,
    block: PLACE,
    proof: null,
    ...anchor,
  }
  const evidence = createEvidence({
    providers: options.providers ?? { findFor: async () => null },
    records: {
      findByHash: async (hash, scope) => {
        scopes.push(scope)
        return hash === STORED.hash ? STORED : null
      },
      findProof: async (hash) =>
        hash === STORED.hash ? { ...STORED, request: null, response: null } : null,
    },
    anchors: { findAnchor: async (txHash) => (txHash === STORED.txHash ? stored : null) },
    proofs: {
      prove: (hash) => {
        asked.push(hash)
        return options.prove?.(hash) ?? Promise.resolve(new Map([[STORED.txHash, PROOF]]))
      },
    },
    chainId: CHAIN_ID,
    isOpen: options.isOpen ?? true,
    source: options.source ?? null,
    log: recordLog().log,
    waitMs: options.waitMs ?? 50,
  })
  const read = async () => JSON.parse((await evidence.find(STORED.hash, VIEWER)) ?? 'null')
  return { evidence, read, asked, scopes }
}

const WHOLE = JSON.parse(JSON.stringify(bundle))

/** The bundle without its block, and why. */
const without = (reason: string) => ({
  ...WHOLE,
  block: null,
  no_block: { reason, transaction: record.tx_hash },
})

const VIEWER = { accountId: 'mine', seesAll: false }

it('public evidence waits for a block for so many at once, and gives the others theirs without it', async () => {
  let finish: (proofs: Map<string, BlockProof>) => void = () => undefined
  const proven = new Promise<Map<string, BlockProof>>((resolve) => {
    finish = resolve
  })
  const { evidence, asked, read } = evidenceOf({}, { prove: () => proven, waitMs: 60_000 })
  const blockOf = (text: string | null) => JSON.parse(text ?? 'null').block
  const waiting = Array.from({ length: PUBLIC_WAITS_MAX }, () => evidence.findPublic(STORED.hash))
  await expect.poll(() => asked.length).toBe(PUBLIC_WAITS_MAX)
  expect(JSON.parse((await evidence.findPublic(STORED.hash)) ?? '')).toMatchObject({
    block: null,
    no_block: { reason: 'not_read', transaction: record.tx_hash },
  })
  // Who has a key waits beside them.
  const keyed = read()
  await expect.poll(() => asked.length).toBe(PUBLIC_WAITS_MAX + 1)
  finish(new Map([[STORED.txHash, PROOF]]))
  for (const text of await Promise.all(waiting)) expect(blockOf(text)).toEqual(WHOLE.block)
  expect(await keyed).toEqual(WHOLE)
  expect(blockOf(await evidence.findPublic(STORED.hash))).toEqual(WHOLE.block)
})

it('a bundle has the evidence of its provider that states its key, of the time of its answer', async () => {
  const asked: unknown[] = []
  const findFor = async (of: unknown) => {
    asked.push(of)
    return Buffer.from('newest')
  }
  const { read } = evidenceOf({ proof: PROOF }, { providers: { findFor } })
  expect(await read()).toEqual({
    ...WHOLE,
    provider_evidence: providerPart(Buffer.from('newest')),
  })
  const { provider, finished_at: atMs } = record.receipt
  expect(asked).toEqual([{ origin: provider.origin, spkiSha256: provider.tls?.spki_sha256, atMs }])
})

it('every bundle, also a public one and one without a block, says where it is from', async () => {
  const source = { gateway: 'https://gateway.example', operator: 'Example Ltd' }
  const { read, evidence } = evidenceOf({ proof: PROOF }, { source })
  expect(await read()).toEqual({ ...WHOLE, source })
  const text = await evidence.findPublic(STORED.hash)
  expect(parseEvidenceBundle(parseExactJson(Buffer.from(text ?? ''))).source).toEqual(source)
  const pending = evidenceOf({ block: null }, { source })
  expect(await pending.read()).toEqual({ ...without('not_mined'), source })
})

it('createEvidence reads a block at once whose proofs are not stored', async () => {
  const { read, asked } = evidenceOf({})
  expect(await read()).toEqual(WHOLE)
  expect(asked).toEqual([PLACE.hash])
})

it.each<[string, string, BlockProofs['prove']]>([
  ['does not answer in time', 'not_read', () => new Promise(() => undefined)],
  [
    'is out of reach',
    'not_read',
    () => Promise.reject(new RpcError('unreachable', 'no connection')),
  ],
  ['does not know the block', 'not_read', async () => null],
  ['has the block without the anchor', 'not_read', async () => new Map()],
  [
    'has a block that cannot be encoded',
    'not_readable',
    () => Promise.reject(new BlockUnreadable('unknown_header', 'a fork of its own')),
  ],
])('a bundle says why it has no block when the chain %s: %s', async (_, reason, prove) => {
  const { read } = evidenceOf({}, { prove })
  expect(await read()).toEqual(without(reason))
})

it('createEvidence asks no chain for an anchor in no block, or on another chain', async () => {
  for (const [anchor, reason] of [
    [{ block: null }, 'not_mined'],
    [{ chainId: CHAIN_ID + 1 }, 'not_readable'],
  ] as const) {
    const { read, asked } = evidenceOf(anchor)
    expect(await read()).toEqual(without(reason))
    expect(asked).toEqual([])
  }
})

it('public evidence is what redacting makes for everybody, whoever asked for the completion', async () => {
  const { evidence } = evidenceOf({ proof: PROOF }, { isOpen: false })
  const redacted = redactBundle(bundle, { request: true, response: true })
  const text = await evidence.findPublic(STORED.hash)
  expect(parseEvidenceBundle(parseExactJson(Buffer.from(text ?? '')))).toEqual(redacted)
  expect(await evidence.findPublic('00'.repeat(32))).toBeNull()
})

it('evidence is looked for among all records, or the account’s own where histories are kept apart', async () => {
  const open = evidenceOf({})
  await open.read()
  const closed = evidenceOf({}, { isOpen: false })
  await closed.read()
  expect([...open.scopes, ...closed.scopes]).toEqual([{ accountId: null }, { accountId: 'mine' }])
  expect(await open.evidence.find('00'.repeat(32), VIEWER)).toBeNull()
})
