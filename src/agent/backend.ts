import { Pool } from 'undici'
import { EventTooLargeError } from '#attestation/dialects/chat/event-parser.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'
import { mediaTypeOf, readImageFacts } from '../images/image-facts.ts'
import { base64Format, plainBase64 } from '../images/openai-images.ts'
import { NODE_DIALECTS, type NodeDialect, pathOfDialect } from '../nodes/protocol/dialects.ts'
import { ANSWER_BYTES_MAX, type AskedImageRequest, parseJson } from '../nodes/protocol/frames.ts'
import { writeForm } from '../upstream/endpoint.ts'
import { type AnswerChunk, AnswerParser } from './answer-parser.ts'
import { type BackendAnswer, openBackendAnswer } from './backend-answer.ts'
import { codingOf, compressedFault, packetsOf, readStream, readWholeBody } from './backend-body.ts'
import { BackendError, checkIsAnswer, isOtherThanAsked, refusalError } from './backend-error.ts'
import { readDialectEvents, splitBody } from './dialect-answer.ts'

/** Milliseconds and bytes. */
const BACKEND_LIMITS: BackendLimits = {
  connectTimeoutMs: 5_000,
  /** Enough for a long prompt on a slow machine. */
  headTimeoutMs: 300_000,
  /** Limit between two parts of an answer. */
  idleTimeoutMs: 300_000,
  /** For health checks and the list of models. */
  askTimeoutMs: 5_000,
  keepAliveMs: 30_000,
  /** For error answers and the list of models. */
  bodyBytesMax: 1024 * 1024,
  /** More than a frame can hold. */
  imagesBytesMax: 48 * 1024 * 1024,
  /** For a whole answer in another dialect than chat, and for one event of a stream. */
  answerBytesMax: ANSWER_BYTES_MAX,
  connectionsMax: 256,
}

/** Every SDK and server supports this version of Messages. */
const ANTHROPIC_VERSION = '2023-06-01'

type BackendLimits = Readonly<
  Record<
    | 'connectTimeoutMs'
    | 'headTimeoutMs'
    | 'idleTimeoutMs'
    | 'askTimeoutMs'
    | 'keepAliveMs'
    | 'bodyBytesMax'
    | 'imagesBytesMax'
    | 'answerBytesMax'
    | 'connectionsMax',
    number
  >
>

/** A local inference server with OpenAI's chat completions API. */
export type Backend = {
  /** Does not contain `/v1` and does not end with a slash. */
  readonly url: string
  /** `path`: the health path of the backend's kind (find-backend.ts). */
  health(path: string): Promise<'up' | 'loading' | 'down'>
  /** Ids in the backend's order. Rejects with BackendError. */
  listModels(): Promise<readonly string[]>
  /**
   * Each step returns the chunks of one packet. The backend always gets a request for a stream
   * with usage. Aborting ends the call. Throws BackendError, or the signal's reason.
   */
  streamChat(request: JsonObject, signal: AbortSignal): AsyncIterable<readonly AnswerChunk[]>
  /**
   * Probes each dialect's path with a body that is not JSON, because such a body starts no
   * inference.
   */
  listDialects(): Promise<readonly NodeDialect[]>
  /**
   * The request stays unchanged. Each step returns the events of one packet, or a piece of a whole
   * answer. Throws as streamChat does.
   */
  streamDialect(
    dialect: NodeDialect,
    request: JsonObject,
    signal: AbortSignal,
  ): AsyncIterable<readonly { readonly text: string }[]>
  /** Returns images in base64, unchecked. Throws BackendError, or the signal's reason. */
  makeImages(
    request: AskedImageRequest & { readonly model: string },
    signal: AbortSignal,
  ): Promise<readonly string[]>
  close(): Promise<void>
}

