import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { repeatedEvents } from '#attestation/dialects/repeated-stream.ts'
import { redactBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { RecordParts } from '../../attestation/build-record.ts'
import { builtMessage, messagesStream } from '../../attestation/dialects/messages-streams.ts'
import { withProof } from '../../attestation/dialects/readers.ts'
import { responsesStream } from '../../attestation/dialects/responses-streams.ts'
import { buildEvidence, buildStored } from '../../attestation/evidence/build-evidence.ts'
import {
  type Draft,
  type DraftDemands,
  EXPECTED,
  EXPECTED_OF_RECORD,
  incomplete,
  invalid,
  OFFLINE,
  textOf,
  UNREADABLE,
  verified,
} from './draft.ts'
import { REFUSED_STREAMS } from './stream-attacks.ts'

type Name = keyof typeof EVENT_DIALECTS
type Outcome = Pick<Draft, 'about' | 'expect'>

const NONCE = '0123456789abcdef'.repeat(2)
const demandsHeader = (demands: JsonObject) =>
  Buffer.from(JSON.stringify(demands)).toString('base64url')

/** What the cases of one dialect are made from. */
type Made = {
  readonly body: JsonObject
  readonly headers: Readonly<Record<string, string>>
  readonly response: JsonObject
  readonly events: readonly JsonObject[]
}

const ITEMS = [
  { kind: 'reasoning', id: 'rs_1', pieces: ['I ', 'look.'] },
  { kind: 'message', id: 'msg_1', pieces: ['Grö', 'ße 😀'] },
  { kind: 'call', id: 'fc_1', pieces: ['{"path":', '"a.txt"}'] },
] as const
const BLOCKS = [
  { kind: 'thinking', pieces: ['I ', 'look.'], signature: 'c2ln' },
  { kind: 'text', pieces: ['Grö', 'ße 😀'] },
  { kind: 'tool', id: 'toolu_1', pieces: ['{"path":', '"a.txt"}'] },
] as const

const MADE: Readonly<Record<Name, Made>> = {
  responses: {
    body: { model: 'demo/echo', input: 'Größe? 😀', store: null, temperature: 0.7 },
    headers: { 'openai-beta': 'responses=v1' },
    events: responsesStream(ITEMS),
    response: responsesStream(ITEMS).at(-1)?.response as JsonObject,
  },
  messages: {
    body: {
      model: 'demo/echo',
      max_tokens: 100,
      messages: [{ role: 'user', content: 'Größe? 😀' }],
      metadata: null,
    },
    headers: { 'anthropic-version': '2023-06-01', 'anthropic-beta': 'one, two' },
    events: messagesStream(BLOCKS).filter(({ type }) => type !== 'ping'),
    response: builtMessage(BLOCKS),
  },
}
const NOT_STREAMED = ['stream hash', 'anchor']
const NOT_OF_STREAM = ['created_at', 'anchor']
/** The checks that fail when another request or answer was signed. */
const OTHER_REQUEST = ['request hash', 'hash', 'signature', 'receipt']
const OTHER_ANSWER = ['response hash', 'hash', 'signature', 'receipt']
/** The checks that need a receipt in the form that is specified. */
const WITHOUT_RECEIPT = [
  'request hash',
  'response hash',
  'stream hash',
  'receipt',
  'created_at',
  'receipt in log',
]

function recordCases(name: Name): readonly Draft[] {
  const { body, headers, response, events } = MADE[name]
  const request = { dialect: name, headers, body }
  const other = name === 'responses' ? 'messages' : 'responses'
  const header = { ...headers, 'affidavit-call': demandsHeader({ nonce: NONCE }) }
  const demanding = { dialect: name, headers: header, body }
  const record = buildStored({ record: { request, response } })
  const { [Object.keys(headers)[0] ?? '']: _, ...fewer } = headers
  const withoutNulls = Object.fromEntries(
    Object.entries(body).filter(([, value]) => value !== null),
  )
  const draft = (slug: string, source: JsonObject, { about, expect }: Outcome): Draft => ({
    name: `record/${name}/${slug}`,
    about,
    kind: 'record',
    source: { json: source },
    demands: EXPECTED_OF_RECORD,
    expect,
  })
  const passes = (slug: string, about: string, parts: RecordParts): Draft =>
    draft(slug, buildStored({ record: { response, ...parts } }), {
      about,
      expect: incomplete(...NOT_STREAMED),
    })
  const fails = (slug: string, about: string, failed: readonly string[], source: JsonObject) =>
    draft(slug, source, { about, expect: invalid(failed, ...NOT_STREAMED) })
  /** A record whose notary signed another request than the record has. */
  const signedFor = (signed: JsonObject) => ({
    ...buildStored({ record: { request: { ...request, ...signed }, response } }),
    request,
  })
  const receiptSays = (receipt: RecordParts['receipt'], asked: JsonObject = request) =>
    buildStored({ record: { request: asked, response, ...(receipt ? { receipt } : {}) } })
  const inBody = { ...request, body: { ...body, affidavit: { nonce: NONCE, headers } } }
  return [
    passes('whole', 'A stored record: what the cases that fail are changed from.', { request }),
    passes('without-headers', 'A call without any hashed header.', {
      request: { ...request, headers: {} },
    }),
    passes('streamed', 'A stored record of a stream.', {
      request: { ...request, body: { ...body, stream: true } },
      streamHash: streamHashOf(events),
    }),
    passes(
      'demands-in-the-header',
      'The demands are hashed with the headers; no receipt has them.',
      {
        request: demanding,
      },
    ),
    passes('demands-in-the-body', 'The demands are in the body, with the headers that count.', {
      request: inBody,
    }),
    fails(
      'request-hash/null-left-out',
      'The notary signed the body without its nulls, as of a chat: here they are hashed.',
      OTHER_REQUEST,
      signedFor({ body: withoutNulls }),
    ),
    fails(
      'request-hash/header-left-out',
      'The notary signed a request without one of its headers, and the receipt lacks it.',
      OTHER_REQUEST,
      signedFor({ headers: fewer }),
    ),
    fails(
      'request-hash/header-added',
      'The notary signed a request with one more header than the record has.',
      OTHER_REQUEST,
      { ...buildStored({ record: { request: demanding, response } }), request },
    ),
    fails(
      'request-hash/of-another-request',
      'The receipt has another request_hash. By the rules the check receipt fails with it.',
      ['request hash', 'receipt'],
      receiptSays({ request_hash: 'ab'.repeat(32) }),
    ),
    fails(
      'response-hash/proof-in-the-response',
      'The response has a member affidavit, which is not hashed.',
      ['response hash'],
      { ...record, response: { ...response, affidavit: { hash: String(record.hash) } } },
    ),
    fails('response-changed', 'The response was changed.', OTHER_ANSWER, {
      ...record,
      response: { ...response, id: 'another' },
    }),
    fails(
      'receipt/header-left-out',
      'The receipt lacks a header of the request.',
      ['receipt'],
      receiptSays({ headers: fewer }),
    ),
    draft('receipt/header-of-demands', receiptSays({ headers: header }, demanding), {
      about: 'The receipt has the header with the demands, which belongs to the request alone.',
      expect: invalid(WITHOUT_RECEIPT, 'anchor'),
    }),
    draft('receipt/dialect-of-the-other', receiptSays({ dialect: other }), {
      about: 'The receipt names the other dialect, which has none of these headers.',
      expect: invalid(WITHOUT_RECEIPT, 'anchor'),
    }),
    fails(
      'receipt/unknown-header',
      'The request has a header that is none of its dialect.',
      ['receipt'],
      receiptSays({ headers }, { ...request, headers: { ...headers, accept: 'text/plain' } }),
    ),
    fails(
      'receipt/demands-in-header-and-body',
      'Header and body both have demands.',
      ['receipt'],
      receiptSays(undefined, { ...inBody, headers: header }),
    ),
    fails(
      'receipt/demand-denied',
      "The header demands the operator's credential, which the receipt denies.",
      ['receipt'],
      receiptSays(
        { credential: { from: 'operator', demanded: false } },
        {
          ...request,
          headers: {
            ...headers,
            'affidavit-call': demandsHeader({ nonce: NONCE, credential: 'operator' }),
          },
        },
      ),
    ),
    fails(
      'receipt/stream-hash-without-stream',
      'The receipt has a stream_hash, and the request asks for no stream.',
      ['receipt'],
      buildStored({ record: { request, response, streamHash: 'ab'.repeat(32) } }),
    ),
  ]
}

function answerCases(name: Name): readonly Draft[] {
  const { body, headers, response } = MADE[name]
  const request = { dialect: name, headers, body }
  const { affidavit, ...proven } = provenAnswer({ request, response })
  const draft = (slug: string, source: JsonObject, { about, expect }: Outcome): Draft => ({
    name: `answer/${name}/${slug}`,
    about,
    kind: 'answer',
    source: { json: source },
    demands: { ...EXPECTED_OF_RECORD, request: { json: request } },
    expect,
  })
  const OPEN = [...NOT_STREAMED, 'created_at']
  return [
    draft('whole', { ...proven, affidavit } as JsonObject, {
      about: 'A whole answer; its proof is in one member.',
      expect: incomplete(...OPEN),
    }),
    draft('changed', { ...proven, id: 'another', affidavit } as JsonObject, {
      about: 'A member was changed.',
      expect: invalid(OTHER_ANSWER, ...OPEN),
    }),
    draft('member-added', { ...proven, hash: 'ab'.repeat(32), affidavit } as JsonObject, {
      about: 'A member was added that is unhashed in a chat alone.',
      expect: invalid(OTHER_ANSWER, ...OPEN),
    }),
    draft(
      'member-added-to-proof',
      { ...proven, affidavit: { ...(affidavit as JsonObject), note: 'added' } },
      {
        about: 'A member was added to the proof, which no hash covers.',
        expect: invalid(OTHER_ANSWER, ...OPEN),
      },
    ),
    draft(
      'proof-at-the-top',
      { ...proven, ...(affidavit as JsonObject) },
      {
        about: 'The proof is not in its member.',
        expect: UNREADABLE,
      },
    ),
  ]
}

/** The answer that a gateway gives: with its proof in the member of the dialect. */
function provenAnswer(record: RecordParts): JsonObject {
  const { id: _, request: __, response, created_at: ___, ...proof } = buildStored({ record })
  return { ...(response as JsonObject), affidavit: proof }
}

/** The hash of a stream, made as formats.md says. */
function streamHashOf(events: readonly JsonObject[]): string {
  const lines = events.map((data) => `${canonicalize({ event: data.type, data })}\n`)
  return createHash('sha256').update(lines.join('')).digest('hex')
}

function streamCases(name: Name): readonly Draft[] {
  const { body, headers, response, events } = MADE[name]
  const request = { dialect: name, headers, body: { ...body, stream: true } }
  /** The events with the proof of an enclave that gave out `given`. */
  const proven = (
    given: readonly JsonObject[],
    parts: RecordParts = {},
    added: JsonObject = {},
  ) => {
    const record = { request, response, streamHash: streamHashOf(given), ...parts }
    return given.map((data, at): DialectEvent => {
      const event = { event: String(data.type), data }
      if (at < given.length - 1) return event
      const proof = provenAnswer(record).affidavit as JsonObject
      return withProof(EVENT_DIALECTS[name], event, { ...proof, ...added })
    })
  }
  const draft = (
    slug: string,
    source: readonly DialectEvent[] | string,
    { about, expect }: Outcome,
    asked: JsonObject = request,
    demands: DraftDemands = EXPECTED_OF_RECORD,
  ): Draft => ({
    name: `stream/${name}/${slug}`,
    about,
    kind: 'stream',
    source: textOf(typeof source === 'string' ? source : textOfEvents(source), 'txt'),
    demands: { ...demands, request: { json: asked } },
    expect,
  })
  const whole = proven(events)
  const { stream: _, ...unstreamed } = request.body
  const recut = recutOf(name, events)
  const repetition = repeatedEvents(EVENT_DIALECTS[name], response).map(({ data }) => data)
  /** A repetition for an Idempotency-Key. */
  const repeated = (slug: string, given: readonly JsonObject[], outcome: Outcome): Draft =>
    draft(slug, proven(given, { streamHash: 'ab'.repeat(32) }), outcome, request, {
      ...EXPECTED_OF_RECORD,
      idempotent: true,
    })
  const refused = Object.entries(REFUSED_STREAMS[name]).map(([slug, [about, change]]) =>
    draft(`refused/${slug}`, change(whole.map(textOfEvent)).join(''), {
      about,
      expect: UNREADABLE,
    }),
  )
  return [
    draft('whole', whole, {
      about: 'A kept stream with its proof.',
      expect: incomplete(...NOT_OF_STREAM),
    }),
    draft('member-added-to-proof', proven(events, {}, { note: 'added' }), {
      about: 'A member was added to the proof, which no hash covers.',
      expect: invalid(OTHER_ANSWER, ...NOT_OF_STREAM),
    }),
    draft(
      'kept-alive',
      `: hello\n\n${textOfEvents(whole.flatMap((event) => [PING, event]))}${textOfEvent(PING)}`,
      {
        about: 'Bare pings and comments, which are not hashed.',
        expect: incomplete(...NOT_OF_STREAM),
      },
    ),
    draft('carriage-returns', textOfEvents(whole).replaceAll('\n', '\r\n'), {
      about: 'Lines that end with carriage return and line feed.',
      expect: incomplete(...NOT_OF_STREAM),
    }),
    draft('stream-hash/cut-otherwise', proven(recut, { streamHash: streamHashOf(events) }), {
      about: 'The same text in other deltas than those given out.',
      expect: invalid(['stream hash'], ...NOT_OF_STREAM),
    }),
    repeated('repeated', repetition, {
      about:
        'Other events than those first given out: those in which a gateway repeats the signed answer.',
      expect: incomplete(...NOT_OF_STREAM, 'stream hash'),
    }),
    repeated('stream-hash/repeated-otherwise', recut, {
      about:
        'Other events than those first given out, which assemble to the same: but no gateway repeats an answer in these.',
      expect: invalid(['stream hash'], ...NOT_OF_STREAM),
    }),
    ...(name === 'messages'
      ? [
          repeated('stream-hash/repeated-with-another-usage', withOtherUsage(recut), {
            about: 'A repetition that assembles to the same: but its start has another usage.',
            expect: invalid(['stream hash'], ...NOT_OF_STREAM),
          }),
        ]
      : []),
    draft(
      'stream-hash/not-streamed',
      proven(events, { request: { ...request, body: unstreamed }, streamHash: null }),
      {
        about: 'A stream of an answer that was not streamed.',
        expect: invalid(['stream hash'], ...NOT_OF_STREAM),
      },
      { ...request, body: unstreamed },
    ),
    draft(
      'text-changed',
      textOfEvents(whole).replaceAll('Grö', 'Gro').replaceAll('größe', 'große'),
      {
        about: 'A delta was changed, and with it all that repeats it.',
        expect: invalid(
          ['response hash', 'stream hash', 'hash', 'signature', 'receipt'],
          ...NOT_OF_STREAM,
        ),
      },
    ),
    draft(
      'request-of-another-dialect',
      whole,
      {
        about: 'The request that was kept names the other dialect.',
        expect: UNREADABLE,
      },
      { ...request, dialect: name === 'responses' ? 'messages' : 'responses' },
    ),
    ...refused,
  ]
}

const PING: DialectEvent = { event: 'ping', data: { type: 'ping' } }

function textOfEvent({ event, data }: DialectEvent): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}

