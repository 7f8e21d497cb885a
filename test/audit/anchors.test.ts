import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { openStage, type Stage } from './stage.ts'

const HOUR_S = 3600

let stage: Stage
/** Its leaves were attested two hours ago, and not since. */
let log: BuiltLog
let trust: readonly string[]

beforeAll(async () => {
  stage = await openStage()
  const notary = await createTestNotary(undefined, () => Date.now() - 2 * HOUR_S * 1000)
  const anchoring = { chain: null, nonce: 0 }
  log = await buildLog(notary, { batches: [2, 3], anchoring, attestedSizes: [2] })
  trust = await stage.trust(log)
})
afterAll(() => stage.close())

/** No head has its anchor yet, and the gateway says that they were made so many seconds ago. */
const pending = (ageS: number, attestations = log.attestations): BuiltLog => ({
  ...log,
  attestations,
  heads: log.heads.map((head) => ({
    ...head,
    createdAt: Math.floor(Date.now() / 1000) - ageS,
    anchor: { ...head.anchor, state: 'pending', block_number: null, block_hash: null },
  })),
})

const audit = async (served: BuiltLog) => {
  stage.server.serve([served])
  const { code, findings, outcomes } = await stage.audit(...trust)
  return { code, found: findings.map((finding) => `${finding.code} ${finding.where}`), outcomes }
}

describe('affidavit audit, of anchors that are still to come', () => {
  it('an audit waits for heads of the last hour, and does not count them', async () => {
    const { code, found, outcomes } = await audit(pending(60, []))
    expect([code, found, outcomes['anchors on chain']]).toEqual([0, [], 'not checked'])
  })

  it('an audit catches heads that are older', async () => {
    const { code, found } = await audit(pending(HOUR_S + 60, []))
    expect([code, found]).toEqual([1, ['anchor_overdue head 2', 'anchor_overdue head 5']])
  })

  it('an audit catches a head that the gateway makes younger than the attestation of its leaves', async () => {
    const { code, found } = await audit(pending(60))
    expect([code, found]).toEqual([1, ['anchor_overdue head 2']])
  })

  it('an audit catches heads that are dated in the future', async () => {
    const { code, found } = await audit(pending(-HOUR_S, []))
    expect([code, found]).toEqual([1, ['anchor_overdue head 2', 'anchor_overdue head 5']])
  })

  it('an audit does not detect heads that are made young again and again, without an attestation', async () => {
    expect((await audit(pending(60, []))).code).toBe(0)
    expect((await audit(pending(60, []))).code).toBe(0)
  })
})
