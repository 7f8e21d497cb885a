import { z } from 'zod'
import {
  DEMANDS_MEMBER,
  NONCE_FORM,
  NOTARY,
  PROVIDER_KEYS_MAX,
  SESSION_ID,
} from '#attestation/demands.ts'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { readLines } from '#attestation/dialects/chat/kept-events.ts'
import { DIALECT_HEADERS, type DialectName } from '#attestation/dialects/dialect-names.ts'
import { EVENT_DIALECTS, type EventDialect } from '#attestation/dialects/dialects.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { MODEL_LENGTH_MAX } from '#enclave/protocol/chat-form.ts'
import type { TokenEstimate } from '../../accounts/limits/limiter.ts'
import type { EventWriter } from '../../api/event-stream.ts'
import {
  ANTHROPIC_FACE,
  type Face,
  OPENAI_FACE,
  RESPONSES_FACE,
  type StreamSoFar,
} from '../../api/faces.ts'
import type { NamedSchema } from '../../api/route.ts'
import { boundedText } from '../../api/schemas.ts'
import { type ChatRequest, providersRequestWith } from '../../chat/chat-request.ts'
import { estimateChatTokens, estimateDialectTokens } from '../../chat/chat-tokens.ts'
import { chatChunk } from '../../chat/completion-replies.ts'
import { replayEvents } from '../../chat/replay.ts'
import { proof, verifiedCompletion } from '../records/record-replies.ts'
import { lastChunkText, responseOf, streamEndText } from '../records/record-text.ts'
import type { StoredRecord } from '../records/records-store.ts'
import { replayAnswer } from './replay-answer.ts'

/** Facts about a call of any dialect, for the gateway. The enclave gets the exact bytes. */
export type AskedCompletion = {
  readonly model: string
  readonly isStream: boolean
  /** True if the caller of a chat asked for the usage chunk. */
  readonly includesUsage: boolean
  readonly size: Required<TokenEstimate>
}

/** A dialect of verified calls over HTTP. */
export type VerifiedDialect = {
  readonly name: DialectName
  readonly face: Face
  readonly paths: readonly string[]
  readonly summary: string
  readonly description: string
  readonly body: NamedSchema<AskedCompletion> & { readonly example: object }
  readonly reply: NamedSchema
  readonly events: NamedSchema
  /** The enclave may hash these headers of a call. */
  readonly headers: readonly string[]
  /** Sends the answer of an earlier call as a stream. */
  replay(writer: EventWriter, record: StoredRecord, asked: AskedCompletion): Promise<void>
  /** Returns what the caller of a stream has received. `firstEvent` is the first event's text. */
  soFar(firstEvent: string, events: number): StreamSoFar | null
}

/** SHA-256 in hex. */
const DIGEST_FORM = /^[0-9a-f]{64}$/

/** Only the form of the demands is checked. The enclave checks whether it can meet them. */
const demands = z
  .strictObject({
    nonce: z.string().regex(NONCE_FORM).optional(),
    credential: z
      .union([z.literal('operator'), z.strictObject({ sha256: z.string().regex(DIGEST_FORM) })])
      .optional(),
    session: z
      .strictObject({
        id: z.string().regex(SESSION_ID.form),
        n: z.int().min(0),
        previous: z.string().regex(DIGEST_FORM).nullable(),
        last: z.literal(true).optional(),
      })
      .optional(),
    headers: z.record(z.string(), z.string()).optional(),
    provider_keys: z.array(z.string().regex(DIGEST_FORM)).min(1).max(PROVIDER_KEYS_MAX).optional(),
    notary: z.string().regex(NOTARY.form).optional(),
  })
  .describe(
    'What the caller demands of the enclave: hashed with the request, not sent to the ' +
      'provider. `nonce`: 16 to 64 bytes in hex; ' +
      "the receipt's `attempt` then says how often this same call was made. `credential`, " +
      'beside a nonce: `operator`, or ' +
      '`{ "sha256": … }` of the credential in `Fine-Tune-Authorization`; the enclave uses that ' +
      'credential, or refuses the call (`credential_mismatch`). ' +
      '`session`: the place of the call in a session, which ties the calls of one run together. ' +
      '`headers`: the hashed headers of a call in another API than chat, in place of those ' +
      'of the HTTP request. ' +
      '`provider_keys`: SHA-256 of the TLS keys (subjectPublicKeyInfo) that the provider may ' +
      'have; nothing is sent to another (`provider_key_mismatch`). ' +
      '`notary`: the enclave that may make the call; every other refuses it (`notary_mismatch`). ' +
      'Name it in the header `Affidavit-Notary` too, which the call is routed by.',
  )
  .nullish()