function textOfEvents(events: readonly DialectEvent[]): string {
  return events.map(textOfEvent).join('')
}

/** The stream with the text in one delta instead of two. */
function recutOf(name: Name, events: readonly JsonObject[]): readonly JsonObject[] {
  const isText = ({ type, delta }: JsonObject) =>
    type === 'response.output_text.delta' || (delta as JsonObject)?.type === 'text_delta'
  const [first, second] = events.filter(isText)
  const joined =
    name === 'responses'
      ? { ...first, delta: 'Größe 😀' }
      : { ...first, delta: { type: 'text_delta', text: 'Größe 😀' } }
  const kept = events.flatMap((event) =>
    event === first ? [joined] : event === second ? [] : [event],
  )
  if (name === 'messages') return kept as readonly JsonObject[]
  return kept.map((event, sequence_number) => ({ ...event, sequence_number }))
}

/** The same message, with other tokens of the input in its message_start than at its end. */
function withOtherUsage(events: readonly JsonObject[]): readonly JsonObject[] {
  return events.map((data) => {
    const message = data.message as JsonObject
    const [first, last] = [message?.usage, data.usage] as readonly (JsonObject | undefined)[]
    if (data.type === 'message_delta') return { ...data, usage: { ...last, input_tokens: 10 } }
    if (data.type !== 'message_start') return data
    return { ...data, message: { ...message, usage: { ...first, input_tokens: 999_999 } } }
  })
}

