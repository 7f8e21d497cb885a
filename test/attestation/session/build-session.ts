import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { buildEvidence, type EvidenceParts } from '../evidence/build-evidence.ts'

export const SESSION_ID = '5e'.repeat(16)

/** What one call asked and got, without the place in its session. */
export type Exchange = { readonly request: JsonObject; readonly response: JsonObject }

const SYSTEM: JsonObject = { role: 'system', content: 'You are an agent.' }
const PIXEL = 'data:image/png;base64,iVBORw0KGgo='

const call = (id: string, name: string, input: string): JsonObject => ({
  id,
  type: 'function',
  function: { name, arguments: input },
})
const answerOf = (message: JsonObject): JsonObject => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1760000000,
  model: 'demo/echo-2025',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', ...message } }],
})
const asking = (...messages: readonly JsonObject[]): JsonObject => ({
  model: 'demo/echo',
  messages,
})

const QUESTION: JsonObject = {
  role: 'user',
  content: [
    { type: 'text', text: 'Is it warm here?' },
    { type: 'image_url', image_url: { url: PIXEL } },
  ],
}
const CALLS = {
  content: 'I look it up.',
  reasoning_content: 'It may be Rome.',
  tool_calls: [call('call_1', 'locate', '{"image":1}'), call('call_2', 'clock', '{}')],
}
const { reasoning_content: _, ...CALLS_SENT_BACK } = CALLS
const RESULTS: readonly JsonObject[] = [
  { role: 'tool', tool_call_id: 'call_2', content: '12:00' },
  { role: 'tool', tool_call_id: 'call_1', content: [{ type: 'text', text: 'Rome' }] },
]
const FIRST: readonly JsonObject[] = [SYSTEM, QUESTION]
const SECOND: readonly JsonObject[] = [
  ...FIRST,
  { role: 'assistant', ...CALLS_SENT_BACK },
  ...RESULTS,
]

/** A run of an agent: two tools, a title by a side call, a second question, a farewell. */
export const EXCHANGES: readonly Exchange[] = [
  { request: asking(...FIRST), response: answerOf(CALLS) },
  { request: asking(...SECOND), response: answerOf({ content: 'It is warm in Rome.' }) },
  {
    request: asking({ role: 'system', content: 'Name this.' }, { role: 'user', content: 'Warm?' }),
    response: answerOf({ content: 'Weather' }),
  },
  {
    request: asking(
      ...SECOND,
      { role: 'assistant', content: 'It is warm in Rome.' },
      { role: 'user', content: 'Thanks' },
    ),
    response: answerOf({ content: null, refusal: 'No more.' }),
  },
]

/** What to make otherwise than an honest caller, gateway and enclave would. */
export type SessionParts = {
  readonly exchanges?: readonly Exchange[]
  readonly id?: string
  /** The place that the call at `at` names instead of its own. */
  readonly place?: (own: JsonObject, at: number) => JsonObject | undefined
  readonly evidence?: (at: number) => EvidenceParts
  /** Without the signed end of the last call. */
  readonly isOpen?: boolean
}

/** The evidence of each call of a session, made one after the other. */
export function buildCalls(parts: SessionParts = {}): readonly EvidenceBundle[] {
  const { exchanges = EXCHANGES, id = SESSION_ID, isOpen = false } = parts
  const { place = (own: JsonObject) => own, evidence = (): EvidenceParts => ({}) } = parts
  const calls: EvidenceBundle[] = []
  for (const [n, { request, response }] of exchanges.entries()) {
    const isLast = !isOpen && n === exchanges.length - 1
    const previous = calls.at(-1)?.record.hash ?? null
    const session = place({ id, n, previous, ...(isLast ? { last: true } : {}) }, n)
    const { record, ...rest } = evidence(n)
    const { bundle } = buildEvidence({
      ...rest,
      record: {
        before: n,
        response,
        ...record,
        request: { ...request, ...(session === undefined ? {} : { affidavit: { session } }) },
      },
    })
    calls.push(bundle)
  }
  return calls
}

/** These calls, as they are read from a file. */
export function sessionOf(calls: readonly unknown[]): readonly JsonObject[] {
  return JSON.parse(JSON.stringify(calls))
}
