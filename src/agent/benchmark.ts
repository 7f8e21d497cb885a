import { isJsonArray, isJsonObject, type JsonObject, memberOf } from '#attestation/json/value.ts'
import { TOKENS_PER_SECOND_MAX } from '../nodes/protocol/registration.ts'
import type { Backend } from './backend.ts'
import { BackendError } from './backend-error.ts'

export type BenchmarkPlan = {
  /**
   * Includes the warm-up. Every part sends at least one request, so a benchmark of a slow backend
   * can take longer.
   */
  readonly durationMs: number
  /** Concurrent requests in the last part. */
  readonly concurrency: number
}

/** Tokens per second. */
export type BenchmarkResult = {
  /** Speed of a single request that runs alone. */
  readonly single: number
  /** Sum over concurrent requests: the capacity of the node. */
  readonly total: number
}

export type BenchmarkProgress = {
  readonly part: 'warming up' | 'one request' | 'many requests'
  /** The completed part of the whole benchmark, from 0 to 1. */
  readonly done: number
}

/** Tokens per second. A slower node is not useful, because people read faster. */
export const TOKENS_PER_SECOND_MIN = 1

/** A minute shows a speed that a model can sustain. The public node client also takes a minute. */
export const BENCHMARK: BenchmarkPlan = { durationMs: 60_000, concurrency: 8 }

/**
 * Warms up, then sends one request after another, then several at the same time. The speed of a
 * request is (tokens - 1) / (time of the last token - time of the first token). Tokens are counted
 * by `usage`, because one chunk may hold several tokens. Rejects with BackendError if the backend
 * fails or sends no usage.
 */
export async function runBenchmark(
  backend: Pick<Backend, 'streamChat'>,
  model: string,
  {
    plan,
    now,
    signal: given,
    onProgress = () => undefined,
  }: {
    readonly plan: BenchmarkPlan
    /** Milliseconds of a clock that never goes back. */
    readonly now: () => number
    readonly signal: AbortSignal
    readonly onProgress?: (progress: BenchmarkProgress) => void
  },
): Promise<BenchmarkResult> {
  const { durationMs, concurrency } = plan
  const ended = new AbortController()
  const signal = AbortSignal.any([given, ended.signal])
  const startedAt = now()
  const report = (part: BenchmarkProgress['part']) => {
    if (ended.signal.aborted) return
    onProgress({ part, done: Math.min(1, (now() - startedAt) / durationMs) })
  }
  const measure = (tokensMax: number, part: BenchmarkProgress['part']) =>
    measureRequest(backend, { model, tokensMax }, { now, signal, onChunk: () => report(part) })

  report('warming up')
  const trial = await measure(WARM_UP_TOKENS, 'warming up')
  const tokensMax = chooseTokens(speedOf([trial]), durationMs)

  const singleUntil = startedAt + durationMs * SINGLE_SHARE
  const single = await repeat(
    () => measure(tokensMax, 'one request'),
    () => now() < singleUntil,
  )
  const until = startedAt + durationMs
  const many = Array.from({ length: concurrency }, () =>
    repeat(
      () => measure(tokensMax, 'many requests'),
      () => now() < until,
    ),
  )
  // After a fault, the other workers must not slow down the next measurement.
  const workers = await Promise.all(many).finally(() => ended.abort(new Error('it has ended')))
  onProgress({ part: 'many requests', done: 1 })
  return {
    single: round(speedOf(single)),
    total: round(workers.reduce((sum, timings) => sum + speedOf(timings), 0)),
  }
}

const WARM_UP_TOKENS = 16
const TOKENS_MIN = 16
const TOKENS_MAX = 512
/** Share of a benchmark's time, at its start, in which requests run one after another. */
const SINGLE_SHARE = 0.4
/** Requests that one worker should complete in a benchmark. */
const REQUESTS_AIM = 4

/** From the first token to the last token. */
type Timing = { readonly tokens: number; readonly ms: number }

/** Chooses the length of answers, so that several answers end in time. */
function chooseTokens(tokensPerSecond: number, durationMs: number): number {
  const aim = Math.floor((tokensPerSecond * durationMs * SINGLE_SHARE) / 1000 / REQUESTS_AIM)
  return Math.min(TOKENS_MAX, Math.max(TOKENS_MIN, aim))
}

async function repeat(
  measure: () => Promise<Timing>,
  goesOn: () => boolean,
): Promise<readonly Timing[]> {
  const timings: Timing[] = []
  do timings.push(await measure())
  while (goesOn())
  return timings
}

async function measureRequest(
  backend: Pick<Backend, 'streamChat'>,
  { model, tokensMax }: { readonly model: string; readonly tokensMax: number },
  {
    now,
    signal,
    onChunk,
  }: { readonly now: () => number; readonly signal: AbortSignal; readonly onChunk: () => void },
): Promise<Timing> {
  const request = {
    model,
    messages: [{ role: 'user', content: PROMPT }],
    max_tokens: tokensMax,
    temperature: 0.7,
  }
  const times: { first: number | null; last: number; tokens: number | null } = {
    first: null,
    last: 0,
    tokens: null,
  }
  const sentAt = now()
  for await (const chunks of backend.streamChat(request, signal)) {
    onChunk()
    for (const { chunk } of chunks) times.tokens = countTokens(chunk) ?? times.tokens
    if (!chunks.some(({ chunk }) => holdsToken(chunk))) continue
    times.last = now()
    times.first ??= times.last
  }
  if (times.tokens === null)
    throw new BackendError('the backend tells no usage, so its speed cannot be measured')
  const { first, last, tokens } = times
  if (first === null) return { tokens: 0, ms: 0 }
  const isSpread = last > first || tokens < 2
  return isSpread
    ? { tokens: Math.max(0, tokens - 1), ms: last - first }
    : { tokens, ms: last - sentAt }
}

/** The prompt asks for an answer that is long enough for every requested length. */
const PROMPT = 'Write 500 words about how the tides of the sea come about.'

function countTokens(chunk: JsonObject): number | null {
  const usage = memberOf(chunk, 'usage')
  const tokens = isJsonObject(usage) ? memberOf(usage, 'completion_tokens') : null
  return typeof tokens === 'number' && tokens >= 0 ? tokens : null
}

/** Reasoning and refusals count, too. */
function holdsToken(chunk: JsonObject): boolean {
  const choices = memberOf(chunk, 'choices')
  if (!isJsonArray(choices)) return false
  return choices.some((choice) => {
    const delta = isJsonObject(choice) ? memberOf(choice, 'delta') : null
    if (!isJsonObject(delta)) return false
    return Object.entries(delta).some(
      ([name, value]) =>
        name !== 'role' &&
        value !== null &&
        value !== '' &&
        !(isJsonArray(value) && value.length === 0),
    )
  })
}

function speedOf(timings: readonly Timing[]): number {
  const tokens = timings.reduce((sum, { tokens: count }) => sum + count, 0)
  const ms = timings.reduce((sum, { ms: time }) => sum + time, 0)
  if (tokens === 0 || ms <= 0)
    throw new BackendError('the backend answered with too few tokens to measure its speed')
  return (tokens / ms) * 1000
}

/**
 * Rounds a speed, and limits it to the gateways' maximum. Only a backend without a real model is
 * faster.
 */
function round(tokensPerSecond: number): number {
  return Math.min(TOKENS_PER_SECOND_MAX, Math.round(tokensPerSecond * 100) / 100)
}