function bundleCases(name: Name): readonly Draft[] {
  const { body, headers, response, events } = MADE[name]
  const request = { dialect: name, headers, body }
  const built = (record: RecordParts, stored: JsonObject = {}) =>
    buildEvidence({ neighbours: [2, 3], record: { request, response, ...record }, stored }).bundle
  const draft = (slug: string, source: object, { about, expect }: Outcome): Draft => ({
    name: `bundle/${name}/${slug}`,
    about,
    kind: 'bundle',
    source: { json: source as unknown as JsonObject },
    demands: EXPECTED,
    expect,
  })
  const bundle = built({})
  const withoutNulls = Object.fromEntries(
    Object.entries(body).filter(([, value]) => value !== null),
  )
  const streamed = { ...request, body: { ...body, stream: true } }
  return [
    draft('whole', bundle, { about: 'A bundle of a whole answer.', expect: verified(OFFLINE) }),
    draft('streamed', built({ request: streamed, streamHash: streamHashOf(events) }), {
      about: 'A bundle of a stream.',
      expect: verified(OFFLINE),
    }),
    draft('redacted-both', redactBundle(bundle, { request: true, response: true }), {
      about: 'A bundle without request and response.',
      expect: incomplete(OFFLINE, 'request hash', 'response hash'),
    }),
    draft(
      'request-hash/null-left-out',
      built({ request: { ...request, body: withoutNulls } }, { request }),
      {
        about: 'The notary signed the body without its nulls, as of a chat: here they are hashed.',
        expect: invalid(OTHER_REQUEST, OFFLINE),
      },
    ),
    draft('receipt/header-left-out', built({ receipt: { headers: {} } }), {
      about: 'The receipt lacks the headers of the request.',
      expect: invalid(['receipt'], OFFLINE),
    }),
    draft('receipt/dialect-of-a-chat', built({ receipt: { dialect: 'chat', headers: {} } }), {
      about: 'The receipt says that this is a chat.',
      expect: invalid(['receipt'], OFFLINE),
    }),
    draft(
      'response-hash/proof-in-the-response',
      built({}, { response: { ...response, affidavit: {} } }),
      {
        about: 'The response has a member affidavit, which is not hashed.',
        expect: invalid(['response hash'], OFFLINE),
      },
    ),
  ]
}

/** Cases of Responses and Messages: records, answers, streams, bundles. */
export const dialectCases: readonly Draft[] = (['responses', 'messages'] as const).flatMap(
  (name) => [
    ...recordCases(name),
    ...answerCases(name),
    ...streamCases(name),
    ...bundleCases(name),
  ],
)
