import { hash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { AwsV4Signer } from 'aws4fetch'
import { type Dispatcher, Pool } from 'undici'
import { backOffMs } from '../runtime/back-off.ts'
import { pause } from '../runtime/loop.ts'
import type { BucketConfig } from '../upstream/settings.ts'

/** Until a connection stands, and until an answer begins, milliseconds. */
const CONNECT_TIMEOUT_MS = 5_000
const ANSWER_TIMEOUT_MS = 10_000
/** For a request that is not read piece by piece, with all its tries. */
const REQUEST_TIMEOUT_MS = 30_000
/** A store that sends no byte of an object for so long is given up. */
const PAUSE_TIMEOUT_MS = 30_000
const CONNECTIONS_MAX = 64

/** Tries of a request, while the store is busy (429, 5xx) or the network breaks. */
const TRIES_MAX = 3
const PAUSES = { minMs: 100, maxMs: 2_000 } as const

/** Bytes of an error, and of a page of a listing with its 1,000 keys. */
const ERROR_BYTES_MAX = 64 * 1024
const LISTING_BYTES_MAX = 4 * 1024 * 1024

/**
 * Objects of an S3-compatible store, under a prefix. Every method throws BucketError; keys are
 * without the prefix, of letters, digits, `.`, `_`, `-` and `/`.
 */
export type Bucket = {
  put(key: string, object: { readonly bytes: Uint8Array; readonly type: string }): Promise<void>
  /** An object of at most `bytesMax`, whole; null when it does not exist. */
  read(key: string, bytesMax: number): Promise<Buffer | null>
  /**
   * An object of exactly `length` bytes, a piece at a time; null when it does not exist. The stream
   * fails when the store breaks off. Read it or destroy it.
   */
  open(key: string, length: number): Promise<Readable | null>
  /** Removes an object, or none. */
  remove(key: string): Promise<void>
  /**
   * The next names under `folder`, which ends with a slash or is empty, after `after`, in their
   * order: objects, or, `folders`, the folders in it, each with its slash. Empty at the end.
   */
  list(
    folder: string,
    options: { readonly after: string; readonly kind: 'objects' | 'folders' },
  ): Promise<readonly string[]>
  close(): Promise<void>
}

/**
 * A request to the store failed. Its message is for the operator: it names the bucket's host and
 * the store's error code.
 */
export class BucketError extends Error {
  override readonly name = 'BucketError'
  /** The store's own code, as `AccessDenied`, or what stood in the way. */
  readonly code: string

  constructor(code: string, message: string, cause?: unknown) {
    super(message, { cause })
    this.code = code
  }
}

type Sent = {
  readonly method: 'GET' | 'PUT' | 'DELETE'
  readonly key: string
  readonly query?: Readonly<Record<string, string>>
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Uint8Array
}

/** Times, where a test wants others. */
export type BucketTimes = { readonly answerMs: number; readonly requestMs: number }

/**
 * Client of a bucket, addressed by path, with requests signed by AWS Signature Version 4. Nothing
 * is sent before a call.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: the requests of one bucket
export function openBucket(
  { url, region, accessKeyId, secretAccessKey }: BucketConfig,
  times: BucketTimes = { answerMs: ANSWER_TIMEOUT_MS, requestMs: REQUEST_TIMEOUT_MS },
): Bucket {
  const { origin, host, pathname } = new URL(url)
  const [, bucket = '', ...folders] = pathname.replace(/\/+$/, '').split('/')
  const prefix = folders.map((folder) => `${folder}/`).join('')
  const pool = new Pool(origin, {
    connections: CONNECTIONS_MAX,
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: times.answerMs,
    bodyTimeout: PAUSE_TIMEOUT_MS,
  })

  /** Signed for each try: a signature has its time. */
  async function send(request: Sent, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const { method, key, query = {}, headers = {}, body } = request
    const target = new URL(`${origin}/${bucket}${key === '' ? '' : `/${prefix}${key}`}`)
    for (const [name, value] of Object.entries(query)) target.searchParams.set(name, value)
    const signed = await new AwsV4Signer({
      method,
      url: target.href,
      region,
      accessKeyId,
      secretAccessKey,
      service: 's3',
      headers: { ...headers, 'x-amz-content-sha256': hash('sha256', body ?? '', 'hex') },
    }).sign()
    return pool.request({
      method,
      path: signed.url.pathname + signed.url.search,
      headers: Object.fromEntries(signed.headers),
      body: body ?? null,
      signal,
    })
  }

  /** The answer, whose body the caller reads; null for an object that there is not. */
  async function ask(request: Sent, signal: AbortSignal): Promise<Dispatcher.ResponseData | null> {
    for (let tries = 1; ; tries++) {
      const outcome = await send(request, signal).then(
        async (answer) => (answer.statusCode < 300 ? answer : refusalOf(answer)),
        unreachable,
      )
      if ('statusCode' in outcome) return outcome
      if (outcome.code === 'NoSuchKey') return null
      if (tries === TRIES_MAX || signal.aborted || !outcome.mayPass) throw failed(request, outcome)
      await pause(backOffMs(tries, PAUSES, { jitter: 'half' }), signal)
    }
  }

  function failed({ method }: Sent, { code, status, cause }: Refusal): BucketError {
    const answered = status === undefined ? '' : ` with status ${status}`
    return new BucketError(
      code,
      `image store ${host}: ${method} failed${answered} (${code})`,
      cause,
    )
  }

  /** A request whose answer is read whole. */
  async function askWhole(request: Sent, bytesMax: number): Promise<Buffer | null> {
    const signal = AbortSignal.timeout(times.requestMs)
    const answer = await ask(request, signal)
    if (answer === null) return null
    const bytes = await readBytes(answer.body, bytesMax).catch((error: unknown) => {
      throw failed(request, unreachable(error))
    })
    if (bytes === null)
      throw new BucketError('TooLarge', `image store ${host}: expected at most ${bytesMax} bytes`)
    return bytes
  }

  return {
    async put(key, { bytes, type }) {
      const headers = { 'content-type': type }
      await askWhole({ method: 'PUT', key, headers, body: bytes }, ERROR_BYTES_MAX)
    },
    read: (key, bytesMax) => askWhole({ method: 'GET', key }, bytesMax),
    async open(key, length) {
      const request = { method: 'GET', key } as const
      // Bounds the time until the answer begins; then each pause is bounded.
      const begin = new AbortController()
      const late = new DOMException('The store did not answer in time', 'TimeoutError')
      const timer = setTimeout(() => begin.abort(late), times.requestMs)
      const answer = await ask(request, begin.signal).finally(() => clearTimeout(timer))
      if (answer === null) return null
      const stated = Number(answer.headers['content-length'])
      if (stated === length) return answer.body
      await answer.body.dump().catch(() => undefined)
      throw new BucketError(
        'WrongLength',
        `image store ${host}: expected an object of ${length} bytes, got ${stated}`,
      )
    },
    async remove(key) {
      await askWhole({ method: 'DELETE', key }, ERROR_BYTES_MAX)
    },
    async list(folder, { after, kind }) {
      const query = {
        'list-type': '2',
        prefix: prefix + folder,
        ...(after === '' ? {} : { 'start-after': prefix + after }),
        ...(kind === 'folders' ? { delimiter: '/' } : {}),
      }
      const text = await askWhole({ method: 'GET', key: '', query }, LISTING_BYTES_MAX)
      return namesOf(text?.toString() ?? '', { prefix, kind })
    },
    close: () => pool.destroy(),
  }
}

