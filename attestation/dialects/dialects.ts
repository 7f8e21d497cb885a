import { stripProofMembers, stripUnsetMembers } from '../completion-hash.ts'
import { type Demands, demandsOf } from '../demands.ts'
import {
  hasExactMembers,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../json/value.ts'
import {
  type CallHeaders,
  type CallRequest,
  demandsOfCall,
  readCallRequest,
} from './call-request.ts'
import { type DialectEvent, PROOF_MEMBER, type StreamReader, withoutProof } from './dialect.ts'
import { type DialectName, dialectNamed } from './dialect-names.ts'
import { eventsOfMessage, MessagesReader, readWholeMessage } from './messages/read-stream.ts'
import { findHiddenInMessages } from './messages/request.ts'
import type { RefusedMember } from './refused-member.ts'
import { eventsOfResponse, ResponsesReader, readWholeResponse } from './responses/read-stream.ts'
import { findHiddenInResponses } from './responses/request.ts'
import type { OnToolInput } from './tool-input.ts'
import { type TokenUsage, usageOf } from './usage.ts'

/**
 * An API. Its calls are hashed and streamed in its own form (README.md). A request is a JSON object
 * as records contain it: the body of a chat call, or `dialect`, `headers` and `body`.
 */
export type Dialect = {
  readonly name: DialectName
  /** Makes the request of a record from the body of a call and its hashed headers. */
  requestOf(body: JsonObject, headers: CallHeaders): JsonObject
  /** Throws FormatError for another form. */
  readRequest(request: JsonObject): CallRequest
  /** Throws FormatError. */
  demandsOf(request: JsonObject): Demands
  /** The request as it is hashed. Returns `request` itself if it already has this form. */
  hashedRequest(request: JsonObject): JsonObject
  /** The first member that hides a part of the prompt. Null without such a member. */
  findHidden(body: JsonObject): RefusedMember | null
  /** The answer as it is hashed: without its proof. */
  hashedResponse(response: JsonObject): JsonObject
  /** The object that has the members of the proof: the answer itself, or a member of the answer. */
  proofOf(answer: JsonObject): JsonObject
  /**
   * Adds a proof to a whole answer. `answer`: canonical JSON text. `members`: JSON text, without
   * braces, of the members of the proof.
   */
  addProof(answer: string, members: string): string
  /**
   * Returns the text of a stream's last event, from its canonical `data` and the proof's `members`.
   */
  endStream(data: string, members: string): string
  usageOf(response: JsonObject): TokenUsage | null
}

/** A dialect whose streams consist of named events. The last event holds the proof. */
export type EventDialect = Dialect & {
  /** Leaves out the proof member. Throws FormatError `invalid_form`. */
  readAnswer(answer: JsonObject): JsonObject
  /** The shortest stream of a whole answer. A reader writes out all its events. */
  eventsOf(answer: JsonObject): readonly JsonObject[]
  /** `mayHold`: false for a stream that an enclave gave out, whose events are complete. */
  openStream(onInput?: OnToolInput, mayHold?: boolean): StreamReader
  /**
   * The member that holds the proof in the last event's data. Null if the data hold it directly.
   */
  readonly proofIn: string | null
}

const CHAT: Dialect = {
  name: 'chat',
  requestOf: (body) => body,
  readRequest: (body) => ({ headers: {}, body }),
  demandsOf: (body) => demandsOf(body) ?? {},
  hashedRequest: stripUnsetMembers,
  findHidden: () => null,
  hashedResponse: stripProofMembers,
  proofOf: (answer) => answer,
  addProof: addMembers,
  endStream: (data, members) => `data: ${addMembers(data, members)}\n\ndata: [DONE]\n\n`,
  usageOf: (response) => usageOf('chat', response),
}

type EventPart = 'findHidden' | 'readAnswer' | 'eventsOf' | 'openStream' | 'proofIn' | 'endStream'

function eventDialect<Name extends DialectName>(
  name: Name,
  parts: Pick<EventDialect, EventPart>,
): EventDialect {
  return {
    name,
    requestOf: (body, headers) => ({ dialect: name, headers, body }),
    readRequest: (request) => readCallRequest(name, request),
    demandsOf: (request) => demandsOfCall(readCallRequest(name, request)),
    hashedRequest: (request) => request,
    hashedResponse: withoutProof,
    proofOf: (answer) => {
      const proof = memberOf(answer, PROOF_MEMBER)
      return isJsonObject(proof) ? proof : {}
    },
    addProof: addProofMember,
    usageOf: (response) => usageOf(name, response),
    ...parts,
  }
}

export const EVENT_DIALECTS = {
  responses: eventDialect('responses', {
    findHidden: findHiddenInResponses,
    readAnswer: readWholeResponse,
    eventsOf: eventsOfResponse,
    openStream: (_, mayHold) => new ResponsesReader(mayHold),
    proofIn: 'response',
    // The last event has only these members, in the order of canonical JSON.
    endStream: (data, members) => {
      const [, response = '', place = '', type] = LAST_RESPONSE.exec(data) ?? []
      return `event: ${type}\ndata: {"response":${addProofMember(response, members)}${place}}\n\n`
    },
  }),
  messages: eventDialect('messages', {
    findHidden: findHiddenInMessages,
    readAnswer: readWholeMessage,
    eventsOf: eventsOfMessage,
    openStream: (onInput, mayHold) => new MessagesReader(onInput, mayHold),
    proofIn: null,
    endStream: (data, members) => `event: message_stop\ndata: ${addProofMember(data, members)}\n\n`,
  }),
} as const

export const DIALECTS: Readonly<Record<DialectName, Dialect>> = { chat: CHAT, ...EVENT_DIALECTS }

const LAST_RESPONSE = /^\{"response":([\s\S]*)(,"sequence_number":\d+,"type":"([a-z._]+)")\}$/

function addProofMember(object: string, members: string): string {
  return addMembers(object, `"${PROOF_MEMBER}":{${members}}`)
}

function addMembers(object: string, members: string): string {
  return object === '{}' ? `{${members}}` : `${object.slice(0, -1)},${members}}`
}

/** Null for chat, whose streams have no named events. */
export function eventDialectOf(name: DialectName): EventDialect | null {
  return name === 'chat' ? null : EVENT_DIALECTS[name]
}

/** The dialect of a request as records contain it. A request of another form is a chat request. */
export function dialectOfRequest(request: Json): DialectName {
  const name = isJsonObject(request) && hasExactMembers(request, CALL_MEMBERS) && request.dialect
  return dialectNamed(name)
}

const CALL_MEMBERS = ['dialect', 'headers', 'body'] as const

/** Undefined without a proof. Attacker-controlled. */
export function proofOfEvent(
  { proofIn }: Pick<EventDialect, 'proofIn'>,
  { data }: DialectEvent,
): Json | undefined {
  const owner = proofIn === null ? data : memberOf(data, proofIn)
  return isJsonObject(owner) ? memberOf(owner, PROOF_MEMBER) : undefined
}
