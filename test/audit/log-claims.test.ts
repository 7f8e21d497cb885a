import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { isJsonArray, isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { type Attack, describeHead } from '../support/equivocating-server.ts'
import { changeAnswer } from './attack-stage.ts'
import { openStage, type Stage } from './stage.ts'

/** Three pages of heads. */
const BATCHES = [1, 4, 2, 1, 1, 1, 4]

let stage: Stage
let log: BuiltLog
/** The same notary's other history, from the third head on, and the log as it grew. */
let other: BuiltLog
let grown: BuiltLog
let foreign: BuiltLog
let trust: readonly string[]

beforeAll(async () => {
  stage = await openStage()
  const notary = await createTestNotary()
  const options = { anchoring: { chain: null, nonce: 0 }, attestedSizes: [0, 5, 8] }
  log = await buildLog(notary, { ...options, batches: BATCHES })
  const after = { log, heads: 2 }
  other = await buildLog(notary, { ...options, batches: BATCHES.slice(2), salt: 'other', after })
  const later = { log, heads: BATCHES.length }
  grown = await buildLog(notary, { ...options, batches: [9], attestedSizes: [23], after: later })
  foreign = await buildLog(await createTestNotary(), { ...options, batches: BATCHES })
  trust = await stage.trust(log)
})
afterAll(() => stage.close())

/** Changes what is said of the log, wherever it is said. */
const inLog =
  (change: (log: JsonObject) => JsonObject): Attack =>
  (question, honest) => {
    const answer = honest()
    if (question.resource === 'log') return change(answer)
    if (question.resource !== 'logs' || !isJsonArray(answer.logs)) return answer
    return { ...answer, logs: answer.logs.filter(isJsonObject).map(change) }
  }

/** Gives other attestations with the heads; `isLast`: of the last page. */
const inAttestations = (
  change: (attestations: readonly JsonObject[], isLast: boolean) => object[],
): Attack =>
  changeAnswer('log/heads', (answer) => {
    const attestations = isJsonArray(answer.attestations)
      ? answer.attestations.filter(isJsonObject)
      : []
    return { ...answer, attestations: change(attestations, answer.cursor === null) as JsonObject[] }
  })

const headAt = (at: number) => {
  const head = log.heads[at]
  if (head === undefined) throw new Error(`no head ${at}`)
  return describeHead(head)
}

/** The log as it was at a size. */
const sizeOf = (size: number) => ({ size, root: encodeHex(log.reference.root(size)) })

const CLAIMS: readonly (readonly [name: string, codes: readonly string[], attack: () => Attack])[] =
  [
    [
      'fewer leaves than the heads that are served',
      ['size_understated'],
      () => inLog((one) => ({ ...one, ...sizeOf(5), head: headAt(1) })),
    ],
    [
      'another root',
      ['head_root_mismatch'],
      () => inLog((one) => ({ ...one, root: '00'.repeat(32) })),
    ],
    [
      'another boot configuration at the end',
      ['log_identity_invalid'],
      () =>
        changeAnswer('log', (one) => ({
          ...one,
          boot_configuration: {
            ...(one.boot_configuration as JsonObject),
            ca_sha256: '1'.repeat(64),
          },
        })),
    ],
    [
      'two things of one log',
      ['answer_invalid'],
      () => (question, honest) => {
        const answer = honest()
        if (question.resource !== 'logs') return answer
        return { ...answer, logs: [...(honest(other).logs as []), ...(answer.logs as [])] }
      },
    ],
    [
      'another root in its inclusion proofs',
      ['inclusion_proof_invalid'],
      () => changeAnswer('log/inclusion', (answer) => ({ ...answer, root: '00'.repeat(32) })),
    ],
    [
      'an attestation of another history where it is too late to compare it',
      ['answer_invalid'],
      () =>
        inAttestations((attestations, isLast) => {
          const rest = attestations.filter(({ size }) => size !== 8)
          return isLast ? [...rest, ...other.attestations.filter(({ size }) => size === 8)] : rest
        }),
    ],
    [
      'heads without end beyond the log',
      ['head_missing', 'size_understated'],
      () => (question, honest) => {
        const answer = honest()
        if (question.resource !== 'log/heads' || question.number('limit') === 1)
          return inLog((one) => ({ ...one, size: 4, head: headAt(0) }))(question, honest)
        const from = question.number('cursor') ?? 0
        return from === 0
          ? { ...answer, heads: [headAt(0), headAt(3)], attestations: [], cursor: 8 }
          : {
              ...answer,
              heads: [{ ...headAt(3), size: from + 1 }],
              attestations: [],
              cursor: from + 1,
            }
      },
    ],
  ]

describe('affidavit audit', () => {
  it.each(CLAIMS)('an audit catches a gateway that claims %s: %j', async (_, expected, attack) => {
    stage.server.serve([log], attack())
    const { code, codes } = await stage.audit(...trust)
    expect([code, codes]).toEqual([1, expected])
  })

  it('an audit finds nothing when the log grows during the audit', async () => {
    stage.server.serve([grown], (question, honest) =>
      question.resource === 'logs' ? honest(log) : honest(),
    )
    const { code, codes, logs } = await stage.audit(...trust)
    expect([code, codes]).toEqual([0, []])
    expect(logs).toMatchObject([{ to: 14, complete: true }])
  })

  it('an audit does not count attestations that it could not compare with the leaves', async () => {
    const beyond = inAttestations((attestations, isLast) =>
      isLast ? [...attestations, ...grown.attestations] : [...attestations],
    )
    stage.server.serve([log], beyond)
    const { code, codes, outcomes, stdout } = await stage.audit(...trust)
    expect([code, codes, outcomes['time attestations']]).toEqual([0, [], 'not checked'])
    expect(stdout).toContain('the enclave attested 23 leaves, but only 14 are served')
  })

  it('an audit does not take the word of the gateway for the boot configuration', async () => {
    const digest = encodeHex(digestBootConfiguration(log.notary.bootConfiguration))
    stage.server.serve([log])
    const honest = await stage.audit(...trust, '--configuration', digest)
    expect(honest.outcomes['boot configuration']).toBe('passed')
    stage.server.serve(
      [log],
      inAttestations(() => []),
    )
    const { code, outcomes } = await stage.audit(...trust, '--configuration', digest)
    expect(code).toBe(0)
    expect(outcomes).toMatchObject({
      'boot configuration': 'not checked',
      'time attestations': 'not checked',
    })
  })
})

describe('affidavit audit, of a gateway that lists no log', () => {
  it('an audit does not take a gateway that lists no log for a clean history', async () => {
    stage.server.serve([])
    const run = await stage.audit(...trust)
    expect([run.code, run.codes, run.logs]).toEqual([1, ['no_log'], []])
    expect(JSON.parse(run.stdout)).toMatchObject({ ok: false, conclusion: 'FOUND: 1 missing.' })
  })
})

describe('affidavit audit --state', () => {
  it('an audit with --state misses a log that is no longer listed, and remembers it when it is back', async () => {
    const words = [
      ...trust,
      ...(await stage.trust(foreign)),
      '--state',
      `${stage.folder}/missing.json`,
    ]
    stage.server.serve([log, foreign])
    expect((await stage.audit(...words)).code).toBe(0)
    stage.server.serve([foreign])
    const second = await stage.audit(...words)
    expect([second.code, second.codes]).toEqual([1, ['log_missing']])
    stage.server.serve([log, foreign])
    const third = await stage.audit(...words)
    expect([third.code, third.findings]).toMatchObject([
      1,
      [{ code: 'log_missing', earlier: true }],
    ])
  })

  it('an audit with --state does not forget what was found before any head matched', async () => {
    const words = [...trust, '--state', `${stage.folder}/early.json`]
    const forged = changeAnswer('log/leaves', (answer) => ({
      ...answer,
      leaves: (answer.leaves as readonly string[]).map(() => '00'.repeat(32)),
    }))
    stage.server.serve([log], forged)
    const first = await stage.audit(...words)
    expect([first.code, first.codes]).toEqual([1, ['leaf_changed']])
    stage.server.serve([log])
    const second = await stage.audit(...words)
    expect([second.code, second.codes]).toEqual([1, ['leaf_changed']])
    expect(second.findings.every(({ earlier }) => earlier)).toBe(true)
  })
})
