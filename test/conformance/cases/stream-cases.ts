import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import { ATTACKS, CHUNKS, chunkOf, HARMLESS } from '../../attestation/kept-streams.ts'
import { VECTORS } from '../manifest.ts'
import {
  type Draft,
  type DraftDemands,
  EXPECTED_OF_RECORD,
  incomplete,
  invalid,
  notAccepted,
  textOf,
  UNREADABLE,
} from './draft.ts'
import { answerOf, storedOf } from './record-cases.ts'

type Kept = {
  readonly name: string
  readonly request: JsonObject
  readonly stream: string
  readonly failed?: readonly string[]
  readonly not_checked?: readonly string[]
}

/** The published streams. Without expectations for their documents, no document is verified. */
const published: readonly Draft[] = (
  JSON.parse(readFileSync(join(VECTORS, 'streams/kept.json'), 'utf8')).kept as readonly Kept[]
).map(({ name, request, stream, failed, not_checked: notChecked = [] }) => ({
  name: `stream/published/${slugOf(name)}`,
  about: `streams/kept.json: ${name}.`,
  kind: 'stream',
  source: textOf(stream, 'txt'),
  demands: { request: { json: request } },
  expect:
    failed === undefined
      ? UNREADABLE
      : failed.length > 0
        ? invalid(failed, ...notChecked, 'attestation')
        : incomplete(...notChecked, 'attestation'),
}))

const head = { id: 'c1', object: 'chat.completion.chunk', created: 7, model: 'demo/echo' }
const USAGE = {
  ...head,
  choices: [],
  usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
}
const REQUEST: JsonObject = {
  model: 'demo/echo',
  messages: [{ role: 'user', content: 'Pay?' }],
  stream: true,
  stream_options: { include_usage: true },
}
const { stream: _, stream_options: __, ...REQUEST_UNSTREAMED } = REQUEST
const { stream_options: ___, ...REQUEST_WITHOUT_USAGE } = REQUEST
const NEVER = ['created_at', 'anchor']

/** The chunks with the proof on the last one, in the form of the enclave of these cases. */
function proven(
  chunks: readonly JsonObject[],
  made: {
    readonly request?: JsonObject
    readonly response?: JsonObject
    readonly streamHash?: string | null
  } = {},
): readonly JsonObject[] {
  const { request = REQUEST, response = assembleCompletion(chunks) } = made
  const streamHash = made.streamHash === undefined ? hashChunks(chunks) : made.streamHash
  const answer = answerOf(storedOf({ record: { request, response, streamHash } }))
  const proof = Object.entries(answer).filter(([name]) => !Object.hasOwn(response, name))
  return chunks.with(-1, { ...chunks.at(-1), ...Object.fromEntries(proof) })
}

function draft(
  name: string,
  chunks: readonly JsonObject[],
  { about, expect }: Pick<Draft, 'about' | 'expect'>,
  request: Json = REQUEST,
  demands: DraftDemands = EXPECTED_OF_RECORD,
): Draft {
  const events = [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]']
  return {
    name: `stream/${name}`,
    about,
    kind: 'stream',
    source: textOf(events.map((data) => `data: ${data}\n\n`).join(''), 'txt'),
    demands: { ...demands, request: { json: request } },
    expect,
  }
}

const GIVEN = [...CHUNKS, USAGE]
const REPLACED = GIVEN.map((chunk, at) => ({ ...chunk, service_tier: at < 2 ? 'best' : 'default' }))
const whole = proven(GIVEN)
const FINISH_FIRST = 'its finish_reason first, where some readers stop'
const USAGE_FIRST = 'a false usage before its own'
/** Changes on the way that do not change the assembled response. */
const RECUT: ReadonlySet<string> = new Set([...HARMLESS, FINISH_FIRST, USAGE_FIRST])

function attack(name: string, chunks: readonly JsonObject[]): readonly JsonObject[] {
  const change = ATTACKS.find(([known]) => known === name)?.[1]
  if (change === undefined) throw new Error(`unknown attack ${name}`)
  return change(chunks)
}

/** A repetition for an Idempotency-Key: its chunks differ from the chunks of the first answer. */
function repeated(
  name: string,
  chunks: readonly JsonObject[],
  outcome: Pick<Draft, 'about' | 'expect'>,
): Draft {
  const demands = { ...EXPECTED_OF_RECORD, idempotent: true } as const
  return draft(name, proven(chunks, { streamHash: 'ab'.repeat(32) }), outcome, REQUEST, demands)
}
const WRONG = invalid(['response hash', 'stream hash', 'hash', 'signature', 'receipt'], ...NEVER)

