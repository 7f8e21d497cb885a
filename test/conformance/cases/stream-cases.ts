import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { assembleCompletion } from '../../../attestation/assemble-completion.ts'
import { hashChunks } from '../../../attestation/completion-hash.ts'
import type { Json, JsonObject } from '../../../attestation/json/value.ts'
import { ATTACKS, CHUNKS, chunkOf } from '../../attestation/kept-streams.ts'
import { VECTORS } from '../manifest.ts'
import {
  consistent,
  type Draft,
  type DraftDemands,
  EXPECTED_OF_RECORD,
  invalid,
  textOf,
  UNREADABLE,
  verified,
} from './draft.ts'
import { answerOf, storedOf } from './record-cases.ts'

type Kept = {
  readonly name: string
  readonly request: JsonObject
  readonly stream: string
  readonly failed?: readonly string[]
  readonly not_checked?: readonly string[]
}

/** The published streams. Nothing is expected of their documents, so none is verified. */
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
        : consistent(...notChecked, 'attestation'),
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

/** The chunks with the proof on the last one, as the enclave of these cases gives them out. */
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
const WRONG = invalid(['response hash', 'stream hash', 'hash', 'signature', 'receipt'], ...NEVER)

const streams: readonly Draft[] = [
  draft('whole', whole, {
    about: 'A kept stream with its usage and its proof.',
    expect: verified(...NEVER),
  }),
  draft(
    'without-usage',
    proven(CHUNKS, { request: REQUEST_WITHOUT_USAGE, response: assembleCompletion(GIVEN) }),
    {
      about: 'The signed response has the usage, which was not asked for and is in no chunk.',
      expect: verified(...NEVER, 'response hash'),
    },
    REQUEST_WITHOUT_USAGE,
  ),
  draft('repeated', proven(GIVEN, { streamHash: 'ab'.repeat(32) }), {
    about:
      'Other chunks than those first given out, which assemble to the same: as when an answer is repeated.',
    expect: verified(...NEVER, 'stream hash'),
  }),
  draft('stream-hash/replaced-member', proven(REPLACED, { streamHash: 'ab'.repeat(32) }), {
    about:
      'Other chunks than those first given out, which assemble to the same: but a member of the first is replaced later, so that what was shown is not what was signed.',
    expect: invalid(['stream hash'], ...NEVER),
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
      expect: invalid(['attestation'], ...NEVER),
    },
    REQUEST,
    { ...EXPECTED_OF_RECORD, pcrs: { 0: 'ab'.repeat(48) } },
  ),
  ...ATTACKS.filter(([name]) => !/null more/.test(name)).map(([name, change]) =>
    draft(`attacked/${slugOf(name)}`, change(whole), {
      about: `Somebody in between: ${name}.`,
      expect: WRONG,
    }),
  ),
  draft('attacked/text-after-the-proof', [...whole, chunkOf({ content: ' Or all.' })], {
    about: 'A chunk after the one with the proof.',
    expect: UNREADABLE,
  }),
]

/** Cases whose source is the event stream of an answer as it came. */
export const streamCases: readonly Draft[] = [...streams, ...published]

function slugOf(name: string): string {
  return name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
}
