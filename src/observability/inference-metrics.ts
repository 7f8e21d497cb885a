import { Counter, Histogram, type Registry } from 'prom-client'
import type { CallReport, InferenceFacts } from './call-scope.ts'
import { type CallEnd, DURATION_BUCKETS, METRICS_PREFIX } from './metric-forms.ts'
import { familyOf } from './model-family.ts'

/** All other names share the label `other`. */
export const LABELS_MAX = 32

/** A name of another form counts as `other`. */
const PROVIDER_NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/

/** A report of more tokens is wrong, and counts as this limit. */
const TOKENS_MAX = 100_000_000

/** The returned function must be called for each ended call. */
export function countInferences(registry: Registry): (report: CallReport, end: CallEnd) => void {
  const registers = [registry]
  const inferences = new Counter({
    name: `${METRICS_PREFIX}inferences_total`,
    help: 'Calls for a model or a search that are over, by their end as in calls_total',
    labelNames: ['operation', 'provider', 'model_family', 'end'] as const,
    registers,
  })
  const tokens = new Counter({
    name: `${METRICS_PREFIX}tokens_total`,
    help: 'Tokens as providers and nodes state them, or as they are estimated of nodes that do not; direction: input, output',
    labelNames: ['operation', 'provider', 'model_family', 'direction'] as const,
    registers,
  })
  const providerSeconds = new Histogram({
    name: `${METRICS_PREFIX}provider_duration_seconds`,
    help: "Time from an enclave's request to its provider to the end of the answer, as the signed receipt says",
    labelNames: ['provider', 'model_family'] as const,
    buckets: DURATION_BUCKETS,
    registers,
  })
  const errors = new Counter({
    name: `${METRICS_PREFIX}call_errors_total`,
    help: "Errors that callers received, by the API's error codes; faults of a request's form (422) are without a code",
    labelNames: ['route', 'provider', 'code'] as const,
    registers,
  })
  const refusals = new Counter({
    name: `${METRICS_PREFIX}limit_refusals_total`,
    help: "Calls that were refused by an account's limits; limit: requests, tokens",
    labelNames: ['operation', 'limit'] as const,
    registers,
  })
  const refusedAnswers = new Counter({
    name: `${METRICS_PREFIX}provider_streams_refused_total`,
    help: "Answers of providers, streamed or whole, that an enclave refused because readers would understand them differently; reason: the check's code, as changed_text or invalid_form (32 at most), or other",
    labelNames: ['provider', 'reason'] as const,
    registers,
  })
  const providerOf = boundLabels()
  const reasonOf = boundLabels()

  return ({ route, error, inference }, end) => {
    const { operation, limit } = inference
    const provider = providerOf(inference.provider)
    const model_family = familyOf(inference.model ?? inference.responseModel)
    if (error !== null) errors.inc({ route: route ?? 'none', provider, code: error.code })
    if (inference.refusedReason !== undefined)
      refusedAnswers.inc({ provider, reason: reasonOf(inference.refusedReason) })
    if (operation === undefined) return
    if (limit !== undefined) refusals.inc({ operation, limit })
    inferences.inc({ operation, provider, model_family, end })
    for (const [direction, count] of statedTokens(inference))
      tokens.inc({ operation, provider, model_family, direction }, count)
    if (inference.enclave !== undefined) {
      const { startedAtMs, finishedAtMs } = inference.enclave
      const seconds = Math.max(0, finishedAtMs - startedAtMs) / 1000
      providerSeconds.observe({ provider, model_family }, seconds)
    }
  }
}

function statedTokens({ inputTokens, outputTokens }: InferenceFacts) {
  const stated = [
    ['input', inputTokens],
    ['output', outputTokens],
  ] as const
  return stated.flatMap(([direction, count]) =>
    count === undefined || !(count > 0) ? [] : [[direction, Math.min(count, TOKENS_MAX)] as const],
  )
}

/**
 * Returns a function that keeps the first LABELS_MAX names as labels. The names come from
 * the enclaves, such as those in their measured tables, and from our own code.
 */
export function boundLabels(): (name: string | undefined) => string {
  const known = new Set<string>()
  return (name) => {
    if (name === undefined || name === '') return 'none'
    if (!PROVIDER_NAME.test(name)) return 'other'
    if (!known.has(name) && known.size >= LABELS_MAX) return 'other'
    known.add(name)
    return name
  }
}
