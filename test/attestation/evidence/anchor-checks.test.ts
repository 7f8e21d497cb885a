import { Wallet } from 'ethers'
import { describe, expect, it } from 'vitest'
import { ANCHOR_SKEW_MS } from '#attestation/evidence/anchor-checks.ts'
import type { BundleCheckName } from '#attestation/evidence/bundle-checks.ts'
import type { BundleContext } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { RESPONSE } from '../build-record.ts'
import { replaceAt } from '../mutate-json.ts'
import {
  anchoredEvent,
  buildEvidence,
  type EvidenceParts,
  FINISHED_AT,
  signAnchor,
} from './build-evidence.ts'
import { moveBlock } from './move-block.ts'
import { detailOf, failedOf, namesOf } from './read-report.ts'
import { FIRST_EXPECTED, OLD_ANCHOR_BUNDLE, OLD_ANCHOR_FAILED } from './vectors.ts'

const { bundle, policy, chain } = buildEvidence()
const STRANGER = new Wallet(`0x${'17'.repeat(32)}`)
const OTHER_CONTRACT = `0x${'c1'.repeat(20)}`
/** The log of the same notary some completions later. */
const later = buildEvidence({ record: { after: 9 } }).bundle
const other = buildEvidence({ record: { response: { ...RESPONSE, id: 'other' } } }).bundle

describe('verifyBundle on swapped and forged anchors', () => {
  const foreign = Buffer.from(
    STRANGER.signingKey.sign(`0x${'11'.repeat(32)}`).serialized.slice(2),
    'hex',
  )

  it.each<[string, EvidenceParts, readonly BundleCheckName[]]>([
    ['on another chain', { anchor: { chainId: 1 } }, ['anchor']],
    ['to another contract', { anchor: { contract: OTHER_CONTRACT } }, ['anchor']],
    ['of another size', { anchor: { size: 10 } }, ['anchor']],
    ['of another root', { anchor: { root: new Uint8Array(32) } }, ['anchor']],
    ['with another signature', { anchor: { signature: new Uint8Array(foreign) } }, ['anchor']],
    ['of a later head of the same log', { transaction: later.transaction }, ['anchor']],
    ['of the log of another completion', { transaction: other.transaction }, ['anchor']],
    ['that reverted', { status: 0 }, ['anchor outcome']],
    ['that no contract took', { events: [] }, ['anchor outcome']],
    [
      'that another contract took',
      { events: [{ ...anchoredEvent(bundle.record.log), address: OTHER_CONTRACT }] },
      ['anchor outcome'],
    ],
    [
      'that was taken for a later head',
      { events: [anchoredEvent(later.record.log)] },
      ['anchor outcome'],
    ],
  ])('verifyBundle fails a transaction %s, though it was mined', async (_, parts, failed) => {
    expect(await failedOf(buildEvidence(parts).bundle)).toEqual(failed)
  })

  it('bytes that are no transaction fail at the anchor, though tx_hash is their hash', async () => {
    const { bundle: forged } = buildEvidence({ transaction: `0x02${'c0'.repeat(40)}` })
    expect(await failedOf(forged)).toEqual(['anchor'])
  })

  it('bytes that are no transaction and have another hash fail both checks', async () => {
    const none = `0x02${'c0'.repeat(40)}`
    expect(await failedOf(replaceAt(bundle, ['transaction'], none))).toEqual([
      'transaction hash',
      'anchor',
      'transaction in block',
    ])
  })

  it('a transaction that anchored the head again passes, and the report says in the place of which', async () => {
    const mined = bundle.record.tx_hash
    const lost = `0x${'ab'.repeat(32)}`
    const again = replaceAt(bundle, ['record'], {
      ...bundle.record,
      tx_hash: lost,
      reanchored: [`0x${'cd'.repeat(32)}`, mined],
    })
    expect(await failedOf(again)).toEqual([])
    expect(detailOf(await verifyBundle(again, policy), 'transaction hash')).toContain(
      `reanchored, 2 of 2, in the place of tx_hash ${lost}`,
    )
  })

  it('a transaction that is neither the first nor a later anchor of the head fails', async () => {
    const record = {
      ...bundle.record,
      tx_hash: `0x${'ab'.repeat(32)}`,
      reanchored: [`0x${'cd'.repeat(32)}`],
    }
    expect(await failedOf(replaceAt(bundle, ['record'], record))).toEqual(['transaction hash'])
  })

  it('verifyBundle does not detect that a mined transaction is said to be anchored again', async () => {
    const reanchored = [`0x${'cd'.repeat(32)}`]
    expect(await failedOf(replaceAt(bundle, ['record'], { ...bundle.record, reanchored }))).toEqual(
      [],
    )
  })

  it('a public key that is no point fails every check that needs its address', async () => {
    const off = `${bundle.record.public_key.slice(0, -2)}${bundle.record.public_key.endsWith('00') ? '01' : '00'}`
    expect(await failedOf(replaceAt(bundle, ['record', 'public_key'], off))).toEqual([
      'public key',
      'signature',
      'attestation key',
      'tree head',
      'anchor outcome',
    ])
  })

  it('a later head of the log in place of the record’s own fails, though it is rightly signed', async () => {
    const swapped = replaceAt(bundle, ['record', 'log'], later.record.log)
    expect(await failedOf(swapped)).toEqual(['anchor', 'anchor outcome'])
  })

  it('the log of another completion of the same notary fails, even with its receipt and its anchor', async () => {
    const { receipt, log, tx_hash } = other.record
    const record = { ...bundle.record, receipt, log, tx_hash }
    const swapped = { ...other, record }
    expect(await failedOf(swapped)).toEqual(['response hash', 'receipt'])
  })

  it('a block of another transaction and proofs of another index fail', async () => {
    expect(await failedOf({ ...bundle, block: later.block })).toEqual([
      'transaction in block',
      'anchor outcome',
    ])
    const moved = buildEvidence({ neighbours: [6, 19] }).bundle.block
    for (const name of ['transaction_proof', 'receipt_proof'] as const) {
      const mixed = replaceAt(bundle, ['block', name], moved?.[name] ?? null)
      expect(await failedOf(mixed)).toEqual([
        name === 'receipt_proof' ? 'anchor outcome' : 'transaction in block',
      ])
    }
  })

  it('the receipt of a neighbour that succeeded fails in place of a receipt that reverted', async () => {
    const reverted = buildEvidence({ status: 0 }).bundle
    const index = replaceAt(reverted, ['block', 'transaction_index'], 4)
    expect(await failedOf(index)).toEqual(['transaction in block', 'anchor outcome'])
  })

  describe.each<[string, EvidenceParts, number]>([
    ['the completion', {}, FINISHED_AT],
    ['the document', { document: { timestamp: FINISHED_AT + 50_000 } }, FINISHED_AT + 50_000],
  ])('of a block older than %s', (_, parts, timeMs) => {
    const { bundle: built } = buildEvidence(parts)
    const oldest = Math.ceil((timeMs - ANCHOR_SKEW_MS) / 1000)

    it('a block that is too old fails at the anchor time, though a chain has it', async () => {
      expect(await failedOf(moveBlock(built, oldest - 1))).toEqual(['anchor time'])
      expect(await failedOf(moveBlock(built, 1))).toEqual(['anchor time'])
    })

    it('the anchor time allows for clocks that differ by ANCHOR_SKEW_MS', async () => {
      expect(await failedOf(moveBlock(built, oldest))).toEqual([])
    })
  })

  it('the published vector of a made-up block that is older than its completion fails', async () => {
    const report = await verifyBundle(OLD_ANCHOR_BUNDLE, FIRST_EXPECTED.policy)
    expect(namesOf(report, 'failed')).toEqual(OLD_ANCHOR_FAILED)
  })

  it('a header with another number than the block says fails', async () => {
    const { bundle: built } = buildEvidence({ header: { number: '0x5' } })
    expect(await failedOf(replaceAt(built, ['block', 'number'], 6))).toEqual(['block header'])
  })

  it('both signatures fail in their second form, with high s', async () => {
    const record = replaceAt(bundle, ['record', 'signature'], malleated(bundle.record.signature))
    expect(await failedOf(record)).toEqual(['signature'])
    const log = { ...bundle.record.log, signature: malleated(bundle.record.log.signature) }
    const transaction = signAnchor(log)
    const consistent = buildEvidence({ stored: { log }, transaction }).bundle
    expect(await failedOf(consistent)).toEqual(['tree head'])
  })

  it('a head that another notary signed fails, though it was anchored as such', async () => {
    const log = { ...bundle.record.log, signature: `0x${foreign.toString('hex')}` }
    const built = buildEvidence({ stored: { log }, transaction: signAnchor(log) }).bundle
    expect(await failedOf(built)).toEqual(['tree head'])
  })
})

