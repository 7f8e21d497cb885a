import { asksForUsage } from '#attestation/completion-hash.ts'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import {
  DIALECTS,
  type Dialect,
  EVENT_DIALECTS,
  type EventDialect,
} from '#attestation/dialects/dialects.ts'
import { FormatError } from '#attestation/errors.ts'
import { parseLenientJson } from '#attestation/json/parse-lenient.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { CallFault, refusedFault } from '../call-fault.ts'
import { readChatRequest } from '../protocol/chat-form.ts'
import { readRequestObject } from '../protocol/request-faults.ts'
import type { AnswerStream, StreamParts } from '../stream/answer-stream.ts'
import { ChatStream } from '../stream/chat-stream.ts'
import { EventStream } from '../stream/event-stream.ts'
import { setIncludeUsage } from './edit-body.ts'
import { type AnswerFallback, checkNoError, parseAnswer } from './parse-answer.ts'

/** How the enclave handles calls of one dialect, in addition to the rules in `dialect`. */
export type CallForm = {
  readonly dialect: Dialect
  /** Throws CallFault `invalid_request` for a body without the members that the answer needs. */
  check(body: JsonObject): void
  /** Checks the body of an encrypted call, because the gateway cannot. Returns all faults. */
  readEncrypted: typeof readChatRequest
  /** Adds the members that the provider needs to the body of a streamed call. */
  forwardStream(bytes: Uint8Array, body: JsonObject): Uint8Array
  /** Parses a whole answer (attacker-controlled). Throws CallFault `provider_error`. */
  readAnswer(bytes: Uint8Array, fallback: AnswerFallback): JsonObject
  openStream(body: JsonObject, fallback: AnswerFallback, parts: StreamParts): AnswerStream
}

const CHAT: CallForm = {
  dialect: DIALECTS.chat,
  check: ({ messages }) => {
    if (isJsonArray(messages)) return
    const loc = ['body', 'messages']
    throw new CallFault('invalid_request', 'expected messages to be an array', { loc })
  },
  readEncrypted: readChatRequest,
  forwardStream: (bytes, body) =>
    asksForUsage(body) ? bytes : setIncludeUsage(bytes, body.stream_options ?? null),
  readAnswer: (bytes, fallback) =>
    readWhole(bytes, fallback, (answer) => parseAnswer(answer, fallback)),
  openStream: (body, fallback, parts) => {
    const { n } = body
    const choicesAsked = typeof n === 'number' && n >= 1 ? n : 1
    return new ChatStream({ usageAsked: asksForUsage(body), choicesAsked, fallback }, parts)
  },
}

function eventForm(dialect: EventDialect): CallForm {
  return {
    dialect,
    check: () => undefined,
    readEncrypted: readRequestObject,
    forwardStream: (bytes) => bytes,
    readAnswer: (bytes, fallback) => readWhole(bytes, fallback, dialect.readAnswer),
    openStream: (_body, fallback, parts) =>
      new EventStream(
        dialect.openStream((input) => parts.memory.admitInput(input)),
        parts,
        fallback,
      ),
  }
}

function readWhole(
  bytes: Uint8Array,
  fallback: AnswerFallback,
  read: (answer: JsonObject) => JsonObject,
): JsonObject {
  let answer: Json = null
  try {
    answer = parseLenientJson(bytes)
    if (!isJsonObject(answer)) throw new FormatError('invalid_form', 'expected a JSON object')
    return read(answer)
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
    checkNoError(answer)
    throw refusedFault(error, fallback, Buffer.from(bytes.subarray(0, 1_000)).toString())
  }
}

export const CALL_FORMS: Readonly<Record<DialectName, CallForm>> = {
  chat: CHAT,
  responses: eventForm(EVENT_DIALECTS.responses),
  messages: eventForm(EVENT_DIALECTS.messages),
}
