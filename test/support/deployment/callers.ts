import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import OpenAI, { APIConnectionError, APIError } from 'openai'
import { type Affidavit, AffidavitError, connect } from '#client/index.ts'
import type { Deployment } from './deployment.ts'

/** A completion that a caller holds with proof; it must never be lost. */
export type ProvenCompletion = {
  readonly hash: string
  readonly txHash: string
  readonly index: number
  readonly publicKey: string
  /** Body of the request, and the answer as it came: JSON, or the events of a stream. */
  readonly request: string
  readonly answer: string
  readonly isStream: boolean
  /** Whether only the caller has request and answer. */
  readonly isEncrypted: boolean
}

/** What calls a caller makes. `keyed`: with an Idempotency-Key, made again until it is answered. */
export const CALL_KINDS = [
  'verified',
  'stream',
  'keyed',
  'encrypted',
  'encrypted stream',
  'plain',
  'plain stream',
] as const
export type CallKind = (typeof CALL_KINDS)[number]

/** How a call ended, as its caller saw it. Times are of `performance.now()`. */
export type CallOutcome = {
  readonly kind: CallKind
  /** When the first attempt of a repeated call began; `beganMs` is for the last attempt. */
  readonly firstBeganMs: number
  readonly beganMs: number
  readonly endedMs: number
  /** Null: no answer came. */
  readonly status: number | null
  /**
   * `ok`, an error code of the service, `cut` for a connection that broke, `timeout` for a call
   * that was given up, `refused: …` for an answer that the client did not accept.
   */
  readonly code: string
  /** Whether the official SDKs would repeat it. */
  readonly isRetryable: boolean
  /** Set for a verified call that was answered. */
  readonly proven: ProvenCompletion | null
  /** The text that was sent; each call has another one. */
  readonly content: string
}

/** Makes calls of one kind to a deployment, by the official openai package. */
export type Caller = {
  call(kind: CallKind, content: string, timeoutMs: number): Promise<CallOutcome>
}

/**
 * Gives a caller at `origin`. Encrypted calls go through the client that checks answers; it
 * connects at its first use, and again after it could not.
 */
export function createCaller(
  service: Pick<Deployment, 'key' | 'nodeModel' | 'readPolicy'>,
  origin: string,
): Caller {
  let connecting: Promise<Affidavit> | null = null
  const connected = async () => {
    connecting ??= service
      .readPolicy()
      .then((expected) => connect({ url: origin, apiKey: service.key, ...expected, proofsMax: 1 }))
    try {
      return await connecting
    } catch (error) {
      connecting = null
      throw error
    }
  }
  const clientFor = async (kind: CallKind): Promise<OpenAI> => {
    const options = { apiKey: service.key, maxRetries: 0 }
    if (isPlain(kind)) return new OpenAI({ ...options, baseURL: `${origin}/v1` })
    if (!isEncrypted(kind)) return new OpenAI({ ...options, baseURL: `${origin}/v1/verified` })
    const { fetch, baseURL } = await connected()
    return new OpenAI({ ...options, baseURL, fetch })
  }

  async function send(kind: CallKind, content: string, signal: AbortSignal): Promise<Answered> {
    const isStream = kind.endsWith('stream')
    const body = {
      model: isPlain(kind) ? service.nodeModel : 'demo/echo',
      stream: isStream,
      messages: [{ role: 'user' as const, content }],
      ...(isPlain(kind) ? {} : { affidavit: { nonce: nonceOf(content), credential: 'operator' } }),
    }
    const client = await clientFor(kind)
    const reply = await client.chat.completions
      .create(body, {
        signal,
        ...(kind === 'keyed'
          ? { headers: { 'idempotency-key': content.replaceAll(' ', '-') } }
          : {}),
      })
      .asResponse()
    const text = await reply.text()
    const answer = isStream ? readEvents(text) : JSON.parse(text)
    if (!text.includes(content)) throw new StreamFault('wrong answer')
    if (isPlain(kind)) return { status: reply.status, proven: null }
    if (typeof answer.tx_hash !== 'string') throw new StreamFault('answer without proof')
    return {
      status: reply.status,
      proven: {
        hash: answer.hash,
        txHash: answer.tx_hash,
        index: answer.receipt.index,
        publicKey: answer.public_key,
        request: JSON.stringify(body),
        answer: text,
        isStream,
        isEncrypted: isEncrypted(kind),
      },
    }
  }

  async function attempt(kind: CallKind, content: string, timeoutMs: number): Promise<CallOutcome> {
    const beganMs = performance.now()
    const abort = new AbortController()
    const timer = setTimeout(() => abort.abort(), timeoutMs)
    const outcome = await send(kind, content, abort.signal)
      .then((answered) => ({ ...answered, code: 'ok', isRetryable: false }))
      .catch((error: unknown) => ({
        ...(abort.signal.aborted
          ? { status: null, code: 'timeout', isRetryable: true }
          : describe(error)),
        proven: null,
      }))
      .finally(() => clearTimeout(timer))
    const endedMs = performance.now()
    return { kind, content, firstBeganMs: beganMs, beganMs, endedMs, ...outcome }
  }

  return {
    async call(kind, content, timeoutMs) {
      const beganMs = performance.now()
      for (;;) {
        const outcome = { ...(await attempt(kind, content, timeoutMs)), firstBeganMs: beganMs }
        const isOver = outcome.endedMs - beganMs > timeoutMs || !outcome.isRetryable
        if (kind !== 'keyed' || isOver) return outcome
        await sleep(300)
      }
    },
  }
}

type Answered = { readonly status: number; readonly proven: ProvenCompletion | null }

/** A stream that ended in an error event or without its end, or a wrong answer. */
class StreamFault extends Error {}

const isPlain = (kind: CallKind) => kind.startsWith('plain')
const isEncrypted = (kind: CallKind) => kind.startsWith('encrypted')

/** The same nonce for the same call, so that the call may be repeated under its Idempotency-Key. */
function nonceOf(content: string): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 32)
}

/** The last chunk of a stream that ended well; it carries the proof. */
function readEvents(text: string): ReturnType<typeof JSON.parse> {
  const events = text.split('\n\n')
  const fault = events.find((event) => event.startsWith('event: error\n'))
  if (fault !== undefined)
    throw new StreamFault(JSON.parse(fault.slice('event: error\ndata: '.length)).error.code)
  const data = events.filter((event) => event.startsWith('data: '))
  if (data.at(-1) !== 'data: [DONE]') throw new StreamFault('stream without its end')
  return JSON.parse(data.at(-2)?.slice('data: '.length) ?? '{}')
}

function describe(error: unknown): Pick<CallOutcome, 'status' | 'code' | 'isRetryable'> {
  if (error instanceof StreamFault) return { status: 200, code: error.message, isRetryable: false }
  const refusal = findRefusal(error)
  if (refusal !== null) return { status: null, code: `refused: ${refusal}`, isRetryable: false }
  if (error instanceof APIError && !(error instanceof APIConnectionError)) {
    const status = error.status ?? 0
    const isRetryable =
      error.headers?.get('x-should-retry') !== 'false' &&
      ([408, 409, 429].includes(status) || status >= 500)
    return { status, code: error.code ?? `status ${status}`, isRetryable }
  }
  return { status: null, code: 'cut', isRetryable: true }
}

/** The client's code for an answer that it refused, or for a gateway that it cannot connect to. */
function findRefusal(error: unknown): string | null {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof AffidavitError) return cause.code === 'unreachable' ? null : cause.code
  return null
}