describe('verifyBundle with what a chain says', () => {
  it.each<[string, Partial<NonNullable<BundleContext['chain']>>, RegExp]>([
    ['is another chain', { chainId: 1 }, /expected chain 31337, asked 1/],
    ['has no such block', { blockHash: null }, /expected the chain to have a block/],
    [
      'has another block there',
      { blockHash: `0x${'11'.repeat(32)}` },
      /expected block 21000000 to be/,
    ],
    ['is behind the block', { newestBlock: 20_999_999 }, /1 confirmations, got 0/],
  ])('verifyBundle fails a bundle when the chain that is asked %s', async (_, says, message) => {
    const report = await verifyBundle(bundle, policy, { chain: { ...chain, ...says } })
    expect(namesOf(report, 'failed')).toEqual(['block on chain'])
    expect(detailOf(report, 'block on chain')).toMatch(message)
    expect(report).toMatchObject({ verdict: 'invalid', facts: null })
  })

  it('verifyBundle asks for as many confirmations as the policy says', async () => {
    expect(await failedOf(bundle, { ...policy, confirmationsMin: 10 })).toEqual([])
    expect(await failedOf(bundle, { ...policy, confirmationsMin: 11 })).toEqual(['block on chain'])
  })
})

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

/** The other signature that the same key and message have. */
function malleated(signature: string): string {
  const s = (ORDER - BigInt(`0x${signature.slice(66, 130)}`)).toString(16).padStart(64, '0')
  return `${signature.slice(0, 66)}${s}${signature.endsWith('1b') ? '1c' : '1b'}`
}
