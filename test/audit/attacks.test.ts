import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { decodeBase64, encodeHex } from '#attestation/bytes.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { Release } from '#attestation/release/release.ts'
import { entryOf, type ReleaseEntry } from '#attestation/release/release-list.ts'
import { signReleaseList } from '#attestation/release/verify-release.ts'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { buildOtherRelease, buildRelease } from '../support/build-release.ts'
import { type Attack, describeHead, TEST_KEY } from '../support/equivocating-server.ts'
import { OPERATOR_KEY, OPERATOR_SECRET } from '../support/release-stage.ts'
import { openStage, type Stage } from './stage.ts'

const BATCHES = [1, 4, 2, 7, 3, 5, 8, 2]
/** A head in the middle of a page, and a leaf in the middle of a head. */
const MIDDLE_HEAD = 4
const MIDDLE_LEAF = 9

let stage: Stage
let log: BuiltLog
/** The same notary's other history, which parts from the first after its second head. */
let other: BuiltLog
/** A log of another notary. */
let foreign: BuiltLog
let trust: readonly string[]

beforeAll(async () => {
  stage = await openStage()
  const notary = await createTestNotary()
  const anchoring = { chain: null, nonce: 0 }
  const attestedSizes = [0, 5, 12, 30]
  log = await buildLog(notary, { batches: BATCHES, anchoring, attestedSizes })
  const batches = BATCHES.slice(2)
  other = await buildLog(notary, {
    batches,
    salt: 'other',
    anchoring,
    attestedSizes,
    after: { log, heads: 2 },
  })
  foreign = await buildLog(await createTestNotary(), { batches: BATCHES, anchoring, attestedSizes })
  trust = await stage.trust(log)
})
afterAll(() => stage.close())

/** Changes one entry of an array in the answers of a resource. */
const changeEntry =
  (
    resource: string,
    array: string,
    isMeant: (entry: JsonObject) => boolean,
    change: (entry: JsonObject) => Json | undefined,
  ): Attack =>
  (question, honest) => {
    const answer = honest()
    const entries = answer[array]
    if (question.resource !== resource || !isJsonArray(entries)) return answer
    const changed = entries.flatMap((entry) => {
      const value = isJsonObject(entry) && isMeant(entry) ? change(entry) : entry
      return value === undefined ? [] : [value]
    })
    return { ...answer, [array]: changed }
  }

const changeHead = (at: number, change: (head: JsonObject) => Json | undefined): Attack =>
  changeEntry('log/heads', 'heads', (head) => head.size === log.heads[at]?.size, change)

const changeAttestation = (
  size: number,
  change: (attestation: JsonObject) => Json | undefined,
): Attack =>
  changeEntry('log/heads', 'attestations', (attestation) => attestation.size === size, change)

const changeRecord = (index: number, change: (record: JsonObject) => Json | undefined): Attack =>
  changeEntry(
    'log/records',
    'records',
    (record) => (record.receipt as JsonObject).index === index,
    change,
  )

const changeAnswer =
  (resource: string, change: (answer: JsonObject) => JsonObject): Attack =>
  (question, honest) =>
    question.resource === resource ? change(honest()) : honest()

/** Answers of one resource, from the so manieth question on, are of the other history. */
const switchHistory =
  (resource: string, from: number): Attack =>
  (question, honest) =>
    question.resource === resource && question.of >= from ? honest(other) : honest()

const headOf = (of: () => BuiltLog, at: number) => {
  const head = of().heads[at]
  if (head === undefined) throw new Error(`no head ${at}`)
  return describeHead(head)
}

type Row = readonly [name: string, codes: readonly string[], attack: () => Attack]

