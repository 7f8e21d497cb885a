import { type Limits, SECONDS_PER_DAY, SECONDS_PER_MINUTE, type UsedWindows } from '../rate-limits-store.ts'

/** How far one limit is used. */
export type Measure = {
  readonly limit: number
  /** Never below 0, though calls may in the end have used more tokens than they had reserved. */
  readonly remaining: number
  /** Until its window ends. */
  readonly resetSeconds: number
}

/** Where an account stands after a call was admitted or refused: of minute and day the one with less left; null is no limit. */
export type Standing = { readonly requests: Measure | null; readonly tokens: Measure | null }

/** Why a call was refused. */
export type Refusal = {
  readonly standing: Standing
  /** Until what stands in its way is over. */
  readonly retryAfterSeconds: number
  /** It asks for more than a whole window has, so that to try again is no use. */
  readonly isHopeless: boolean
  readonly message: string
}

/** Everything that is limited, and how far it is used at `at` (Unix seconds). */
export type Usage = { readonly limits: Limits; readonly used: UsedWindows; readonly at: number }

/** Where an account stands. */
export function describeStanding(usage: Usage): Standing {
  const all = measureAll(usage)
  return { requests: tightest(all.requests), tokens: tightest(all.tokens) }
}

/** Why a call that estimates so many tokens does not fit. */
export function describeRefusal(usage: Usage, estimate: number): Refusal {
  const { requests, tokens } = measureAll(usage)
  const tooMany = requests.filter(({ remaining }) => remaining < 1)
  // Calls under way may have used more than there was, and then not even one fits that uses none.
  const tooMuch = tokens.filter(({ limit, used }) => used + estimate > limit)
  const inTheWay = [...tooMany, ...tooMuch]
  const retryAfterSeconds = Math.max(1, ...inTheWay.map(({ resetSeconds }) => resetSeconds))
  const impossible = tooMuch.find(({ limit }) => limit < estimate)
  return {
    standing: describeStanding(usage),
    retryAfterSeconds,
    isHopeless: impossible !== undefined,
    message:
      impossible === undefined
        ? `Rate limit reached: ${inTheWay.map((measure) => describe(measure, estimate)).join('; ')}. Try again in ${retryAfterSeconds} s`
        : `The request may use ${estimate} tokens, and the limit is ${impossible.limit} ${impossible.what}: ` +
          'shorten it, or ask for a shorter answer with max_tokens',
  }
}

/** The `x-ratelimit-*` headers of an answer. */
export function standingHeaders({ requests, tokens }: Standing): Readonly<Record<string, string>> {
  return { ...headersOf('requests', requests), ...headersOf('tokens', tokens) }
}

type NamedMeasure = Measure & { readonly what: string; readonly used: number }

function measureAll({ limits, used, at }: Usage): {
  readonly requests: readonly NamedMeasure[]
  readonly tokens: readonly NamedMeasure[]
} {
  const minuteReset = Math.max(1, (used.minute + 1) * SECONDS_PER_MINUTE - at)
  const dayReset = Math.max(1, (used.day + 1) * SECONDS_PER_DAY - at)
  const { requestsPerMinute, requestsPerDay, tokensPerMinute, tokensPerDay } = limits
  return {
    requests: [
      ...measure('requests per minute', requestsPerMinute, used.minuteRequests, minuteReset),
      ...measure('requests per day', requestsPerDay, used.dayRequests, dayReset),
    ],
    tokens: [
      ...measure('tokens per minute', tokensPerMinute, used.minuteTokens, minuteReset),
      ...measure('tokens per day', tokensPerDay, used.dayTokens, dayReset),
    ],
  }
}

function measure(
  what: string,
  limit: number | null,
  used: number,
  resetSeconds: number,
): readonly NamedMeasure[] {
  if (limit === null) return []
  return [{ what, used, limit, remaining: Math.max(0, limit - used), resetSeconds }]
}

function tightest(measures: readonly NamedMeasure[]): Measure | null {
  const [first, second] = measures
  if (first === undefined) return null
  const { limit, remaining, resetSeconds } =
    second !== undefined && second.remaining < first.remaining ? second : first
  return { limit, remaining, resetSeconds }
}

function describe({ what, limit, remaining }: NamedMeasure, estimate: number): string {
  const wanted = what.startsWith('tokens') ? `, the request may use ${estimate}` : ''
  return `${limit} ${what}, ${remaining} left${wanted}`
}

function headersOf(what: 'requests' | 'tokens', given: Measure | null): Readonly<Record<string, string>> {
  if (given === null) return {}
  return {
    [`x-ratelimit-limit-${what}`]: String(given.limit),
    [`x-ratelimit-remaining-${what}`]: String(given.remaining),
    [`x-ratelimit-reset-${what}`]: `${given.resetSeconds}s`,
  }
}
