import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import {
  compareExchange,
  completeRecord,
  type KeptExchange,
} from '#attestation/compare-exchange.ts'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { buildRecord, REQUEST, RESPONSE, signHead } from './build-record.ts'
import { otherLastDigit } from './mutate-json.ts'

const { stored, created } = buildRecord()
/** The same completion under a later head of its log. */
const later = buildRecord({ after: 9 })
const other = buildRecord({ response: { ...RESPONSE, id: 'other' } })

const CHUNKS: readonly JsonObject[] = ['gr', 'oß'].map((content, at) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1760000000,
  model: 'demo/echo-2025',
  choices: [
    { index: 0, delta: { role: 'assistant', content }, finish_reason: at === 1 ? 'stop' : null },
  ],
}))
const LAST = CHUNKS[1] ?? {}
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
const streamed = buildStreamed({})
const keptChunks = [...CHUNKS.slice(0, -1), { ...LAST, ...proofOf(streamed.created) }]

/** A stream whose chunks are those, and whose signed response may have more. */
function buildStreamed(more: JsonObject) {
  return buildRecord({
    request: { ...REQUEST, stream: true },
    response: { ...assembleCompletion(CHUNKS), ...more },
    streamHash: createHash('sha256')
      .update(CHUNKS.map((chunk) => `${canonicalize(chunk)}\n`).join(''))
      .digest('hex'),
  })
}

const outcomes = (evidence: Json, kept: KeptExchange) =>
  Object.fromEntries(compareExchange(evidence, kept).map(({ name, outcome }) => [name, outcome]))
const whole = (answer: Json): KeptExchange => ({ answer: { kind: 'whole', answer } })
const stream = (chunks: readonly Json[]): KeptExchange => ({ answer: { kind: 'stream', chunks } })

it('compareExchange finds an exchange in its own evidence and checks only the parts that were given', () => {
  expect(outcomes(stored, {})).toEqual({})
  expect(outcomes(stored, { request: REQUEST })).toEqual({ 'request given': 'passed' })
  expect(outcomes(stored, { request: { stop: null, ...REQUEST }, ...whole(created) })).toEqual({
    'request given': 'passed',
    'answer given': 'passed',
    'proof given': 'passed',
  })
})

it('another request and a value that is no request fail the check of the request', () => {
  for (const request of [{ ...REQUEST, temperature: 0.8 }, { ...REQUEST, more: 1 }, [], null, 'x'])
    expect(outcomes(stored, { request })).toEqual({ 'request given': 'failed' })
})

it.each(['request_hash', 'response_hash', 'stream_hash'])(
  'an exchange fails when the %s of the receipt differs in its last digit',
  (name) => {
    const isStream = name === 'stream_hash'
    const {
      request: _request,
      response: _response,
      ...redacted
    } = isStream ? streamed.stored : stored
    const receipt = redacted.receipt as JsonObject
    const changed = { ...receipt, [name]: otherLastDigit(String(receipt[name])) }
    const kept = { request: REQUEST, ...(isStream ? stream(keptChunks) : whole(created)) }
    const found = outcomes({ ...redacted, receipt: changed }, kept)
    expect(found[name === 'request_hash' ? 'request given' : 'answer given']).toBe('failed')
  },
)

it('another answer fails, even with the proof of the evidence around it', () => {
  for (const answer of [
    { ...created, id: 'chatcmpl-2' },
    { ...created, note: 'added' },
    { ...other.created, ...proofOf(created) },
  ])
    expect(outcomes(stored, whole(answer))['answer given']).toBe('failed')
})

it('the right answer with a proof of something else fails the check of the proof', () => {
  for (const name of ['hash', 'public_key', 'signature', 'tx_hash', 'attestation', 'receipt']) {
    const value = name === 'receipt' ? {} : otherLastDigit(String(created[name]))
    const answer = { ...created, [name]: value }
    expect(outcomes(stored, whole(answer))).toEqual({
      'answer given': 'passed',
      'proof given': 'failed',
    })
  }
})

it('a kept stream passes only with every chunk and with no chunk added', () => {
  const passed = { 'answer given': 'passed', 'proof given': 'passed' }
  expect(outcomes(streamed.stored, stream(keptChunks))).toEqual(passed)
  const added = { ...CHUNKS[0], choices: [{ index: 0, delta: { content: '!' } }] }
  for (const chunks of [keptChunks.slice(1), [added, ...keptChunks], [...keptChunks, added]])
    expect(outcomes(streamed.stored, stream(chunks))['answer given']).toBe('failed')
})