/** Each attack, and every finding that it is reported with: its own comes first. */
const ATTACKS: readonly Row[] = [
  [
    'a head that its notary did not sign',
    ['head_signature_invalid'],
    () =>
      changeHead(MIDDLE_HEAD, (head) => ({
        ...head,
        signature: headOf(() => log, 0).signature ?? null,
      })),
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
    () => changeHead(MIDDLE_HEAD, () => headOf(() => log, 1)),
  ],
  [
    'an old head as the newest one',
    ['head_reused'],
    () => changeAnswer('log', (answer) => ({ ...answer, head: headOf(() => log, 1) })),
  ],
  [
    'the newest head left out',
    ['head_missing'],
    () => changeHead(BATCHES.length - 1, () => undefined),
  ],
  [
    'a head that comes and goes',
    ['head_missing'],
    () => (question, honest) => {
      const answer = honest()
      return question.resource === 'log/heads' && question.of > 3
        ? { ...answer, heads: [], cursor: null }
        : answer
    },
  ],
  [
    'a leaf left out',
    ['leaf_missing'],
    () => (question, honest) => {
      if (question.resource !== 'log/leaves') return honest()
      const leaves = log.leaves.toSpliced(MIDDLE_LEAF, 1).map(encodeHex)
      const { start, end, ...rest } = honest()
      return {
        ...rest,
        start: Number(start),
        end: Number(end),
        leaves: leaves.slice(Number(start), Number(end)),
      }
    },
  ],
  [
    'the last leaf of a head left out',
    ['leaf_missing'],
    () => (question, honest) => {
      if (question.resource !== 'log/leaves') return honest()
      const leaves = log.leaves.toSpliced(13, 1).map(encodeHex)
      const { start, end, ...rest } = honest()
      return {
        ...rest,
        start: Number(start),
        end: Number(end),
        leaves: leaves.slice(Number(start), Number(end)),
      }
    },
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
    () => (question, honest) => {
      if (question.resource !== 'log/leaves') return honest()
      const leaves = log.leaves.with(MIDDLE_LEAF, new Uint8Array(32)).map(encodeHex)
      const { start, end, ...rest } = honest()
      return {
        ...rest,
        start: Number(start),
        end: Number(end),
        leaves: leaves.slice(Number(start), Number(end)),
      }
    },
  ],
  [
    'a rewritten leaf, and no proof of the right one',
    ['head_root_mismatch'],
    () => (question, honest) => {
      if (question.resource === 'log/inclusion' && question.number('size') === 14)
        return { ...honest(), path: [] }
      if (question.resource !== 'log/leaves') return honest()
      const leaves = log.leaves.with(MIDDLE_LEAF, new Uint8Array(32)).map(encodeHex)
      const { start, end, ...rest } = honest()
      return {
        ...rest,
        start: Number(start),
        end: Number(end),
        leaves: leaves.slice(Number(start), Number(end)),
      }
    },
  ],
  ['the leaves of another history', ['leaf_changed'], () => switchHistory('log/leaves', 0)],
  ['another history when it is asked again', ['equivocation'], () => switchHistory('log/heads', 3)],
  [
    'another history in what it says of the log',
    ['equivocation', 'head_root_mismatch'],
    () => (question, honest) => (question.resource === 'logs' ? honest(other) : honest()),
  ],
  [
    'another history in what it says of the log at the end',
    ['equivocation', 'head_root_mismatch'],
    () => (question, honest) => (question.resource === 'log' ? honest(other) : honest()),
  ],
  [
    'inclusion proofs that do not hold',
    ['inclusion_proof_invalid'],
    () =>
      changeAnswer('log/inclusion', (answer) => ({
        ...answer,
        path: [...(answer.path as readonly Json[]), '00'.repeat(32)],
      })),
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
    () => (question, honest) =>
      question.resource === 'logs'
        ? {
            logs: [
              {
                ...(honest().logs as readonly JsonObject[])[0],
                public_key: `0x${encodeHex(foreign.notary.account.publicKey)}`,
              },
            ],
            cursor: null,
          }
        : honest(),
  ],
  [
    'attestation documents of two sizes, swapped',
    ['head_attestation_mismatch'],
    () =>
      changeAttestation(12, (attestation) => ({
        ...attestation,
        document: log.attestations[1]?.document ?? '',
        created_at: log.attestations[1]?.created_at ?? 0,
      })),
  ],
  [
    'the attestation of another notary',
    ['attestation_swapped'],
    () =>
      changeAttestation(12, (attestation) => ({
        ...attestation,
        document: foreign.attestations[2]?.document ?? '',
      })),
  ],
  [
    'the attestation of another history',
    ['head_attestation_mismatch', 'head_attestation_order'],
    () =>
      changeAttestation(12, () => ({
        ...(other.attestations.find(({ size }) => size === 12) as JsonObject),
      })),
  ],
  [
    'an attestation with another block',
    ['head_attestation_mismatch'],
    () =>
      changeAttestation(12, (attestation) => ({
        ...attestation,
        block_hash: `0x${'99'.repeat(32)}`,
      })),
  ],
  [
    'an attestation with another time',
    ['head_attestation_invalid'],
    () => changeAttestation(12, (attestation) => ({ ...attestation, created_at: 1 })),
  ],
  [
    'a malformed attestation',
    ['head_attestation_invalid'],
    () => changeAttestation(12, () => ({ size: 12 })),
  ],
]

