import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeBase64, encodeHex } from '#attestation/bytes.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { Release } from '#attestation/release/release.ts'
import { entryOf, type ReleaseEntry } from '#attestation/release/release-list.ts'
import { signReleaseList } from '#attestation/release/verify-release.ts'
import { type BuiltLog, buildLog } from '../support/audited-log.ts'
import { buildRelease } from '../support/build-release.ts'
import { type Attack, TEST_KEY } from '../support/equivocating-server.ts'
import { OPERATOR_KEY, OPERATOR_SECRET } from '../support/release-stage.ts'
import {
  BATCHES,
  changeEntry,
  changeHead,
  changeListed,
  changeRecord,
  foreign,
  headOf,
  log,
  MIDDLE_HEAD,
  MIDDLE_LEAF,
  openAttackStage,
  other,
  type Row,
  stage,
  trust,
} from './attack-stage.ts'

beforeAll(openAttackStage)
afterAll(() => stage.close())

const attestedBy = (document: () => string) => (record: JsonObject) => ({
  ...record,
  attestation: document(),
})

const RECORD_ATTACKS: readonly Row[] = [
  ['a record left out', ['record_missing'], () => changeRecord(MIDDLE_LEAF, () => undefined)],
  [
    'the record of another history',
    ['equivocation', 'record_mismatch'],
    () => changeRecord(MIDDLE_LEAF, () => other.records[MIDDLE_LEAF]),
  ],
  [
    'the attestation document of another notary',
    ['attestation_swapped'],
    () =>
      changeRecord(
        MIDDLE_LEAF,
        attestedBy(() => foreign.document),
      ),
  ],
  [
    'a document of the same key for something else',
    ['configuration_mismatch'],
    () =>
      changeRecord(
        MIDDLE_LEAF,
        attestedBy(() => log.attestations[1]?.document ?? ''),
      ),
  ],
  [
    'a document with a broken signature',
    ['attestation_invalid'],
    () =>
      changeRecord(
        MIDDLE_LEAF,
        attestedBy(() => breakSignature(log.document)),
      ),
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
    () => changeListed({ attestation_sha256: '00'.repeat(32) }),
  ],
]

const audit = (...words: readonly string[]) => stage.audit(...trust, '--key', TEST_KEY, ...words)

describe('affidavit audit --key', () => {
  it.each(RECORD_ATTACKS)('an audit with a key catches %s: %j', async (_, expected, attack) => {
    stage.server.serve([log], attack())
    const { code, codes } = await audit()
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
    const { code, codes } = await audit()
    expect([code, codes]).toEqual([1, ['attestation_time', 'record_time']])
  })

  describe('content that the gateway does not give', () => {
    const erased = { at: 1_795_000_000, by: 'operator', reason: 'asked for' }
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
      const { code, codes, outcomes, stdout } = await audit()
      expect([code, codes, outcomes.records]).toEqual([0, [], 'passed'])
      expect(stdout).toContain('17 in order; 1 of them have erased content, as the gateway states')
    })

    it('a record without its content has a receipt that is its leaf all the same, and a hash of its own', async () => {
      const [{ receipt = {} } = {}] = other.records.slice(MIDDLE_LEAF)
      serveWithout({ erased }, { receipt: { ...(receipt as JsonObject), index: MIDDLE_LEAF } })
      const { codes } = await audit()
      expect(codes).toContain('record_mismatch')
      serveWithout({ erased }, { hash: 'ab'.repeat(32) })
      expect((await audit()).codes).toEqual(['record_invalid'])
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
      const { code, codes } = await audit()
      expect([code, codes]).toEqual([0, []])
    })

    it('an audit catches a record that says its head was anchored again, whose head does not', async () => {
      stage.server.serve([log], serveAgain([`0x${'66'.repeat(32)}`], [again()]))
      const { code, codes } = await audit()
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
    const { code, codes } = await audit(...words())
    expect([code, codes]).toEqual([1, expected])
  })

  it('an audit takes the expected measurements from a signed list of releases, and names the one it met', async () => {
    stage.server.serve([log])
    const list = await saveReleases([entryOf(releaseOf(log))])
    const { code, stdout, outcomes } = await audit(...list)
    expect([code, outcomes.measurements]).toEqual([0, 'passed'])
    expect(stdout).toMatch(/[0-9]+ in order; release 1\.4\.0 \(commit 0123/)
  })

  it('an audit catches a release that was revoked since, whenever the documents were made', async () => {
    stage.server.serve([log])
    const revoked = { at: '2031-01-01T00:00:00Z', reason: 'it signs anything' }
    const list = await saveReleases([{ ...entryOf(releaseOf(log)), revoked }])
    const { code, codes, findings } = await audit(...list)
    expect([code, codes]).toEqual([1, ['measurements_unexpected']])
    expect(findings[0]?.message).toContain('it signs anything')
  })
})

function breakSignature(document: string): string {
  const bytes = Buffer.from(document, 'base64')
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 1) ^ 1, bytes.length - 1)
  return bytes.toString('base64')
}

/** The record with a true proof to another head of its log. */
function underHead(record: JsonObject, at: number): JsonObject {
  const { size = 0, root = '', signature = '' } = headOf(at)
  const { index } = record.receipt as { readonly index: number }
  const path = log.reference.path(index, Number(size)).map(encodeHex)
  return { ...record, log: { ...(record.log as JsonObject), size, root, signature, path } }
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