const CHAT: VerifiedDialect = {
  name: 'chat',
  face: OPENAI_FACE,
  paths: ['/v1/verified/chat/completions'],
  summary: 'Complete a chat at an external provider, with evidence',
  description: 'Streamed, the proof is in the last chunk. ',
  body: {
    name: 'VerifiedChatCompletionRequest',
    schema: providersRequestWith({ [DEMANDS_MEMBER]: demands }).transform(askedChat),
    example: { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] },
  },
  reply: { name: 'VerifiedCompletion', schema: verifiedCompletion },
  events: { name: 'ChatCompletionChunk', schema: chatChunk },
  headers: [],
  replay(writer, record, { includesUsage }) {
    const withProof = (chunk: string) => lastChunkText(chunk, record)
    return replayEvents(writer, responseOf(record), { includesUsage, withProof })
  },
  soFar: () => null,
}

function askedChat({ size, ...asked }: ChatRequest): AskedCompletion {
  return { ...asked, size: estimateChatTokens(size) }
}

/** The gateway reads only these members. The provider checks the others. */
const eventRequest = (dialect: DialectName) =>
  z
    .looseObject({
      model: boundedText({ min: 1, max: MODEL_LENGTH_MAX }),
      stream: z.boolean().nullish(),
      [DEMANDS_MEMBER]: demands,
    })
    .transform(
      (request): AskedCompletion => ({
        model: request.model,
        isStream: request.stream === true,
        includesUsage: true,
        size: estimateDialectTokens(dialect, request as JsonObject),
      }),
    )

const eventAnswer = z.looseObject({ affidavit: z.strictObject(proof).optional() })

function eventDialect(
  dialect: EventDialect,
  parts: Pick<VerifiedDialect, 'face' | 'paths' | 'summary' | 'description' | 'soFar'> & {
    readonly names: Readonly<Record<'request' | 'reply' | 'event', string>>
    readonly example: object
  },
): VerifiedDialect {
  const { names, example, ...others } = parts
  const { name } = dialect
  return {
    name,
    ...others,
    body: { name: names.request, schema: eventRequest(name), example },
    reply: { name: names.reply, schema: eventAnswer },
    events: { name: names.event, schema: z.looseObject({}) },
    headers: [...DIALECT_HEADERS[name], DEMANDS_HEADER],
    async replay(writer, record) {
      const { events, last } = replayAnswer(dialect, JSON.parse(responseOf(record)))
      await writer.write(events)
      writer.end(streamEndText(last, record))
    },
  }
}

const RESPONSES = eventDialect(EVENT_DIALECTS.responses, {
  face: RESPONSES_FACE,
  paths: ['/v1/verified/responses'],
  summary: "OpenAI's Responses at an external provider, with evidence",
  description: 'The proof is the member `affidavit` of the response, streamed in the last event. ',
  names: {
    request: 'VerifiedResponsesRequest',
    reply: 'VerifiedResponse',
    event: 'VerifiedResponseEvent',
  },
  example: { model: 'demo/echo', input: 'Hello' },
  soFar(firstEvent, sequence) {
    const { data } = readLines(firstEvent)
    const event: Json = JSON.parse(data ?? 'null')
    const response = isJsonObject(event) ? (event.response ?? null) : null
    return isJsonObject(response) ? { response, sequence } : null
  },
})

const MESSAGES = eventDialect(EVENT_DIALECTS.messages, {
  face: ANTHROPIC_FACE,
  paths: ['/v1/verified/anthropic/v1/messages', '/v1/verified/anthropic/messages'],
  summary: "Anthropic's Messages at an external provider, with evidence",
  description: 'The proof is the member `affidavit` of the message, streamed in message_stop. ',
  names: {
    request: 'VerifiedMessagesRequest',
    reply: 'VerifiedMessage',
    event: 'VerifiedMessageEvent',
  },
  example: { model: 'demo/echo', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
  soFar: () => null,
})

export const VERIFIED_DIALECTS: readonly VerifiedDialect[] = [CHAT, RESPONSES, MESSAGES]