const RECORD_ATTACKS: readonly Row[] = [
  ['a record left out', ['record_missing'], () => changeRecord(MIDDLE_LEAF, () => undefined)],
  [
    'the content of a record taken out, as if the call had been encrypted',
    ['record_invalid'],
    () =>
      changeRecord(MIDDLE_LEAF, (record) => ({
        ...record,
        request: null,
        response: null,
        redacted: true,
        usage: null,
      })),
  ],
  [
    'an altered response',
    ['record_invalid'],
    () => changeRecord(MIDDLE_LEAF, (record) => ({ ...record, response: { model: 'demo/test' } })),
  ],
  [
    'the record of another history',
    ['equivocation', 'record_mismatch'],
    () => changeRecord(MIDDLE_LEAF, () => other.records[MIDDLE_LEAF]),
  ],
  [
    'the attestation document of another notary',
    ['attestation_swapped'],
    () => changeRecord(MIDDLE_LEAF, (record) => ({ ...record, attestation: foreign.document })),
  ],
  [
    'a document of the same key for something else',
    ['configuration_mismatch'],
    () =>
      changeRecord(MIDDLE_LEAF, (record) => ({
        ...record,
        attestation: log.attestations[1]?.document ?? '',
      })),
  ],
  [
    'a document with a broken signature',
    ['attestation_invalid'],
    () =>
      changeRecord(MIDDLE_LEAF, (record) => ({
        ...record,
        attestation: breakSignature(log.document),
      })),
  ],
  [
    'a record under a later head',
    ['record_head_unserved'],
    () => changeRecord(MIDDLE_LEAF, (record) => underHead(record, BATCHES.length - 1)),
  ],
  [
    'a record with another transaction',
    ['record_anchor_mismatch'],
    () => changeRecord(MIDDLE_LEAF, (record) => ({ ...record, tx_hash: `0x${'77'.repeat(32)}` })),
  ],
  [
    'the digest of another document',
    ['attestation_digest_mismatch'],
    () => (question, honest) =>
      question.resource === 'logs'
        ? {
            logs: [
              {
                ...(honest().logs as readonly JsonObject[])[0],
                attestation_sha256: '00'.repeat(32),
              },
            ],
            cursor: null,
          }
        : honest(),
  ],
  [
    'records out of order',
    ['answer_invalid'],
    () => (question, honest) => {
      const answer = honest()
      return question.resource === 'log/records'
        ? { ...answer, records: (answer.records as readonly Json[]).toReversed() }
        : answer
    },
  ],
  [
    'records that lead no further',
    ['cursor_stuck'],
    () => changeAnswer('log/records', (answer) => ({ ...answer, records: [], next: 0 })),
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
    'a redirect',
    ['redirected'],
    () => (question, honest) =>
      question.resource === 'log/heads'
        ? (response) => response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end()
        : honest(),
  ],
  [
    'a refusal',
    ['answer_refused'],
    () => (question, honest) =>
      question.resource === 'log/heads'
        ? (response) => response.writeHead(500).end('{}')
        : honest(),
  ],
  [
    'an answer without end',
    ['answer_too_large'],
    () => (question, honest) =>
      question.resource === 'log/leaves'
        ? (response) => {
            const more = () => {
              while (!response.destroyed && response.write(' '.repeat(65_536)));
            }
            response.on('drain', more)
            more()
          }
        : honest(),
  ],
  [
    'an answer drop by drop',
    ['answer_too_slow'],
    () => (question, honest) =>
      question.resource === 'log/leaves'
        ? (response) => {
            const timer = setInterval(() => response.write(' '), 50)
            response.on('close', () => clearInterval(timer))
          }
        : honest(),
  ],
  [
    'a cursor of heads that leads no further',
    ['cursor_stuck'],
    () => (question, honest) =>
      question.resource === 'log/heads' && question.number('cursor') !== null
        ? { ...honest(), heads: [headOf(() => log, 0)], cursor: 1 }
        : honest(),
  ],
  [
    'a cursor of logs that leads no further',
    ['cursor_stuck'],
    () => (question, honest) =>
      question.resource === 'logs'
        ? { ...honest(), cursor: foreign.notary.account.notary }
        : honest(),
  ],
]

