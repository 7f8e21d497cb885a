import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { isJsonArray } from '#attestation/json/value.ts'
import { TEST_KEY } from '../support/equivocating-server.ts'
import {
  BATCHES,
  changeAnswer,
  changeAttestation,
  changeHead,
  changeLeaves,
  changeListed,
  foreign,
  headOf,
  log,
  MIDDLE_HEAD,
  MIDDLE_LEAF,
  openAttackStage,
  other,
  type Row,
  stage,
  switchHistory,
  trust,
} from './attack-stage.ts'

beforeAll(openAttackStage)
afterAll(() => stage.close())

/** Each attack, and every finding that it is reported with: its own comes first. */
const ATTACKS: readonly Row[] = [
  [
    'a head that its notary did not sign',
    ['head_signature_invalid'],
    () => changeHead(MIDDLE_HEAD, (head) => ({ ...head, signature: headOf(0).signature ?? null })),
  ],
  [
    'heads in another order',
    ['sizes_not_growing'],
    () => (question, honest) => {
      const answer = honest()
      if (question.resource !== 'log/heads' || question.of > 0 || !isJsonArray(answer.heads))
        return answer
      const [first = null, second = null, third = null] = answer.heads
      return { ...answer, heads: [second, first, third] }
    },
  ],
  [
    'an old head in place of a new one',
    ['head_reused'],
    () => changeHead(MIDDLE_HEAD, () => headOf(1)),
  ],
  [
    'the newest head left out',
    ['head_missing'],
    () => changeHead(BATCHES.length - 1, () => undefined),
  ],
  [
    'a leaf left out',
    ['leaf_missing'],
    () => changeLeaves((leaves) => leaves.toSpliced(MIDDLE_LEAF, 1)),
  ],
  [
    'leaves that end too early',
    ['leaf_missing'],
    () =>
      changeAnswer('log/leaves', (answer) =>
        Number(answer.start) < 14 ? answer : { ...answer, end: answer.start ?? 0, leaves: [] },
      ),
  ],
  [
    'a rewritten leaf',
    ['leaf_changed'],
    () => changeLeaves((leaves) => leaves.with(MIDDLE_LEAF, new Uint8Array(32))),
  ],
  [
    'a rewritten leaf, and no proof of the right one',
    ['head_root_mismatch'],
    () => (question, honest) =>
      question.resource === 'log/inclusion' && question.number('size') === 14
        ? { ...honest(), path: [] }
        : changeLeaves((leaves) => leaves.with(MIDDLE_LEAF, new Uint8Array(32)))(question, honest),
  ],
  ['another history when it is asked again', ['equivocation'], () => switchHistory('log/heads', 2)],
  [
    'another history in what it says of the log',
    ['equivocation', 'head_root_mismatch'],
    () => (question, honest) => (question.resource === 'logs' ? honest(other) : honest()),
  ],
  [
    'consistency proofs of another history',
    ['consistency_proof_invalid'],
    () => switchHistory('log/consistency', 0),
  ],
  [
    'a log that shrinks',
    ['history_rewritten'],
    () => changeAnswer('log', (answer) => ({ ...answer, size: 3 })),
  ],
  [
    "a key that is not the notary's",
    ['log_identity_invalid'],
    () => changeListed({ public_key: `0x${encodeHex(foreign.notary.account.publicKey)}` }),
  ],
  [
    'the attestation of another notary',
    ['attestation_swapped'],
    () => changeAttestation(12, (one) => ({ ...one, document: foreign.document })),
  ],
  [
    'the attestation of another history',
    ['head_attestation_mismatch', 'head_attestation_order'],
    () => changeAttestation(12, () => other.attestations.find(({ size }) => size === 12)),
  ],
  [
    'an attestation with another time',
    ['head_attestation_invalid'],
    () => changeAttestation(12, (one) => ({ ...one, created_at: 1 })),
  ],
]

const FAULTS: readonly Row[] = [
  [
    'garbage',
    ['answer_invalid'],
    () => (question, honest) => (question.resource === 'log/heads' ? '\u0000garbage' : honest()),
  ],
  [
    'a name twice in an object',
    ['answer_invalid'],
    () => (question, honest) =>
      question.resource === 'log/heads'
        ? `{"cursor":null,${JSON.stringify(honest()).slice(1)}`
        : honest(),
  ],
  [
    'the heads of another log',
    ['answer_invalid'],
    () => (question, honest) => (question.resource === 'log/heads' ? honest(foreign) : honest()),
  ],
  [
    'a cursor of heads that leads no further',
    ['cursor_stuck'],
    () => (question, honest) =>
      question.resource === 'log/heads' && question.number('cursor') !== null
        ? { ...honest(), heads: [headOf(0)], cursor: 1 }
        : honest(),
  ],
]

describe('affidavit audit', () => {
  it('an audit finds nothing in an honest log, and says what it did not look at', async () => {
    stage.server.serve([log])
    const { code, codes, outcomes, logs } = await stage.audit(...trust)
    expect([code, codes]).toEqual([0, []])
    expect(logs).toMatchObject([{ from: 0, to: 17, heads: BATCHES.length, complete: true }])
    expect(outcomes).toMatchObject({
      'head signatures': 'passed',
      growth: 'passed',
      leaves: 'passed',
      'one history': 'passed',
      proofs: 'passed',
      'time attestations': 'passed',
      'anchors on chain': 'not checked',
      'heads on chain': 'not checked',
      records: 'not checked',
      'attestation documents': 'not checked',
      measurements: 'not checked',
      'boot configuration': 'not checked',
    })
  })

  it.each([
    ['no key was given (--key, or AFFIDAVIT_API_KEY for AFFIDAVIT_URL)', {}, []],
    [
      'no key was sent: AFFIDAVIT_API_KEY is for http://127.0.0.1:3000',
      { AFFIDAVIT_API_KEY: TEST_KEY },
      [],
    ],
    ['they were left out (--no-records)', { AFFIDAVIT_API_KEY: TEST_KEY }, ['--no-records']],
  ] as const)(
    'an audit says why records were not checked: %s',
    async (reason, variables, words) => {
      stage.server.serve([log])
      for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value)
      const { code, stdout } = await stage.audit(...trust, ...words)
      vi.unstubAllEnvs()
      expect([code, stdout]).toEqual([0, expect.stringContaining(reason)])
      expect(stage.server.asked.filter((path) => path.includes('/records'))).toEqual([])
    },
  )

  it.each(ATTACKS)('an audit catches %s: %j', async (_, expected, attack) => {
    stage.server.serve([log], attack())
    const { code, codes } = await stage.audit(...trust)
    expect([code, codes]).toEqual([1, [...expected].sort()])
  })

  it.each(FAULTS)(
    'an audit survives %s, and counts nothing as passed: %j',
    async (_, expected, attack) => {
      stage.server.serve([log], attack())
      const { code, codes, outcomes } = await stage.audit(...trust, '--timeout', '1')
      expect([code, codes]).toEqual([1, [...expected].sort()])
      expect(Object.values(outcomes)).not.toContain('passed')
    },
  )
})
