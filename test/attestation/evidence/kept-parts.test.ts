import { describe, expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import {
  type EvidenceBundle,
  parseEvidenceBundle,
  redactBundle,
} from '#attestation/evidence/bundle.ts'
import {
  completeEvidence,
  saveEvidence,
  writeEvidence,
} from '#attestation/evidence/create-evidence.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { ATTACKS, HARMLESS } from '../kept-streams.ts'
import { buildAttested } from './build-attested.ts'
import { BOOT_CONFIGURATION, buildEvidence } from './build-evidence.ts'
import { buildStream, withChunks } from './build-stream.ts'
import { isValid } from './check-schema.ts'
import { detailOf, namesOf } from './read-report.ts'

const jsonOf = (value: object): JsonObject => JSON.parse(JSON.stringify(value))
const { bundle: whole, policy } = buildEvidence()
const stream = buildStream()
const verify = (bundle: EvidenceBundle) => verifyBundle(jsonOf(bundle), policy)

describe('evidence with the events of a stream', () => {
  it('a stream without its usage is verified by its chunks', async () => {
    const report = await verify(stream.bundle)
    expect(report).toMatchObject({ verdict: 'verified', open: [] })
    expect(detailOf(report, 'stream hash')).toContain('stream hash')
    const without = await verify(redactBundle(stream.bundle, { response: true }))
    expect(without).toMatchObject({ verdict: 'incomplete', open: ['response hash'] })
    expect(namesOf(without, 'passed')).not.toContain('stream hash')
  })

  it.each(ATTACKS)('a stream with %s is never verified', async (name, attack) => {
    const report = await verify(withChunks(stream.bundle, attack(stream.chunks)))
    if (!HARMLESS.has(name) || report.verdict !== 'verified') {
      expect(report.verdict).toBe('invalid')
      expect(namesOf(report, 'failed')).toEqual(['stream hash'])
    }
  })

  it('a stream whose last chunk has the proof of another call is invalid', async () => {
    const last = { ...stream.chunks.at(-1), tx_hash: `0x${'ab'.repeat(32)}` }
    const report = await verify(withChunks(stream.bundle, stream.chunks.with(-1, last)))
    expect(namesOf(report, 'failed')).toEqual(['stream hash'])
    expect(detailOf(report, 'stream hash')).toContain('tx_hash')
  })

  it.each<[string, (events: readonly JsonObject[]) => Json]>([
    ['of another dialect', (events) => events.map((one) => ({ event: 'message', ...one }))],
    ['of which none is there', () => []],
  ])('events %s fail the stream hash, and nothing throws', async (_, change) => {
    const events = change(jsonOf(stream.bundle).events as readonly JsonObject[])
    const report = await verifyBundle({ ...jsonOf(stream.bundle), events }, policy)
    expect(report.verdict).toBe('invalid')
  })
})

describe('the parts that only the caller has', () => {
  it.each<[string, JsonObject]>([
    ['events that are not a list', { events: {} }],
    ['an event that is a text', { events: ['a'] }],
    ['an event without data', { events: [{ event: 'a' }] }],
    ['an event with a member more', { events: [{ data: {}, id: 1 }] }],
    ['a name that is not a text', { events: [{ event: 1, data: {} }] }],
    ['idempotent without events', { idempotent: true }],
    ['idempotent as a text', { events: [{ data: {} }], idempotent: 'true' }],
    ['no request without an answer', { unanswered: [] }],
    [
      'a request that was sent no time',
      { unanswered: [{ notary: `0x${'ab'.repeat(20)}`, times: 0 }] },
    ],
    ['a notary in upper case', { unanswered: [{ notary: `0x${'AB'.repeat(20)}`, times: 1 }] }],
    ['a block without its transaction', { transaction: null }],
  ])('the parser and the schema refuse %s', (name, members) => {
    const json = { ...jsonOf(whole), ...members }
    expect(() => parseEvidenceBundle(json)).toThrow(FormatError)
    // A schema cannot compare two members.
    if (name !== 'a block without its transaction') expect(isValid(json)).toBe(false)
  })

  it('requests without an answer leave the evidence incomplete, and are named', async () => {
    const notary = `0x${'ab'.repeat(20)}`
    const bundle = { ...whole, unanswered: [{ notary, times: 2 }] }
    const report = await verify(bundle)
    expect(report).toMatchObject({ verdict: 'incomplete', open: ['other requests'] })
    expect(detailOf(report, 'other requests')).toBe(
      `also sent 2 times to ${notary}, which may have made it`,
    )
    expect(isValid(jsonOf(bundle))).toBe(true)
  })

  it('evidence that names no transaction yet is incomplete, with every other check made', async () => {
    const report = await verify({ ...whole, transaction: null, block: null })
    expect(report.verdict).toBe('incomplete')
    expect(report.open).toEqual([
      'transaction hash',
      'anchor',
      'block header',
      'anchor time',
      'transaction in block',
      'anchor outcome',
    ])
    expect(detailOf(report, 'block header')).toContain('complete it')
  })
})

describe('what a client saves, and the anchor that is added later', () => {
  const { record } = whole
  const { request, response } = record as typeof record & {
    readonly request: JsonObject
    readonly response: JsonObject
  }
  const { created_at: _, request: _request, response: _response, ...proof } = jsonOf(record)
  const stated = { configuration: BOOT_CONFIGURATION, unanswered: [] }
  const own = saveEvidence(
    { request, answer: { kind: 'whole', answer: { ...response, ...proof } } },
    stated,
  )

  it('the saved evidence of a whole answer is the evidence of the gateway without its anchor', () => {
    expect(own).toEqual({ ...whole, transaction: null, block: null })
    expect(parseEvidenceBundle(parseExactJson(Buffer.from(writeEvidence(own))))).toEqual(own)
  })

  it('the saved evidence of a stream has its chunks, and the anchor makes it verified', async () => {
    const { bundle, chunks } = stream
    const saved = saveEvidence(
      {
        request: (bundle.record as unknown as { readonly request: JsonObject }).request,
        answer: { kind: 'stream', chunks },
      },
      stated,
    )
    expect(saved).toEqual({ ...bundle, transaction: null, block: null })
    const { events: _events, ...ofGateway } = bundle
    const redacted = redactBundle(ofGateway, { request: true })
    expect((await verify(completeEvidence(saved, redacted))).verdict).toBe('verified')
  })

  it('the anchor replaces no content, no document and no source that its caller kept', () => {
    const { bundle } = buildAttested()
    const kept = { ...bundle, transaction: null, block: null, source: { operator: 'Kept' } }
    const given = {
      ...bundle,
      record: { ...bundle.record, request: { model: 'demo/echo', messages: [] }, attestation: '' },
      boot_configuration: {},
      source: { operator: 'Given' },
      unanswered: [{ notary: `0x${'ab'.repeat(20)}`, times: 1 }],
    }
    const whole = { ...bundle, source: kept.source }
    expect(completeEvidence(kept, given)).toEqual(whole)
    const { provider_evidence: _, ...bare } = given
    expect(completeEvidence(kept, bare)).toEqual(whole)
    const { provider_evidence: _own, ...open } = kept
    expect(completeEvidence(open, given)).toEqual(whole)
  })

  it('a part that was redacted stays left out when the anchor is added', () => {
    const redacted = redactBundle(own, { request: true, response: true })
    expect(completeEvidence(redacted, whole)).toEqual(
      redactBundle(whole, { request: true, response: true }),
    )
  })

  it.each(['hash', 'public_key', 'signature', 'receipt'] as const)(
    'an anchor of a call with another %s is refused',
    (member) => {
      const value = member === 'receipt' ? { ...record.receipt, attempt: 2 } : `${record[member]}0`
      const other = { ...whole, record: { ...record, [member]: value } }
      expect(() => completeEvidence(own, other)).toThrow(`${member} differs from the kept one`)
    },
  )
})