describe('affidavit audit', () => {
  it('an audit finds nothing in an honest log, and says what it did not look at', async () => {
    stage.server.serve([log])
    const { code, codes, outcomes, logs } = await stage.audit(...trust)
    expect([code, codes]).toEqual([0, []])
    expect(logs).toMatchObject([{ from: 0, to: 32, heads: BATCHES.length, complete: true }])
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

  it('an audit finds nothing in the records of an honest log', async () => {
    stage.server.serve([log])
    const { code, codes, outcomes } = await stage.audit(...trust, '--key', TEST_KEY)
    expect([code, codes]).toEqual([0, []])
    expect(outcomes).toMatchObject({ records: 'passed', 'attestation documents': 'passed' })
  })

  it('an audit walks all logs of a gateway, or the log that is asked for', async () => {
    stage.server.serve([log, foreign])
    const words = [...trust, ...(await stage.trust(foreign))]
    expect((await stage.audit(...words)).logs).toHaveLength(2)
    const one = await stage.audit(...words, '--notary', foreign.notary.account.notary)
    expect(one.logs).toMatchObject([{ notary: foreign.notary.account.notary, complete: true }])
  })

  it.each(ATTACKS)('an audit catches %s: %j', async (_, expected, attack) => {
    stage.server.serve([log], attack())
    const { code, codes } = await stage.audit(...trust)
    expect([code, codes]).toEqual([1, [...expected].sort()])
  })

  it.each(RECORD_ATTACKS)('an audit with a key catches %s: %j', async (_, expected, attack) => {
    stage.server.serve([log], attack())
    const { code, codes } = await stage.audit(...trust, '--key', TEST_KEY)
    expect([code, codes]).toEqual([1, [...expected].sort()])
  })

  it('an audit catches records that finished long before the enclave attested a log without them', async () => {
    const anchoring = { chain: null, nonce: 0 }
    const first = await buildLog(log.notary, { batches: [3], anchoring, attestedSizes: [3] })
    const hourAgo = Date.now() - 3_600_000
    const backdated = await buildLog(log.notary, {
      batches: [2],
      anchoring,
      finishedAtMs: hourAgo,
      after: { log: first, heads: 1 },
    })
    stage.server.serve([{ ...backdated, attestations: first.attestations }])
    const { code, codes } = await stage.audit(...trust, '--key', TEST_KEY)
    expect([code, codes]).toEqual([1, ['attestation_time', 'record_time']])
  })

  it('an audit catches records that finished after the enclave attested that they were there', async () => {
    const anchoring = { chain: null, nonce: 0 }
    const finishedAtMs = Date.now() + 600_000
    const dated = await buildLog(log.notary, {
      batches: [3],
      anchoring,
      finishedAtMs,
      attestedSizes: [3],
    })
    stage.server.serve([dated])
    const { code, codes } = await stage.audit(...trust, '--key', TEST_KEY)
    expect([code, codes]).toEqual([1, ['record_time']])
  })

  describe('content that the gateway does not give', () => {
    const erased = { at: 1_795_000_000, by: 'operator', reason: 'asked for' }
    const withheld = { code: 'content_key_missing', message: 'm' }
    const without = (record: JsonObject, why: JsonObject) => ({
      ...record,
      request: null,
      response: null,
      redacted: true,
      usage: null,
      ...why,
    })
    const serveWithout = (why: JsonObject, changes: JsonObject = {}) =>
      stage.server.serve(
        [log],
        changeRecord(MIDDLE_LEAF, (record) => ({ ...without(record, why), ...changes })),
      )

    it('erased content is no fault when the gateway says that it erased it, and is counted', async () => {
      serveWithout({ erased })
      const { code, codes, outcomes, stdout } = await stage.audit(...trust, '--key', TEST_KEY)
      expect([code, codes, outcomes.records]).toEqual([0, [], 'passed'])
      expect(stdout).toContain('32 in order; 1 of them have erased content, as the gateway states')
    })

    it('content is not checked when the gateway says that it cannot decrypt it', async () => {
      serveWithout({ withheld })
      const { code, codes, outcomes, stdout } = await stage.audit(...trust, '--key', TEST_KEY)
      expect([code, codes, outcomes.records]).toEqual([0, [], 'not checked'])
      expect(stdout).toContain('content_key_missing')
    })

    it('a record without its content has a receipt that is its leaf all the same, and a hash of its own', async () => {
      const [{ receipt = {} } = {}] = other.records.slice(MIDDLE_LEAF)
      serveWithout({ erased }, { receipt: { ...(receipt as JsonObject), index: MIDDLE_LEAF } })
      const { codes } = await stage.audit(...trust, '--key', TEST_KEY)
      expect(codes).toContain('record_mismatch')
      serveWithout({ erased }, { hash: 'ab'.repeat(32) })
      expect((await stage.audit(...trust, '--key', TEST_KEY)).codes).toEqual(['record_invalid'])
    })
  })

  describe('a head that was anchored again', () => {
    const first = `0x${'77'.repeat(32)}`
    const again = () => log.heads[MIDDLE_HEAD]?.anchor.tx_hash ?? ''
    const underMiddleHead = (record: JsonObject) =>
      (record.log as JsonObject).size === log.heads[MIDDLE_HEAD]?.size
    /** The head says which transactions it replaces, its records which replaced theirs. */
    const serveAgain =
      (replaces: readonly string[], reanchored: readonly string[]): Attack =>
      (question, honest) => {
        const ofHead = (record: JsonObject) =>
          underMiddleHead(record) ? { ...record, tx_hash: first, reanchored } : record
        const change =
          question.resource === 'log/records'
            ? changeEntry('log/records', 'records', () => true, ofHead)
            : changeHead(MIDDLE_HEAD, (head) => ({
                ...head,
                anchor: { ...(head.anchor as JsonObject), replaces },
              }))
        return change(question, honest)
      }

    it('a head that was anchored again is no fault, and its records name both transactions', async () => {
      stage.server.serve([log], serveAgain([first], [again()]))
      const { code, codes } = await stage.audit(...trust, '--key', TEST_KEY)
      expect([code, codes]).toEqual([0, []])
    })

    it.each<[string, () => Attack]>([
      ['whose head does not', () => serveAgain([`0x${'66'.repeat(32)}`], [again()])],
      [
        'without naming the one that was mined',
        () => serveAgain([first], [`0x${'66'.repeat(32)}`]),
      ],
    ])('an audit catches a record that says its head was anchored again, %s', async (_, attack) => {
      stage.server.serve([log], attack())
      const { code, codes } = await stage.audit(...trust, '--key', TEST_KEY)
      expect([code, codes]).toEqual([1, ['record_anchor_mismatch']])
    })
  })

  it.each<[string, readonly string[], () => readonly string[]]>([
    ['other code', ['measurements_unexpected'], () => ['--pcr', `0=${'ab'.repeat(48)}`]],
    [
      'another configuration',
      ['configuration_unexpected'],
      () => ['--configuration', 'ab'.repeat(32)],
    ],
  ])('an audit catches %s than is expected', async (_, expected, words) => {
    stage.server.serve([log])
    const { code, codes } = await stage.audit(...trust, '--key', TEST_KEY, ...words())
    expect([code, codes]).toEqual([1, expected])
  })

  it('an audit takes the expected measurements from a signed list of releases, and names the one it met', async () => {
    stage.server.serve([log])
    const list = await saveReleases([entryOf(releaseOf(log))])
    const { code, stdout, outcomes } = await stage.audit(...trust, '--key', TEST_KEY, ...list)
    expect([code, outcomes.measurements]).toEqual([0, 'passed'])
    expect(stdout).toMatch(/[0-9]+ in order; release 1\.4\.0 \(commit 0123/)
  })

  it('an audit catches a release that was revoked since, whenever the documents were made', async () => {
    stage.server.serve([log])
    const revoked = { at: '2031-01-01T00:00:00Z', reason: 'it signs anything' }
    const list = await saveReleases([{ ...entryOf(releaseOf(log)), revoked }])
    const { code, codes, findings } = await stage.audit(...trust, '--key', TEST_KEY, ...list)
    expect([code, codes]).toEqual([1, ['measurements_unexpected']])
    expect(findings[0]?.message).toContain('it signs anything')
  })

  it('an audit begins anew, and says so, when the list of releases is another one than before', async () => {
    stage.server.serve([log])
    const state = ['--state', join(stage.folder, 'releases-state.json')]
    const first = await saveReleases([entryOf(releaseOf(log))])
    expect((await stage.audit(...trust, ...first, ...state)).code).toBe(0)
    const second = await saveReleases([entryOf(releaseOf(log)), entryOf(buildOtherRelease())])
    const { code, stderr } = await stage.audit(...trust, ...second, ...state)
    expect([code, stderr]).toEqual([2, expect.stringContaining('other options')])
  })

  it('an audit takes no document for genuine that does not lead to the root', async () => {
    stage.server.serve([log])
    const { code, codes } = await stage.audit('--key', TEST_KEY)
    expect([code, codes]).toEqual([1, ['attestation_invalid']])
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

function breakSignature(document: string): string {
  const bytes = Buffer.from(document, 'base64')
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 1) ^ 1, bytes.length - 1)
  return bytes.toString('base64')
}

/** The record with a true proof to another head of its log. */
function underHead(record: JsonObject, at: number): JsonObject {
  const { size, root, signature } = headOf(() => log, at)
  const { index } = record.receipt as { readonly index: number }
  const path = log.reference.path(index, Number(size)).map(encodeHex)
  return {
    ...record,
    log: {
      ...(record.log as JsonObject),
      size: size ?? 0,
      root: root ?? '',
      signature: signature ?? '',
      path,
    },
  }
}

/** A release with the measurements of the log's documents. */
function releaseOf({ document }: BuiltLog): Release {
  const { pcrs } = decodeAttestationPayload(decodeBase64(document))
  const hexOf = (index: number) => encodeHex(pcrs.get(index) ?? new Uint8Array())
  return buildRelease({ measurements: { PCR0: hexOf(0), PCR1: hexOf(1), PCR2: hexOf(2) } })
}

/** Options that expect these releases. */
async function saveReleases(releases: readonly ReleaseEntry[]): Promise<readonly string[]> {
  const path = join(stage.folder, 'releases.json')
  const signed = signReleaseList({ issued_at: '2026-03-03T00:00:00Z', releases }, OPERATOR_SECRET)
  await writeFile(path, JSON.stringify(signed))
  return ['--release', path, '--release-key', OPERATOR_KEY]
}
