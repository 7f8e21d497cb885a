import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { PROOF_MEMBERS } from '#attestation/completion-hash.ts'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { repeatedEvents } from '#attestation/dialects/repeated-stream.ts'
import { FormatError } from '#attestation/errors.ts'
import { attempt } from '#attestation/finding.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import type { RecordReport } from '#attestation/verify-record.ts'
import { splitEvents, verifyEventStream, verifyStream } from '#attestation/verify-stream.ts'
import { buildRecord } from './build-record.ts'
import { messagesStream } from './dialects/messages-streams.ts'
import { readAll, withProof } from './dialects/readers.ts'
import { responsesStream } from './dialects/responses-streams.ts'
import { ATTACKS, CHUNKS, chunkOf, HARMLESS, makeStream } from './kept-streams.ts'
import { otherLastDigit } from './mutate-json.ts'

/** The checks that fail of these chunks with the proof of their answer. */
function failedOf(
  chunks: readonly JsonObject[],
  {
    signed = chunks,
    streamHash = hashChunks(signed),
    idempotent = false,
  }: {
    readonly signed?: readonly JsonObject[]
    readonly streamHash?: string
    readonly idempotent?: boolean
  } = {},
): readonly string[] {
  const response = assembleCompletion(signed)
  const { created } = buildRecord({ request: STREAMED, response, streamHash })
  const proof = Object.entries(created).filter(([name]) => !Object.hasOwn(response, name))
  const proven = chunks.with(-1, { ...chunks.at(-1), ...Object.fromEntries(proof) })
  return outcomes(verifyStream(proven, { request: STREAMED, idempotent }), 'failed')
}

const STREAMED = {
  model: 'demo/echo',
  messages: [{ role: 'user', content: 'Is it?' }],
  stream: true,
}
const outcomes = (report: RecordReport, outcome: string) =>
  report.checks.filter((check) => check.outcome === outcome).map(({ name }) => name)

