import { expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { splitNamedEvents } from '#attestation/dialects/event-text.ts'
import { verifyEventStream } from '#attestation/verify-stream.ts'
import { codeOf } from '../code-of.ts'

const PING = { event: 'ping', data: { type: 'ping' } }
const TEXT = 'event: ping\ndata: {"type":"ping"}\n\n'

const bytesOf = (text: string | Uint8Array) => (typeof text === 'string' ? encodeUtf8(text) : text)
const refusalOf = (text: string | Uint8Array) => codeOf(() => splitNamedEvents(bytesOf(text)))

it.each([
  ['line feeds', TEXT],
  ['carriage returns', TEXT.replaceAll('\n', '\r')],
  ['both', TEXT.replaceAll('\n', '\r\n')],
  ['no blank line at its end', TEXT.trimEnd()],
  ['no spaces after its colons', TEXT.replaceAll(': ', ':')],
  ['comments, an id and a delay', `: hello\n\nid: 1\nretry: 5\n:\n${TEXT}: bye\n\n`],
  ['lines between its name and its data', TEXT.replace('\n', '\n: x\nid: 7\n')],
])('splitNamedEvents gives the event of a stream with %s', (_, text) => {
  expect(splitNamedEvents(encodeUtf8(text))).toEqual([PING])
})

it('a separator of lines that JSON does not escape ends no line', () => {
  const text = 'event: a\ndata: {"type":"a","text":"\u2028data: x\u0085"}\n\n'
  expect(splitNamedEvents(encodeUtf8(text))).toEqual([
    { event: 'a', data: { type: 'a', text: '\u2028data: x\u0085' } },
  ])
})

it.each([
  ['no name', 'data: {"type":"ping"}\n\n'],
  ['an empty name', 'event:\ndata: {"type":"ping"}\n\n'],
  ['a name without a colon', 'event\ndata: {"type":"ping"}\n\n'],
  ['two names', `event: ping\n${TEXT}`],
  ['its name after its data', 'data: {"type":"ping"}\nevent: ping\n\n'],
  ['no data', 'event: ping\n\n'],
  ['two lines of data', TEXT.replace('"type"', '\ndata: "type"')],
  ['a line without a colon', TEXT.replace('event', 'data\nevent')],
  ['another field', `x: y\n${TEXT}`],
  ['a comment that is not ASCII', `: \u2028\n${TEXT}`],
  ['a byte order mark', `\ufeff${TEXT}`],
  ['data that are no object', 'event: ping\ndata: ["ping"]\n\n'],
  ['the end of a chat', `${TEXT}data: [DONE]\n\n`],
  ['bytes that are not UTF-8', Buffer.concat([Buffer.from(TEXT), Buffer.from([0xff])])],
])('splitNamedEvents refuses a stream with %s', (_, text) => {
  expect(refusalOf(text)).toBe('invalid_stream')
})

it('an event whose name is not its type is refused', () => {
  expect(refusalOf(TEXT.replace('ping', 'keepalive'))).toBe('changed_type')
  expect(refusalOf('event: ping\ndata: {}\n\n')).toBe('invalid_form')
})

it('data that two readers of JSON would read differently are refused', () => {
  expect(refusalOf(TEXT.replace('{', '{"type":"x",'))).toBe('duplicate_key')
  expect(refusalOf(TEXT.replace('}', ',"x":1e400}'))).toBe('number_overflow')
  expect(refusalOf(TEXT.replace('}', ',"x":"\\ud800"}'))).toBe('lone_surrogate')
  expect(refusalOf(TEXT.replace('}', ''))).toBe('syntax')
})

it('a request of a chat is refused', () => {
  expect(() => verifyEventStream([PING], { request: { model: 'm', messages: [] } })).toThrow(
    expect.objectContaining({ code: 'invalid_stream' }),
  )
})

it('a stream that ends with an error is refused', () => {
  const request = { dialect: 'messages', headers: {}, body: { model: 'm', stream: true } }
  const events = splitNamedEvents(encodeUtf8('event: error\ndata: {"type":"error"}\n\n'))
  expect(() => verifyEventStream(events, { request })).toThrow(
    expect.objectContaining({ code: 'upstream_failure' }),
  )
})

it('a stream that no enclave gives out is refused with the rule that it breaks', () => {
  const request = { dialect: 'messages', headers: {}, body: { model: 'm', stream: true } }
  expect(() => verifyEventStream([PING], { request })).toThrow(
    expect.objectContaining({ code: 'cut_stream' }),
  )
})