const streams: readonly Draft[] = [
  draft('whole', whole, {
    about: 'A kept stream with its usage and its proof.',
    expect: incomplete(...NEVER),
  }),
  draft(
    'without-usage',
    proven(CHUNKS, { request: REQUEST_WITHOUT_USAGE, response: assembleCompletion(GIVEN) }),
    {
      about: 'The signed response has the usage, which was not asked for and is in no chunk.',
      expect: incomplete(...NEVER, 'response hash'),
    },
    REQUEST_WITHOUT_USAGE,
  ),
  draft('stream-hash/cut-otherwise', proven(GIVEN, { streamHash: 'ab'.repeat(32) }), {
    about:
      'Other chunks than those given out, which assemble to the same: of a call without an Idempotency-Key.',
    expect: invalid(['stream hash'], ...NEVER),
  }),
  repeated('repeated', GIVEN, {
    about:
      'Other chunks than those first given out, which assemble to the same: as when an answer is repeated.',
    expect: incomplete(...NEVER, 'stream hash'),
  }),
  repeated('stream-hash/repeated-with-a-replaced-member', REPLACED, {
    about:
      'A repetition that assembles to the same: but a member of the first is replaced later, so that what was shown is not what was signed.',
    expect: invalid(['stream hash'], ...NEVER),
  }),
  repeated('stream-hash/repeated-with-its-finish-reason-first', attack(FINISH_FIRST, GIVEN), {
    about:
      'A repetition that assembles to the same: but its choice goes on after its finish_reason.',
    expect: invalid(['stream hash'], ...NEVER),
  }),
  repeated('stream-hash/repeated-with-two-usages', attack(USAGE_FIRST, GIVEN), {
    about: 'A repetition that assembles to the same: but it has another usage before its own.',
    expect: invalid(['stream hash'], ...NEVER),
  }),
  ...[...RECUT].map((name) =>
    draft(`stream-hash/${slugOf(name)}`, attack(name, whole), {
      about: `Changed in between: ${name}. All else of the answer is as it was signed.`,
      expect: invalid(['stream hash'], ...NEVER),
    }),
  ),
  ...[
    ['another-object', GIVEN.map((chunk) => ({ ...chunk, object: 'chat.completion' }))] as const,
    ['a-later-id', GIVEN.with(2, { ...GIVEN[2], id: 'c2' })] as const,
    ['a-later-model', GIVEN.with(2, { ...GIVEN[2], model: 'better' })] as const,
  ].map(([name, chunks]) =>
    draft(`ambiguous/${name}`, proven(chunks, { response: assembleCompletion(GIVEN) }), {
      about: 'The chunks have the stream hash of the receipt, and readers may differ about them.',
      expect: invalid(['response hash', 'hash', 'signature', 'receipt'], ...NEVER),
    }),
  ),
  draft('proof-members-of-an-early-chunk', whole.with(1, { ...whole[1], log: ' Or all.' }), {
    about: 'A proof member of a chunk before the last: no hash covers it.',
    expect: invalid(['response hash', 'hash', 'signature', 'receipt'], ...NEVER),
  }),
  draft(
    'stream-hash/not-streamed',
    proven(GIVEN, { request: REQUEST_UNSTREAMED, streamHash: null }),
    {
      about: 'A stream of an answer that was not streamed.',
      expect: invalid(['stream hash'], ...NEVER),
    },
    REQUEST_UNSTREAMED,
  ),
  draft('usage-left-out', proven(CHUNKS, { response: assembleCompletion(GIVEN) }), {
    about: 'The usage was asked for and signed, and is in no chunk.',
    expect: invalid(['response hash', 'hash', 'signature', 'receipt'], ...NEVER),
  }),
  draft(
    'attestation/of-other-code',
    whole,
    {
      about: 'A genuine document of other code than is expected.',
      expect: notAccepted(['attestation'], ...NEVER),
    },
    REQUEST,
    { ...EXPECTED_OF_RECORD, pcrs: { 0: 'ab'.repeat(48) } },
  ),
  ...ATTACKS.filter(([name]) => !RECUT.has(name)).map(([name, change]) =>
    draft(`attacked/${slugOf(name)}`, change(whole), {
      about: `Changed in between: ${name}.`,
      expect: WRONG,
    }),
  ),
  draft('attacked/text-after-the-proof', [...whole, chunkOf({ content: ' Or all.' })], {
    about: 'A chunk after the one with the proof.',
    expect: UNREADABLE,
  }),
]

/** Cases whose source is the event stream of an answer. */
export const streamCases: readonly Draft[] = [...streams, ...published]

function slugOf(name: string): string {
  return name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
}