describe('verifyStream', () => {
  it('a stream fails whose hash differs from the signed one in its last digit', () => {
    const streamHash = otherLastDigit(hashChunks(CHUNKS))
    expect(failedOf(CHUNKS)).toEqual([])
    expect(failedOf(CHUNKS, { streamHash })).toEqual(['stream hash'])
  })

  it.each(PROOF_MEMBERS)(
    'a stream fails whose first chunk has %s, which no hash covers',
    (name) => {
      const chunks = CHUNKS.with(0, { ...CHUNKS[0], [name]: ' Or all.' })
      expect(hashChunks(chunks)).toBe(hashChunks(CHUNKS))
      const failed = ['response hash', 'hash', 'signature', 'receipt']
      expect(failedOf(chunks, { signed: CHUNKS })).toEqual(failed)
    },
  )

  const delta = { role: 'assistant', content: 'Yes.' }

  it.each([
    ['of a chunk', (sources: string) => ({ ...chunkOf(delta), citations: [sources] })],
    [
      'of a choice',
      (sources: string) => ({
        ...chunkOf({}),
        choices: [{ index: 0, delta, finish_reason: null, citations: [sources] }],
      }),
    ],
  ])(
    'another value of a member %s that a later value replaces fails at the stream hash',
    (_, chunkWith) => {
      const [good, end] = [chunkWith('https://good.example'), chunkOf({}, 'stop')]
      const signed = [good, good, end]
      expect(failedOf(signed)).toEqual([])
      expect(failedOf([chunkWith('https://evil.example'), good, end], { signed })).toEqual([
        'stream hash',
      ])
    },
  )

  describe('a repetition for an Idempotency-Key', () => {
    const text = { role: 'assistant', content: 'Yes.' }
    const chunkWith = (delta: JsonObject, ofChoice: JsonObject, ofChunk: JsonObject = {}) => ({
      ...chunkOf({}),
      ...ofChunk,
      choices: [{ index: 0, delta, finish_reason: null, ...ofChoice }],
    })
    const failedOfRepeated = (chunks: readonly JsonObject[]) =>
      failedOf(chunks, { streamHash: 'ab'.repeat(32), idempotent: true })

    it.each([...PROOF_MEMBERS, 'usage', 'choices', 'seed'])(
      'a repetition fails if a choice has two values of %s',
      (name) => {
        const given = (first: string, second: string) => [
          chunkWith(text, { [name]: { value: first } }),
          chunkWith({}, { [name]: { value: second }, finish_reason: 'stop' }),
        ]
        expect(failedOfRepeated(given('a', 'a'))).toEqual([])
        expect(failedOfRepeated(given('a', 'b'))).toEqual(['stream hash'])
      },
    )

    it.each(['delta', 'logprobs', 'finish_reason', 'service_tier'])(
      'a repetition fails if its chunks have two values of %s beside the choices',
      (name) => {
        const given = (first: string, second: string) => [
          chunkWith(text, {}, { [name]: first }),
          chunkWith({}, { finish_reason: 'stop' }, { [name]: second }),
        ]
        expect(failedOfRepeated(given('a', 'a'))).toEqual([])
        expect(failedOfRepeated(given('a', 'b'))).toEqual(['stream hash'])
      },
    )

    it('an empty finish_reason does not end a choice of a repetition', () => {
      const end = chunkWith({}, { finish_reason: 'stop' })
      expect(failedOfRepeated([chunkWith(text, { finish_reason: '' }), end])).toEqual([])
      expect(failedOfRepeated([chunkWith(text, { finish_reason: 'stop' }), end])).toEqual([
        'stream hash',
      ])
    })
  })

  describe.each([{ usageAsked: true }, { usageAsked: false }])(
    'usage asked: $usageAsked',
    (form) => {
      it.each(ATTACKS)('verifyStream takes no repetition with %s', (name, attack) => {
        const { request, chunks } = makeStream(form)
        const report = verifyStream(attack(chunks), { request, idempotent: true })
        // Where the response can be recomputed, harmless changes pass.
        const isReportedOnly = HARMLESS.has(name) && form.usageAsked
        expect(report.ok).toBe(isReportedOnly)
      })
    },
  )

  it.each<[string, readonly Json[]]>([
    ['no chunks', []],
    ['a chunk that is no object', [chunkOf({}), 7]],
    ['no proof', CHUNKS],
    [
      'the proof in a chunk before the last',
      [...makeStream({ usageAsked: true }).chunks, chunkOf({})],
    ],
  ])('verifyStream throws for a stream with %s', (_, chunks) => {
    expect(() => verifyStream(chunks, { request: {} })).toThrow(
      expect.objectContaining({ name: 'FormatError', code: 'invalid_stream' }),
    )
  })
})

const STARTED = { input_tokens: 10, output_tokens: 1, server_tool_use: { a: 1 } }
const ANSWERS = {
  messages: messagesStream([{ kind: 'text', pieces: ['Yes.', ' No.'] }]).map((data) =>
    data.type === 'message_start'
      ? { ...data, message: { ...(data.message as JsonObject), usage: STARTED } }
      : data,
  ),
  responses: responsesStream([{ kind: 'message', id: 'msg_1', pieces: ['Yes.', ' No.'] }]),
} as const

/** What fails of a stream with the proof of an enclave that gave out other events. */
function failedOfRepetition(
  name: keyof typeof ANSWERS,
  alter: (events: readonly DialectEvent[]) => readonly DialectEvent[] = (events) => events,
) {
  const dialect = EVENT_DIALECTS[name]
  const request = { dialect: name, headers: {}, body: { model: 'm', stream: true } }
  const reader = dialect.openStream()
  readAll(reader, ANSWERS[name])
  const response = reader.response()
  const { created } = buildRecord({ request, response, streamHash: 'ab'.repeat(32) })
  const events = repeatedEvents(dialect, response)
  const end = withProof(dialect, events.at(-1) as DialectEvent, created.affidavit as JsonObject)
  const report = verifyEventStream(alter(events.with(-1, end)), { request, idempotent: true })
  return outcomes(report, 'failed')
}

/** Each way to change one value in an event, or to add a member to an object in it. */
function* alterations(value: Json): Generator<Json> {
  if (isJsonArray(value)) {
    for (const [at, item] of value.entries())
      for (const altered of alterations(item)) yield value.with(at, altered)
    return
  }
  if (!isJsonObject(value)) {
    yield typeof value === 'string' ? `${value}!` : typeof value === 'number' ? value + 1 : 'new'
    return
  }
  yield { ...value, logprobs: [{ token: 'new' }] }
  for (const [name, member] of Object.entries(value))
    if (name !== 'affidavit')
      for (const altered of alterations(member)) yield { ...value, [name]: altered }
}