/**
 * Calls go only to the origin of the operator's URL: redirects are not followed, and no request can
 * choose an address. TLS certificates are verified.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: the calls of one backend
export function createBackend(options: {
  /** `http(s)://host:port`, with or without `/v1`. */
  readonly url: string
  /** The bearer token of each request. */
  readonly apiKey: string | null
  /** Replaces headTimeoutMs and idleTimeoutMs. */
  readonly silenceMs?: number | undefined
  readonly limits?: Partial<BackendLimits>
}): Backend {
  const { silenceMs } = options
  const waits =
    silenceMs === undefined ? {} : { headTimeoutMs: silenceMs, idleTimeoutMs: silenceMs }
  const limits = { ...BACKEND_LIMITS, ...waits, ...options.limits }
  const { origin, pathname } = new URL(options.url)
  const prefix = pathname.replace(/\/+$/, '').replace(/\/v1$/, '')
  const headers = options.apiKey === null ? {} : { authorization: `Bearer ${options.apiKey}` }
  const chatHeaders = {
    ...headers,
    'content-type': 'application/json',
    accept: 'text/event-stream',
    'accept-encoding': 'identity',
    // Servers with the dialect Messages read this header.
    'anthropic-version': ANTHROPIC_VERSION,
  }
  const pool = new Pool(origin, {
    connections: limits.connectionsMax,
    connect: { timeout: limits.connectTimeoutMs },
    headersTimeout: limits.headTimeoutMs,
    bodyTimeout: limits.idleTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
  })
  const ask = async (path: string) => {
    const signal = AbortSignal.timeout(limits.askTimeoutMs)
    const { statusCode: status, ...reply } = await pool.request({
      method: 'GET',
      path: prefix + path,
      headers,
      signal,
    })
    return { status, body: await readWholeBody({ status, ...reply }, limits.bodyBytesMax) }
  }

  const post = (path: string, request: JsonObject, signal: AbortSignal) => {
    const body = JSON.stringify(request)
    const call = { method: 'POST', path: prefix + path, headers: chatHeaders, body } as const
    return openBackendAnswer(pool, call, signal)
  }
  const secret = options.apiKey
  const bodyOf = (answer: BackendAnswer, bytesMax: number) => {
    const { status, headers: received } = answer
    return readWholeBody({ status, headers: received, body: packetsOf(answer) }, bytesMax)
  }
  const checkHead = async (answer: BackendAnswer, isStream: boolean) => {
    const { status, headers: received } = answer
    if (status !== 200 || isOtherThanAsked(received, isStream)) {
      const body = await bodyOf(answer, limits.bodyBytesMax)
      throw refusalError({ status, headers: received, body, secret })
    }
    const coding = codingOf(received)
    if (isStream && coding !== null) throw new BackendError(compressedFault(coding))
  }

  async function* streamDialect(
    ...[dialect, request, signal]: Parameters<Backend['streamDialect']>
  ): AsyncGenerator<readonly { readonly text: string }[]> {
    const answer = await post(pathOfDialect(dialect), request, signal)
    const isStream = request.stream === true
    let isWhole = false
    try {
      await checkHead(answer, isStream)
      if (isStream)
        yield* readDialectEvents(dialect, readStream(answer, secret), limits.answerBytesMax)
      else {
        const body = await bodyOf(answer, limits.answerBytesMax)
        checkIsAnswer({ headers: answer.headers, body, secret })
        yield* splitBody(body)
      }
      isWhole = true
    } finally {
      answer.leave(isWhole)
    }
  }

  async function servesDialect(dialect: NodeDialect): Promise<boolean> {
    const signal = AbortSignal.timeout(limits.askTimeoutMs)
    const { statusCode, body } = await pool.request({
      method: 'POST',
      path: prefix + pathOfDialect(dialect),
      headers: { ...headers, 'content-type': 'application/json' },
      body: '{',
      signal,
    })
    await body.dump()
    return REFUSED_BODY.has(statusCode)
  }

  async function* streamChat(
    request: JsonObject,
    signal: AbortSignal,
  ): AsyncGenerator<readonly AnswerChunk[]> {
    const answer = await post('/v1/chat/completions', askForStream(request), signal)
    let isWhole = false
    try {
      await checkHead(answer, true)
      const parser = new AnswerParser()
      const packets = readStream(answer, secret)
      for (let isOver = false; !isOver; ) {
        const packet = parser.isEnded ? null : ((await packets.next()).value ?? null)
        const { chunks, fault } = packet === null ? parser.end() : parser.push(packet)
        if (chunks.length > 0) yield chunks
        if (fault !== null) throw fault
        isOver = packet === null
      }
      isWhole = true
    } finally {
      answer.leave(isWhole)
    }
  }

  async function makeImages(...[request, signal]: Parameters<Backend['makeImages']>) {
    const { path, contentType, body } = writeImageCall(request)
    const reply = await pool.request({
      method: 'POST',
      path: prefix + path,
      headers: {
        ...headers,
        'content-type': contentType,
        accept: 'application/json',
        'accept-encoding': 'identity',
      },
      body: typeof body === 'string' ? body : Buffer.from(body),
      signal,
    })
    const { statusCode: status, headers: received } = reply
    const bytes = await readWholeBody({ status, ...reply }, limits.imagesBytesMax)
    const answer = { status, headers: received, body: bytes, secret }
    if (status !== 200) throw refusalError(answer)
    checkIsAnswer(answer)
    return readImageAnswer(parseJson(bytes.toString('utf8')))
  }

  return {
    url: origin + prefix,
    health: (path) =>
      ask(path).then(
        ({ status }) => HEALTH.get(status) ?? 'down',
        () => 'down',
      ),
    listModels: async () => readModels(await ask('/v1/models').catch(toBackendError)),
    streamChat: (request, signal) => mapFaults(streamChat(request, signal), signal),
    streamDialect: (...call) => mapFaults(streamDialect(...call), call[2]),
    listDialects: async () => {
      const served = NODE_DIALECTS.map(async (dialect) =>
        (await servesDialect(dialect).catch(() => false)) ? [dialect] : [],
      )
      return (await Promise.all(served)).flat()
    },
    makeImages: (request, signal) =>
      makeImages(request, signal).catch((error: unknown) => {
        if (signal.aborted) throw signal.reason
        toBackendError(error)
      }),
    close: () => pool.destroy(),
  }
}

