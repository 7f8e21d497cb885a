import { z } from 'zod'
import { FormatError } from '#attestation/errors.ts'
import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '#attestation/json/value.ts'
import { NODE_DIALECTS, type NodeDialect } from '../protocol/dialects.ts'
import { parseJson, parseRequestJson } from '../protocol/frames.ts'
import type { ChunkBatch } from '../runs/chunk-queue.ts'
import { DISPATCH_CODES, DispatchError } from '../runs/dispatch-error.ts'
import { NODE_LIMITS } from '../runs/limits.ts'
import { readChunk } from '../runs/read-chunk.ts'
import { readEventChunk } from '../runs/read-event.ts'

/** Maximum number of images in one answer, and in one caller's request. */
const IMAGES_MAX = 10

export const OFFERS_TOPIC = 'offers'
/** For messages of the type NodeQuestion. The topic also contains the node's id. */
export const NODE_TOPIC = 'node'

/** This many offers fit in a message of 1 MiB, because a name has at most 256 characters. */
export const OFFERS_PER_MESSAGE = 1_000

/** The two kinds of calls. Each kind has its own index of nodes. */
export const PLACES = ['chat', 'images'] as const
export type PlaceName = (typeof PLACES)[number]

const count = z.int().min(0)

/** Represents all nodes of one gateway for one model. */
const sharedOffer = z.object({
  place: z.enum(PLACES),
  model: z.string().max(256),
  /** Nodes in any state. 0 after the last node has left. */
  connected: count,
  /** Connected nodes that get calls. */
  nodes: count,
  /** True if at least one node accepts large frames. */
  large: z.boolean(),
  /** What at least one node can do (OfferingNode). */
  abilities: z.array(z.string().max(32)).max(32).default([]),
  /** Slots of the nodes that get calls. */
  capacity: count,
  in_use: count,
  /** The speed of the best node that has a free slot. */
  first_token_ms: z.number().nullable(),
  tokens_per_second: z.number().nullable(),
})
export type SharedOffer = z.output<typeof sharedOffer>

export const sharedOffers = z.array(sharedOffer).max(OFFERS_PER_MESSAGE)

export const nodeQuestion = z.discriminatedUnion('kind', [
  /**
   * Sent by the gateway `by`, to which the node connects. A gateway that has an older connection of
   * the node ends this connection if it does not answer.
   */
  z.object({
    kind: z.literal('claim'),
    by: z.string(),
    timeoutMs: z.number().min(0).max(60_000),
  }),
  z.object({ kind: z.literal('disconnect'), reason: z.string().max(123) }),
])
export type NodeQuestion = z.output<typeof nodeQuestion>

/** Header of a channel for one call. A chat call's first message is the request. */
export const peerCall = z.object({
  model: z.string(),
  account_id: z.string().nullable(),
  /** Null for a chat completion. */
  dialect: z.enum(NODE_DIALECTS).nullable().default(null),
  /** W3C trace context that is sent to the node. */
  traceparent: z.string().max(128).nullable(),
})

/** Comes before the images of an answer. */
export const imageHead = z.object({ images: z.int().min(0).max(IMAGES_MAX) })

const peerFault = z.object({
  code: z.enum(DISPATCH_CODES),
  message: z.string(),
  status: z.int().nullable(),
  node_message: z.string().nullable(),
  stated: z
    .object({
      code: z.string().nullable(),
      type: z.string().nullable(),
      param: z.string().nullable(),
      inStream: z.boolean(),
    })
    .nullable()
    .default(null),
  retry_after_seconds: z.number().nullable(),
})

export function encodeFault(error: DispatchError): z.output<typeof peerFault> {
  const { code, message, status, nodeMessage, stated, retryAfterSeconds } = error
  return {
    code,
    message,
    status,
    node_message: nodeMessage,
    stated,
    retry_after_seconds: retryAfterSeconds,
  }
}

/** Returns the error in the message. Returns `node_lost` if the message contains no error. */
export function decodeFault(detail: unknown): DispatchError {
  const { data } = peerFault.safeParse(detail)
  if (data === undefined)
    return new DispatchError('node_lost', 'The gateway that has the node ended the call')
  // If the other gateway stops, or does not know the model, the caller here gets `no_nodes`.
  const code =
    data.code === 'stopping' || data.code === 'unsupported_model' ? 'no_nodes' : data.code
  return new DispatchError(code, data.message, {
    status: data.status,
    nodeMessage: data.node_message,
    stated: data.stated,
    retryAfterSeconds: data.retry_after_seconds,
  })
}

/** Throws FormatError. */
export function readMessage(message: Uint8Array, parse: typeof parseJson = parseJson): Json {
  const text = Buffer.from(message.buffer, message.byteOffset, message.length).toString()
  const value = parse(text)
  if (value === undefined) throw new FormatError('other', 'expected JSON of the other gateway')
  return value
}

/** Throws FormatError. */
export function readSharedRequest(message: Uint8Array): JsonObject {
  const request = readMessage(message, parseRequestJson)
  if (isJsonObject(request)) return request
  throw new FormatError('other', 'expected a request of the other gateway')
}

/** A null dialect means chat completions. Throws FormatError. */
export function readBatch(message: Uint8Array, dialect: NodeDialect | null): ChunkBatch {
  const isChunk = dialect === null ? isChatChunk : isEventObject
  const batch = readMessage(message)
  if (isJsonObject(batch)) {
    const { chunks, bytes } = batch
    if (isCount(bytes) && isJsonArray(chunks) && chunks.every(isChunk)) return { chunks, bytes }
  }
  throw new FormatError('other', 'expected chunks of the other gateway')
}

function isEventObject(chunk: Json): chunk is JsonObject {
  return isJsonObject(chunk) && readEventChunk(chunk) !== null
}

function isChatChunk(chunk: Json): chunk is JsonObject {
  return isJsonObject(chunk) && readChunk(chunk, NODE_LIMITS.chunkDepthMax) !== null
}

export function writeMessage(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value))
}