it.each(['messages', 'responses'] as const)(
  'a repetition in %s passes as a gateway writes it, and with no alteration of any event',
  (name) => {
    expect(failedOfRepetition(name)).toEqual([])
    const passed: string[] = []
    let count = 0
    failedOfRepetition(name, (events) => {
      for (const [at, { event, data }] of events.entries())
        for (const altered of alterations(data)) {
          count += 1
          const changed = events.with(at, { event, data: altered as JsonObject })
          const isRefused = attempt(() => failedOfRepetition(name, () => changed))
          if ('value' in isRefused && isRefused.value.length === 0)
            passed.push(`${at}: ${JSON.stringify(altered)}`)
        }
      return events
    })
    expect(count).toBeGreaterThan(40)
    expect(passed).toEqual([])
  },
)

const kept: {
  readonly stream_hash: { readonly chunks: readonly JsonObject[]; readonly stream_hash: string }
  readonly kept: readonly {
    readonly name: string
    readonly request: JsonObject
    readonly stream: string
    readonly failed?: readonly string[]
    readonly not_checked?: readonly string[]
    readonly refused?: string
  }[]
} = JSON.parse(readFileSync(join(import.meta.dirname, '../vectors/streams/kept.json'), 'utf8'))

it('the published chunks have the published stream hash', () => {
  expect(hashChunks(kept.stream_hash.chunks)).toBe(kept.stream_hash.stream_hash)
})

it.each(kept.kept)(
  'a published kept stream is judged as published: $name',
  ({ request, stream, failed, not_checked, refused }) => {
    const check = () => {
      const chunks = splitEvents(Buffer.from(stream)).map((data): Json => JSON.parse(data))
      return verifyStream(chunks, { request })
    }
    if (refused === undefined) {
      expect(outcomes(check(), 'failed')).toEqual(failed)
      expect(outcomes(check(), 'not checked')).toEqual(not_checked)
    } else expect(check).toThrow(expect.objectContaining({ code: refused }))
  },
)

const split = (text: string) => splitEvents(Buffer.from(text))

it('splitEvents leaves the line separators that JSON has in text', () => {
  expect(split('data: {"a":"\u2028"}\n\ndata: [DONE]\n\n')).toEqual(['{"a":"\u2028"}'])
})

it.each<[string, string | Uint8Array]>([
  ['no end', 'data: {}\n\n'],
  ['something after the end', 'data: {}\n\ndata: [DONE]\n\ndata: {}\n\n'],
  ['an event with a name, which some readers drop', 'event: note\ndata: {}\n\ndata: [DONE]\n\n'],
  ['a name without a value', 'event\ndata: {}\n\ndata: [DONE]\n\n'],
  ['an error', 'data: {}\n\nevent: error\ndata: {}\n\n'],
  // openai 5 to 7 and LangChain take the mark away at the beginning of each line, and show its
  // data.
  ['a byte order mark before data', 'data: {}\n\n\uFEFFdata: {"a":1}\n\ndata: [DONE]\n\n'],
  ['a byte order mark at the beginning', '\uFEFFdata: {}\n\ndata: [DONE]\n\n'],
  ['a line that begins with a space', ' data: {}\n\ndata: {}\n\ndata: [DONE]\n\n'],
  [
    'a comment with what some take for a line break',
    ': \u2028data: {}\n\ndata: {}\n\ndata: [DONE]\n\n',
  ],
  ['a line without a colon', 'data\n\ndata: {}\n\ndata: [DONE]\n\n'],
  ['two lines of data in one event', 'data: {"a":\ndata: {}}\n\ndata: [DONE]\n\n'],
  ['bytes that are no UTF-8', Uint8Array.of(0x64, 0xff)],
])('splitEvents refuses a stream with %s', (_, text) => {
  expect(() => splitEvents(typeof text === 'string' ? Buffer.from(text) : text)).toThrow(
    FormatError,
  )
})