type Refusal = {
  readonly code: string
  /** Absent where no answer came. */
  readonly status?: number
  /** Whether another try may go through. */
  readonly mayPass: boolean
  readonly cause?: unknown
}

function unreachable(error: unknown): Refusal {
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown }
  if (name === 'TimeoutError' || /TIMEOUT/i.test(String(code)))
    return { code: 'timeout', mayPass: false, cause: error }
  return { code: typeof code === 'string' ? code : 'unreachable', mayPass: true, cause: error }
}

/** What the store refuses; of its XML the code alone is kept. */
async function refusalOf({ statusCode, body }: Dispatcher.ResponseData): Promise<Refusal> {
  const bytes = await readBytes(body, ERROR_BYTES_MAX).catch(() => null)
  const [, codeGiven] = /<Code>([A-Za-z0-9.]{1,64})<\/Code>/.exec(bytes?.toString() ?? '') ?? []
  const code = codeGiven ?? `status ${statusCode}`
  return { code, status: statusCode, mayPass: statusCode === 429 || statusCode >= 500 }
}

/** Null when there are more than `bytesMax`. */
async function readBytes(
  body: AsyncIterable<Uint8Array>,
  bytesMax: number,
): Promise<Buffer | null> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of body) {
    length += part.length
    if (length > bytesMax) return null
    parts.push(part)
  }
  return Buffer.concat(parts)
}

/** Names in a listing that are ours: others have characters that XML or an URL would change. */
function namesOf(
  xml: string,
  { prefix, kind }: { readonly prefix: string; readonly kind: 'objects' | 'folders' },
): readonly string[] {
  const pattern =
    kind === 'folders'
      ? /<CommonPrefixes>\s*<Prefix>([\w./-]+)<\/Prefix>/g
      : /<Key>([\w./-]+)<\/Key>/g
  return [...xml.matchAll(pattern)]
    .map(([, name = '']) => name)
    .filter((name) => name.startsWith(prefix))
    .map((name) => name.slice(prefix.length))
}
