import { isCount, isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import { type DialectEvent, PROOF_MEMBER, type StreamReader } from './dialect.ts'
import { readWholeMessage } from './messages/answer.ts'
import { findHiddenInMessages } from './messages/request.ts'
import { MessagesReader } from './messages/stream.ts'
import type { RefusedMember } from './refused-member.ts'
import { readWholeResponse } from './responses/answer.ts'
import { findHiddenInResponses } from './responses/request.ts'
import { ResponsesReader } from './responses/stream.ts'

/** The numbers of tokens for an answer. */
export type DialectUsage = { readonly input: number; readonly output: number }

/** An API whose calls keep their own form when they are hashed and streamed (README.md). */
export type Dialect = {
  /** The name of the dialect in hashed requests. */
  readonly name: string
  /** Headers of a call that are forwarded, and hashed with its body. Lower case. */
  readonly headers: readonly string[]
  /** Finds the first member that hides a part of the prompt. Null if there is no such member. */
  findHidden(request: JsonObject): RefusedMember | null
  /** Returns a provider's answer without its proof member. Throws FormatError `invalid_form`. */
  readAnswer(answer: JsonObject): JsonObject
  /** Creates a reader for one stream. */
  openStream(): StreamReader
  /** The usage that an answer states. Null if it states no usage. */
  usageOf(response: JsonObject): DialectUsage | null
  /** Member of the last event's data that holds the proof. Null if the data hold it directly. */
  readonly proofIn: string | null
}

/** The dialects. The path of a request shows its dialect. */
export const DIALECTS = {
  responses: {
    name: 'responses',
    headers: ['openai-beta'],
    findHidden: findHiddenInResponses,
    readAnswer: readWholeResponse,
    openStream: () => new ResponsesReader(),
    usageOf: (response) => countsOf(response, []),
    proofIn: 'response',
  },
  messages: {
    name: 'messages',
    headers: ['anthropic-version', 'anthropic-beta'],
    findHidden: findHiddenInMessages,
    readAnswer: readWholeMessage,
    openStream: () => new MessagesReader(),
    usageOf: (response) =>
      countsOf(response, ['cache_creation_input_tokens', 'cache_read_input_tokens']),
    proofIn: null,
  },
} as const satisfies Readonly<Record<string, Dialect>>

/** Adds the proof of a stream to its last event. */
export function withProof(
  { proofIn }: Dialect,
  last: DialectEvent,
  proof: JsonObject,
): DialectEvent {
  const { event, data } = last
  if (proofIn === null) return { event, data: { ...data, [PROOF_MEMBER]: proof } }
  const owner = memberOf(data, proofIn)
  const carrier = { ...(isJsonObject(owner) ? owner : {}), [PROOF_MEMBER]: proof }
  return { event, data: { ...data, [proofIn]: carrier } }
}

/** The proof in an event. Undefined if the event has no proof. */
export function proofOfEvent({ proofIn }: Dialect, { data }: DialectEvent): Json | undefined {
  const owner = proofIn === null ? data : memberOf(data, proofIn)
  return isJsonObject(owner) ? memberOf(owner, PROOF_MEMBER) : undefined
}

/** Counts input tokens, with the members in `more`, and output tokens. */
function countsOf(response: JsonObject, more: readonly string[]): DialectUsage | null {
  const usage = memberOf(response, 'usage')
  if (!isJsonObject(usage)) return null
  const { input_tokens: first, output_tokens: output } = usage
  const others = more.map((name) => memberOf(usage, name) ?? 0)
  if (!isCount(first) || !isCount(output) || !others.every(isCount)) return null
  const input = others.reduce<number>((sum, count) => sum + Number(count), first)
  return isCount(input) && isCount(input + output) ? { input, output } : null
}
