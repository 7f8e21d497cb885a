import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import {
  type Anchoring,
  anchorHeads,
  type BuiltHead,
  type BuiltLog,
  buildLog,
  createTestNotary,
  fundRelayer,
  type TestNotary,
} from '../support/audited-log.ts'
import { startTestChain, TEST_FEES, type TestChain } from '../support/chain.ts'
import type { Attack } from '../support/equivocating-server.ts'
import { openStage, type Stage } from './stage.ts'

const BATCHES = [3, 2, 4]

let stage: Stage
let chain: TestChain
let anchoring: Anchoring

beforeAll(async () => {
  stage = await openStage()
  chain = await startTestChain()
}, 60_000)
// Logs of a relayer that the gateway does not list are hidden.
beforeEach(async () => {
  anchoring = await fundRelayer(chain)
})
afterAll(async () => {
  await stage.close()
  await chain.dispose()
})

async function build(
  options: Partial<Parameters<typeof buildLog>[1]> = {},
  notary?: TestNotary,
): Promise<BuiltLog> {
  return buildLog(notary ?? (await createTestNotary(chain)), {
    batches: BATCHES,
    anchoring,
    attestedSizes: [3, 9],
    ...options,
  })
}

async function audit(
  log: BuiltLog,
  { attack = null, words = [] }: { attack?: Attack | null; words?: readonly string[] } = {},
) {
  stage.server.serve([log], attack)
  return stage.audit(...(await stage.trust(log)), '--rpc', chain.rpcUrl, ...words)
}

/** The log with another anchor for one of its heads. */
function withAnchor(
  log: BuiltLog,
  at: number,
  anchor: Partial<BuiltHead['anchor']>,
  createdAt?: number,
): BuiltLog {
  const heads = log.heads.map((head, index) =>
    index === at
      ? { ...head, anchor: { ...head.anchor, ...anchor }, createdAt: createdAt ?? head.createdAt }
      : head,
  )
  return { ...log, heads }
}

describe('affidavit audit, with a chain', () => {
  it('an audit with a chain finds nothing in an honest log: every anchor is there, and every head there is served', async () => {
    const { code, codes, outcomes } = await audit(await build())
    expect([code, codes]).toEqual([0, []])
    expect(outcomes).toMatchObject({
      'anchors on chain': 'passed',
      'heads on chain': 'passed',
      'time attestations': 'passed',
      'blocks of attestations': 'passed',
    })
  })

  it('an audit with a chain catches an unanchored head', async () => {
    const { code, codes } = await audit(
      withAnchor(await build(), 2, { tx_hash: `0x${'33'.repeat(32)}` }),
    )
    expect([code, codes]).toEqual([1, ['anchor_missing']])
  })

  it('an audit with a chain catches a head with the transaction of another one', async () => {
    const log = await build()
    const { code, codes } = await audit(
      withAnchor(log, 2, { tx_hash: log.heads[1]?.anchor.tx_hash ?? '' }),
    )
    expect([code, codes]).toEqual([1, ['anchor_mismatch']])
  })

  it('an audit with a chain catches a confirmed anchor that is said to be in another block', async () => {
    const { code, codes } = await audit(
      withAnchor(await build(), 2, { block_hash: `0x${'44'.repeat(32)}` }),
    )
    expect([code, codes]).toEqual([1, ['anchor_mismatch']])
  })

  it('an audit with a chain catches an anchor that failed', async () => {
    const { code, codes } = await audit(
      withAnchor(await build(), 2, { tx_hash: await sendFailing() }),
    )
    expect([code, codes]).toEqual([1, ['anchor_reverted']])
  })

  it('an audit with a chain catches a head in the contract that the gateway does not serve', async () => {
    const log = await build()
    await anchorHeads(log.notary, [{ size: 7, root: new Uint8Array(32).fill(7) }], anchoring)
    const { code, findings } = await audit(log)
    expect([code, findings.map((finding) => finding.code)]).toEqual([1, ['hidden_anchor']])
    expect(findings[0]?.message).toContain('size 7, root 0707')
  })

  it('an audit with a chain catches another history in the contract, and what the contract says', async () => {
    const log = await build()
    const fork = { size: log.leaves.length, root: new Uint8Array(32).fill(9) }
    await anchorHeads(log.notary, [fork], anchoring)
    const { code, codes, findings } = await audit(log)
    expect([code, codes]).toEqual([1, ['equivocation']])
    expect(
      findings.map(({ message }) => message.includes('as the contract itself reports')).sort(),
    ).toEqual([false, true])
  })

  it('an audit with a chain catches a block of an attestation that the chain does not have', async () => {
    const log = await build()
    const attestations = log.attestations.map((one, at) =>
      at === 1 ? { ...one, block_number: 1 } : one,
    )
    const { code, codes } = await audit({ ...log, attestations })
    expect([code, codes]).toEqual([1, ['head_attestation_block']])
  })

  it('an audit with a chain does not take another chain, or a contract that is not ours, for an answer', async () => {
    const elsewhere = await createTestNotary({ chainId: 1, contract: chain.contract })
    const offline = { batches: BATCHES, anchoring: { chain: null, nonce: 0 } }
    expect(await audit(await buildLog(elsewhere, offline))).toMatchObject({
      code: 1,
      codes: ['wrong_chain'],
    })
    const forged = await createTestNotary({
      chainId: chain.chainId,
      contract: `0x${'ee'.repeat(20)}`,
    })
    expect(await audit(await buildLog(forged, offline))).toMatchObject({
      code: 1,
      codes: ['contract_unknown'],
    })
  })

  it('an audit with a chain counts nothing as passed when the chain does not answer, and exits 3', async () => {
    stage.server.serve([await build()])
    const { code, stderr } = await stage.audit('--rpc', stage.server.url)
    expect([code, stderr]).toEqual([3, expect.stringContaining('the chain cannot be reached')])
  }, 60_000)
})

/** A transaction with a signature that the contract refuses. */
async function sendFailing(): Promise<string> {
  const head = { size: 9, root: new Uint8Array(32), signature: new Uint8Array(65) }
  const { raw, hash } = signAnchorTransaction({
    ...chain,
    ...anchoring.chain,
    head,
    nonce: anchoring.nonce++,
    fees: TEST_FEES,
  })
  await chain.rpc.call('eth_sendRawTransaction', [raw])
  while ((await chain.rpc.call('eth_getTransactionReceipt', [hash])) === null)
    await new Promise((resolve) => setTimeout(resolve, 5))
  return hash
}
