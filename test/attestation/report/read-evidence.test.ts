import { gzipSync } from 'node:zlib'
import { expect, it } from 'vitest'
import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import {
  EvidenceError,
  readEvidence,
  readKeptFiles,
  type Subject,
} from '#attestation/report/read-evidence.ts'
import { readAll, withProof } from '../dialects/readers.ts'
import { responsesStream } from '../dialects/responses-streams.ts'

const bytes = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value))
const record = { request: {}, response: {}, hash: 'aa' }
const answer = { choices: [], hash: 'aa' }
const asked = { model: 'm', stream_options: { include_usage: true } }

const chunk = (content: string) => ({
  id: 'a',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'm',
  choices: [
    { index: 0, delta: { role: 'assistant', content }, finish_reason: null, logprobs: null },
  ],
  usage: null,
})
const proof = {
  id: 'a',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'm',
  choices: [],
  hash: 'aa',
  receipt: {},
}
const stream = (values: readonly unknown[], lineBreak = '\n') =>
  values
    .map(
      (value) =>
        `data: ${typeof value === 'string' ? value : JSON.stringify(value)}${lineBreak}${lineBreak}`,
    )
    .join('')

function read(input: unknown, request: unknown = null): readonly Subject[] {
  const read = readEvidence(bytes(input), request === null ? null : bytes(request))
  return read.kind === 'records' ? read.subjects : []
}

it('readEvidence takes a record and each record of a page', () => {
  expect(read(record)).toEqual([{ record }])
  expect(read({ completions: [record, record], cursor: null })).toEqual([{ record }, { record }])
})

it('evidence with any format is taken as a bundle, even with an unknown format', () => {
  const bundle = { format: 'something of the future', request: {} }
  expect(readEvidence(bytes(bundle), null)).toEqual({ kind: 'bundle', bundle })
})

it('readEvidence takes the evidence of several calls, one per line, and refuses another line', () => {
  const call = JSON.stringify({ format: 'affidavit-evidence', version: 1 })
  const lines = (...texts: readonly string[]) => readEvidence(Buffer.from(texts.join('')), null)
  expect(lines(call)).toMatchObject({ kind: 'bundle' })
  expect(lines(`${call}\n`)).toMatchObject({ kind: 'bundle' })
  expect(lines(`${call}\r\n`, call)).toMatchObject({ kind: 'session', calls: [{}, {}] })
  for (const other of ['\n', '{}\n', '{"format":"other"}\n', 'x', `${call}${call}`])
    expect(() => lines(`${call}\n`, other)).toThrow(EvidenceError)
  expect(() => lines(`${call}\n`.repeat(10_001))).toThrow('at most 10000 lines')
})

it('readEvidence takes an answer with the body of its request', () => {
  const kept = { request: asked, answer: { kind: 'whole', answer } }
  expect(read(answer, asked)).toEqual([{ record: answer, kept }])
})

it.each([['\n'], ['\r\n'], ['\r']])(
  'readEvidence takes a stream with line breaks %j as it came',
  (lineBreak) => {
    const chunks = [chunk('a\u2028'), chunk('b'), proof]
    const text = `: ping${lineBreak}${lineBreak}${stream([...chunks, '[DONE]'], lineBreak)}`
    const [subject] = read(text, asked)
    const kept = { request: asked, answer: { kind: 'stream', chunks, idempotent: false } }
    expect(subject).toEqual({ record: proof, kept })
  },
)

it('readEvidence takes an answer of another dialect, whole or as its events', () => {
  const body = { model: 'm', input: 'Hello' }
  const request = { dialect: 'responses', headers: {}, body }
  const carrier = { id: 'resp_1', affidavit: { hash: 'aa', receipt: {} } }
  const whole = { kind: 'whole', answer: carrier }
  expect(read(carrier, request)).toEqual([
    { record: carrier.affidavit, kept: { request, answer: whole } },
  ])
  const dialect = EVENT_DIALECTS.responses
  const { given } = readAll(dialect.openStream(), responsesStream([]))
  const last = withProof(dialect, given.at(-1) ?? { event: '', data: {} }, carrier.affidavit)
  const list = [...given.slice(0, -1), last]
  const textOf = (events: readonly DialectEvent[]) =>
    events.map(({ event, data }) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join('')
  const events = { kind: 'events', events: list, idempotent: false }
  expect(read(`: ping\n\n${textOf(list)}`, request)).toEqual([
    { record: carrier.affidavit, kept: { request, answer: events } },
  ])
})

it.each<[string, unknown, unknown, RegExp]>([
  ['what is no JSON', '{', null, /not JSON/],
  ['a byte order mark', '\ufeff{}', null, /one meaning only: got a byte order mark first$/],
  ['a byte order mark before events', '\ufeffdata: {}\n\n', null, /got a byte order mark first$/],
  ['HTML that is no saved page', '\n<html>“not found”', null, /not JSON: got HTML or XML$/],
  ['nothing', '', null, /not JSON: got nothing$/],
  ['a duplicate member', '{"request":{},"request":{}}', null, /with one meaning only/],
  ['a list', [], null, /JSON object/],
  ['something else', { a: 1 }, null, /expected a record/],
  ['an empty page', { completions: [] }, null, /nothing to check/],
  ['an answer without its request', answer, null, /give the body that was sent/],
  ['a stream without its request', stream([proof, '[DONE]']), null, /give the body that was sent/],
  ['a stream that is cut off', stream([chunk('a'), proof]), asked, /not whole/],
  ['a stream without proof', stream([chunk('a'), '[DONE]']), asked, /carry the proof/],
  [
    'a stream that failed',
    `${stream([chunk('a')])}event: error\ndata: {}\n\n`,
    asked,
    /ends with an error/,
  ],
  ['a chunk that is no object', stream([7, proof, '[DONE]']), asked, /JSON object/],
])('readEvidence refuses a wrong input: %s', (_, input, request, message) => {
  expect(() => read(input, request)).toThrow(EvidenceError)
  expect(() => read(input, request)).toThrow(message)
})

it('the rest of a text that is nested too deep is not read: it may not fit into memory', () => {
  const reading = () => readEvidence(bytes(`{"format":${'['.repeat(1_000_000)}`), null)
  expect(reading).toThrow(
    /^the input is not JSON with one meaning only: expected at most 144 arrays/,
  )
})

it.each([
  ['UTF-16', Buffer.from('\ufeff{}', 'utf16le')],
  ['gzip', gzipSync('{}')],
])('evidence in %s is refused by this name', (name, input) => {
  expect(() => readEvidence(input, null)).toThrow(`the input is not JSON: got ${name}`)
})

const keptOf = (text: string) => readKeptFiles({ request: null, answer: bytes(text) }).answer

it.each(['event: error', 'event:error'])(
  'a chat stream that ends with %s is a failed chat',
  (line) => {
    const text = `${stream([chunk('a')])}${line}\ndata: {"error":{"message":"no"}}\n\n`
    expect(() => keptOf(text)).toThrow('the stream ends with an error')
  },
)

it.each(['event: response.created', 'event:response.created'])(
  'a stream with %s has named events',
  (line) => {
    const text = `: ping\r\n\r\n${line}\r\ndata: {"type":"response.created"}\r\n\r\n`
    expect(keptOf(text)?.kind).toBe('events')
  },
)

it('a text of a chat that looks like the name of an event names no event', () => {
  const chunks = [chunk('\u2028event: a'), '[DONE]']
  expect(keptOf(stream(chunks))?.kind).toBe('stream')
})
