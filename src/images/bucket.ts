import { hash } from 'node:crypto'
import { AwsV4Signer } from 'aws4fetch'
import { type Dispatcher, Pool } from 'undici'
import { backOffMs } from '../runtime/back-off.ts'
import { pause } from '../runtime/loop.ts'
import type { BucketConfig } from '../upstream/settings.ts'
import { type ImageObjects, ImageStoreError } from './image-store.ts'

const CONNECT_TIMEOUT_MS = 5_000
const ANSWER_TIMEOUT_MS = 10_000
/** Time from the first try until an answer begins. It includes all tries. */
const REQUEST_TIMEOUT_MS = 30_000
/** Maximum time between two pieces of an object. A longer pause makes the read fail. */
const PAUSE_TIMEOUT_MS = 30_000
/** IMAGE_READS_MAX (routes.ts) readers hold one each, so the rest is free for new images. */
const CONNECTIONS_MAX = 256

/** A request is tried again when the store is busy (429, 5xx) or the network fails. */
const TRIES_MAX = 3
const PAUSES = { minMs: 100, maxMs: 2_000 } as const

/** Maximum bytes that are read of an error's body, and of one page of a listing (1,000 keys). */
const ERROR_BYTES_MAX = 64 * 1024
const LISTING_BYTES_MAX = 4 * 1024 * 1024

/** A test can change these. */
type BucketTimes = {
  readonly answerMs: number
  readonly requestMs: number
  readonly connectionsMax?: number
}

/**
 * Returns the objects under a prefix in an S3-compatible store. Only the methods send requests,
 * which have the bucket in their path and are signed with AWS Signature Version 4. Every method
 * throws ImageStoreError.
 */
export function openBucket(
  { url, region, accessKeyId, secretAccessKey }: BucketConfig,
  times: BucketTimes = { answerMs: ANSWER_TIMEOUT_MS, requestMs: REQUEST_TIMEOUT_MS },
): ImageObjects {
  const { origin, host, pathname } = new URL(url)
  const [, bucket = '', ...folders] = pathname.replace(/\/+$/, '').split('/')
  const prefix = folders.map((folder) => `${folder}/`).join('')
  const pool = new Pool(origin, {
    connections: times.connectionsMax ?? CONNECTIONS_MAX,
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: times.answerMs,
    bodyTimeout: PAUSE_TIMEOUT_MS,
  })

  /** Each try is signed again, because a signature contains the time. */
  async function send({ method, path, object }: Sent, signal: AbortSignal) {
    const body = object?.bytes ?? null
    const headers = object === undefined ? {} : { 'content-type': object.type }
    const signed = await new AwsV4Signer({
      method,
      url: `${origin}/${bucket}${path}`,
      region,
      accessKeyId,
      secretAccessKey,
      service: 's3',
      headers: { ...headers, 'x-amz-content-sha256': hash('sha256', body ?? '', 'hex') },
    }).sign()
    const target = signed.url.pathname + signed.url.search
    const answer = pool.request({
      method,
      path: target,
      headers: Object.fromEntries(signed.headers),
      body,
      signal,
    })
    // undici ignores the signal of a request that waits for a free connection.
    const late = Promise.withResolvers<never>()
    const onLate = () => late.reject(signal.reason)
    signal.addEventListener('abort', onLate, { once: true })
    if (signal.aborted) onLate()
    return Promise.race([answer, late.promise]).finally(() =>
      signal.removeEventListener('abort', onLate),
    )
  }

  /**
   * Resolves when the answer begins. The caller reads the body. Null when the object does not
   * exist.
   */
  async function ask(sent: Sent): Promise<Dispatcher.ResponseData | null> {
    const begin = new AbortController()
    const late = new DOMException('The store did not answer in time', 'TimeoutError')
    const timer = setTimeout(() => begin.abort(late), times.requestMs)
    try {
      for (let tries = 1; ; tries++) {
        const outcome = await send(sent, begin.signal).then(
          async (answer) => (answer.statusCode < 300 ? answer : refusalOf(answer)),
          unreachable,
        )
        if ('statusCode' in outcome) return outcome
        const { code, mayPass, cause } = outcome
        if (code === 'NoSuchKey') return null
        if (tries === TRIES_MAX || begin.signal.aborted || !mayPass)
          throw new ImageStoreError(code, ` ${host}: ${sent.method} failed`, cause)
        await pause(backOffMs(tries, PAUSES, { jitter: 'half' }), begin.signal)
      }
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    async put(key, object) {
      const answer = await ask({ method: 'PUT', path: `/${prefix}${key}`, object })
      await answer?.body.dump()
    },
    async get(key) {
      const answer = await ask({ method: 'GET', path: `/${prefix}${key}` })
      return answer && { length: Number(answer.headers['content-length']), body: answer.body }
    },
    async list() {
      const query = new URLSearchParams({ 'list-type': '2', prefix })
      const answer = await ask({ method: 'GET', path: `?${query}` })
      const xml = answer === null ? '' : await readStart(answer.body, LISTING_BYTES_MAX)
      // The keys of this gateway have only these characters, which XML and URLs contain unchanged.
      const keys = [...xml.matchAll(/<Key>([\w./-]+)<\/Key>/g)].map(([, key = '']) => key)
      return keys.filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length))
    },
    async remove(key) {
      const answer = await ask({ method: 'DELETE', path: `/${prefix}${key}` })
      await answer?.body.dump()
    },
    measure: async () => [],
    close: () => pool.destroy(),
  }
}

type Sent = {
  readonly method: 'GET' | 'PUT' | 'DELETE'
  /** The part of the path after the bucket's name. */
  readonly path: string
  readonly object?: { readonly bytes: Uint8Array; readonly type: string }
}

type Refusal = {
  readonly code: string
  /** True if another try may succeed. */
  readonly mayPass: boolean
  readonly cause?: unknown
}

function unreachable(error: unknown): Refusal {
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown }
  if (name === 'TimeoutError' || /TIMEOUT/i.test(String(code)))
    return { code: 'timeout', mayPass: false, cause: error }
  return { code: typeof code === 'string' ? code : 'unreachable', mayPass: true, cause: error }
}

/** Uses only the error code in the store's XML. */
async function refusalOf({ statusCode, body }: Dispatcher.ResponseData): Promise<Refusal> {
  const xml = await readStart(body, ERROR_BYTES_MAX).catch(() => '')
  const [, code = `status ${statusCode}`] = /<Code>([A-Za-z0-9.]{1,64})<\/Code>/.exec(xml) ?? []
  return { code, mayPass: statusCode === 429 || statusCode >= 500 }
}

/** Reads until the end, or until more than `bytesMax` bytes are read. */
async function readStart(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<string> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of body) {
    parts.push(part)
    length += part.length
    if (length > bytesMax) break
  }
  return Buffer.concat(parts).toString()
}
