import { encodeUtf8 } from '#attestation/bytes.ts'
import { readLines } from '#attestation/dialects/chat/kept-events.ts'
import { DIALECTS, type Dialect, EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { agentStatusOf, anthropicError, openAiError } from '#attestation/dialects/error-forms.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberAt, memberOf } from '#attestation/json/value.ts'
import {
  type AnswerStreamReader,
  createChunkReader,
  createNamedEventReader,
} from './answer-readers.ts'

/** An error that the calling program receives, from this library, its proxy or an enclave. */
export type CallerFault = {
  readonly status: number
  readonly type: string
  readonly code: string
  readonly message: string
  /** Null or absent: no single member caused the error. */
  readonly param?: string | null
}

export type CallDialect = {
  readonly dialect: Dialect
  /** Paths below the base URL. The query of a call is dropped. */
  readonly paths: readonly string[]
  /** Paths of token counts, below the base URL. A count has no proof. */
  readonly countPaths: readonly string[]
  /** True if the demands of an unencrypted call are in the body. False: they are in a header. */
  readonly hasDemandsInBody: boolean
  openReader(): AnswerStreamReader
  /** Returns the status that the dialect's clients expect for an error of the interface. */
  statusOf(fault: Pick<CallerFault, 'status' | 'code'>): number
  isErrorBody(body: JsonObject): boolean
  errorBody(fault: CallerFault): JsonObject
  /** Returns the text that ends a stream with an error. `given`: what the caller received. */
  errorEvents(fault: CallerFault, given: GivenEvents): string
  /**
   * The status of a refused answer. It must not cause clients to repeat the call: each repeat would
   * give the gateway one more answer to choose from.
   */
  readonly refusedStatus: number
}

type GivenEvents = {
  /** The first event. Empty if none was received. */
  readonly first: string
  readonly count: number
}

const CHAT: CallDialect = {
  dialect: DIALECTS.chat,
  paths: ['/chat/completions'],
  countPaths: [],
  hasDemandsInBody: true,
  openReader: createChunkReader,
  statusOf: ({ status }) => status,
  isErrorBody: () => true,
  errorBody: openAiError,
  errorEvents: (fault) => `data: ${JSON.stringify(openAiError(fault))}\n\n`,
  refusedStatus: 502,
}

/** Agents repeat a call several times after a 502, and never after a 400. */
const AGENT_REFUSED_STATUS = 400

const RESPONSES: CallDialect = {
  dialect: EVENT_DIALECTS.responses,
  paths: ['/responses'],
  countPaths: [],
  hasDemandsInBody: false,
  openReader: () => createNamedEventReader(EVENT_DIALECTS.responses),
  statusOf: agentStatusOf,
  isErrorBody: () => true,
  errorBody: openAiError,
  // Codex reads the status of the response, and the SDKs read the member `error`.
  errorEvents(fault, { first, count }) {
    const { code, message } = fault
    const response = {
      ...responseIn(first),
      status: 'failed',
      error: { code, message },
    }
    const data = {
      type: 'response.failed',
      sequence_number: count,
      response,
      ...openAiError(fault),
    }
    return `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`
  },
  refusedStatus: AGENT_REFUSED_STATUS,
}

const MESSAGES_PATHS = ['/anthropic/v1/messages', '/anthropic/messages']

const MESSAGES: CallDialect = {
  dialect: EVENT_DIALECTS.messages,
  paths: MESSAGES_PATHS,
  countPaths: MESSAGES_PATHS.map((path) => `${path}/count_tokens`),
  hasDemandsInBody: false,
  openReader: () => createNamedEventReader(EVENT_DIALECTS.messages),
  statusOf: agentStatusOf,
  isErrorBody: (body) => memberOf(body, 'type') === 'error',
  errorBody: anthropicError,
  errorEvents: (fault) => `event: error\ndata: ${JSON.stringify(anthropicError(fault))}\n\n`,
  refusedStatus: AGENT_REFUSED_STATUS,
}

export const CALL_DIALECTS: readonly [CallDialect, ...CallDialect[]] = [CHAT, RESPONSES, MESSAGES]

function responseIn(first: string): JsonObject {
  const { data } = readLines(first)
  const response = memberAt(parseExactJson(encodeUtf8(data ?? '{}')), 'response')
  return isJsonObject(response) ? response : {}
}