function askForStream(request: JsonObject): JsonObject {
  const options = memberOf(request, 'stream_options')
  return {
    ...request,
    stream: true,
    stream_options: { ...(isJsonObject(options) ? options : {}), include_usage: true },
  }
}

/**
 * An existing path has one of these statuses after a body that is not JSON. llama.cpp answers 500.
 * LM Studio answers 200 if the path does not exist.
 */
const REFUSED_BODY: ReadonlySet<number> = new Set([400, 415, 422, 500])

/** By status. llama.cpp answers 503 while it loads its model. */
const HEALTH: ReadonlyMap<number, 'up' | 'loading'> = new Map([
  [200, 'up'],
  [503, 'loading'],
])

/** Throws every fault as BackendError, because its messages contain no addresses. */
async function* mapFaults<Batch>(
  batches: AsyncIterable<Batch>,
  signal: AbortSignal,
): AsyncGenerator<Batch> {
  try {
    yield* batches
  } catch (error) {
    if (signal.aborted) throw signal.reason
    toBackendError(error)
  }
}

function toBackendError(error: unknown): never {
  if (error instanceof BackendError) throw error
  if (error instanceof EventTooLargeError)
    throw new BackendError(`the backend sent too large an event: ${error.message}`)
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault'
  throw new BackendError(`the backend cannot be reached or broke off (${code})`)
}

function readModels({
  status,
  body,
}: {
  readonly status: number
  readonly body: Buffer
}): readonly string[] {
  if (status !== 200) throw refusalError({ status, headers: {}, body })
  const list = parseJson(body.toString('utf8'))
  const data = isJsonObject(list) ? memberOf(list, 'data') : undefined
  if (!isJsonArray(data)) throw new BackendError('the backend sent no list of models')
  return data.flatMap((entry) => {
    const id = isJsonObject(entry) ? memberOf(entry, 'id') : undefined
    return typeof id === 'string' && id !== '' ? [id] : []
  })
}

/** A request in OpenAI's form. */
type BackendRequest = {
  readonly path: string
  readonly contentType: string
  readonly body: string | Uint8Array
}

/** Returns JSON for new images, or a form for a change of an image. Throws BackendError. */
function writeImageCall({
  model,
  prompt,
  image,
  n,
  size,
}: AskedImageRequest & { readonly model: string }): BackendRequest {
  const sized: Readonly<Record<string, string>> = size === null ? {} : { size }
  const fields = { model, prompt, ...sized, ...base64Format(model) }
  if (image === null)
    return {
      path: '/v1/images/generations',
      contentType: 'application/json',
      body: JSON.stringify({ ...fields, n }),
    }
  const bytes = Buffer.from(image, 'base64')
  const facts = readImageFacts(bytes)
  if (facts === null) throw new BackendError('expected the image to be PNG, JPEG or WebP', 400)
  const file = {
    name: 'image',
    filename: `image.${facts.type}`,
    mediaType: mediaTypeOf(facts.type),
    bytes,
  }
  return { path: '/v1/images/edits', ...writeForm({ ...fields, n: String(n) }, file) }
}

/** Returns images in base64. Throws BackendError if the answer has no images. */
function readImageAnswer(body: Json | undefined): readonly string[] {
  const data = isJsonObject(body) ? memberOf(body, 'data') : undefined
  if (!isJsonArray(data)) throw new BackendError('the backend sent no list of images')
  return data.map((entry) => {
    const image = isJsonObject(entry) ? memberOf(entry, 'b64_json') : undefined
    if (typeof image !== 'string') throw new BackendError('the backend sent no images in base64')
    return plainBase64(image)
  })
}