it('chunks are compared by their hash when the signed response has a usage that was not asked for', () => {
  const { stored, created } = buildStreamed({ usage: USAGE })
  const chunks = [...CHUNKS.slice(0, -1), { ...LAST, ...proofOf(created) }]
  expect(outcomes(stored, stream(chunks))).toEqual({
    'answer given': 'passed',
    'proof given': 'passed',
  })
  expect(outcomes(stored, stream(chunks.slice(1)))['answer given']).toBe('failed')
})

it('a stream with a proof of something else in any chunk fails', () => {
  const [first = {}, ...rest] = keptChunks
  const chunks = [{ ...first, hash: otherLastDigit(String(streamed.created.hash)) }, ...rest]
  expect(outcomes(streamed.stored, stream(chunks))['proof given']).toBe('failed')
})

it('compareExchange never throws and never passes, for any evidence and any files', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (evidence, given) => {
      const kept = { request: given as Json, ...whole(given as Json) }
      const checks = compareExchange(evidence as Json, kept)
      expect(checks.map(({ outcome }) => outcome)).not.toContain('passed')
      expect(compareExchange(evidence as Json, stream([given as Json]))).toHaveLength(2)
    }),
    { numRuns: 50 },
  )
})

it('compareExchange does not say that the evidence holds', () => {
  const forged = { ...stored, signature: '0x00' }
  expect(outcomes(forged, { request: REQUEST })).toEqual({ 'request given': 'passed' })
})

it('the log of an answer may belong to a later or earlier head of the same log', () => {
  for (const record of [stored, later.stored])
    expect(outcomes(record, whole(created))['proof given']).toBe('passed')
})

it('the proof of an answer fails when its log is of another log, chain or path, or is missing', () => {
  const log = stored.log as JsonObject
  const contract = otherLastDigit(String(log.contract))
  for (const forged of [
    other.stored.log ?? null,
    { ...log, chain_id: 1 },
    {
      ...log,
      contract,
      signature: signHead(Number(log.size), decodeHex(String(log.root)), contract),
    },
    { ...log, root: otherLastDigit(String(log.root)) },
    { ...log, path: [] },
    null,
  ])
    expect(outcomes(later.stored, whole({ ...created, log: forged }))['proof given']).toBe('failed')
})

function proofOf(record: JsonObject): JsonObject {
  const names = ['hash', 'public_key', 'signature', 'tx_hash', 'attestation', 'receipt', 'log']
  return Object.fromEntries(Object.entries(record).filter(([name]) => names.includes(name)))
}

const encrypted = buildRecord({ receipt: { encrypted: true } })
const served: JsonObject = {
  ...encrypted.stored,
  request: null,
  response: null,
  redacted: true,
  usage: null,
}

it('completeRecord puts back what the caller kept, as it was hashed', () => {
  const completed = completeRecord(served, { request: REQUEST, ...whole(encrypted.created) })
  expect(completed).toEqual({ ...served, request: REQUEST, response: RESPONSE })
  expect(verifyRecord(completed).checks.map(({ outcome }) => outcome)).not.toContain('failed')
})

it('what the caller kept takes the place of its hash in redacted evidence', () => {
  const { request: _request, response: _response, ...rest } = stored
  const hashes = { request_hash: '00'.repeat(32), response_hash: '00'.repeat(32) }
  expect(completeRecord({ ...rest, ...hashes }, { request: REQUEST })).toEqual({
    ...rest,
    request: REQUEST,
    response_hash: hashes.response_hash,
  })
})

it('completeRecord takes nothing of another completion and replaces nothing that is there', () => {
  const others = { request: { ...REQUEST, seed: 7 }, ...whole({ ...encrypted.created, id: 'x' }) }
  expect(completeRecord(served, others)).toEqual(served)
  expect(completeRecord(stored, { request: REQUEST, ...whole(created) })).toEqual(stored)
  expect(completeRecord({}, { request: REQUEST, ...whole(created) })).toEqual({})
})

it('completeRecord does not make up a response from chunks that lack its usage', () => {
  const record: JsonObject = { ...buildStreamed({ usage: USAGE }).stored, response: null }
  expect(outcomes(record, stream(CHUNKS))).toMatchObject({ 'answer given': 'passed' })
  expect(completeRecord(record, stream(CHUNKS))).toEqual(record)
  expect(completeRecord({ ...streamed.stored, response: null }, stream(CHUNKS))).toEqual(
    streamed.stored,
  )
})
