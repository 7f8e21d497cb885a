import { expect, it } from 'vitest'
import type { CallReport, InferenceFacts } from '#src/observability/call-scope.ts'
import { LABELS_MAX } from '#src/observability/inference-metrics.ts'
import { createMeter } from '#src/observability/metrics.ts'
import { MODEL_FAMILIES } from '#src/observability/model-family.ts'
import { readMetrics, type Sample } from '../../support/read-metrics.ts'

const reportOf = (inference: InferenceFacts, report: Partial<CallReport> = {}): CallReport => ({
  method: 'POST',
  route: '/v1/chat',
  status: 200,
  error: null,
  isWhole: true,
  requestId: 'r',
  startedAtMs: 0,
  durationMs: 1,
  headMs: null,
  firstEventMs: null,
  phases: [],
  inference,
  ...report,
})

/** Samples of a metric after these calls. */
async function countCalls(
  reports: readonly CallReport[],
): Promise<(name: string) => readonly Sample[]> {
  const meter = createMeter()
  for (const report of reports) meter.calls.begin({ startedAtMs: 0, traceparent: null }).end(report)
  const samples = readMetrics(await meter.registry.metrics())
  return (name) => samples.filter((sample) => sample.name === `affidavit_${name}`)
}

it('an inference is counted with its provider, family, tokens and time', async () => {
  const labels = { operation: 'chat', provider: 'openai', model_family: 'gpt' }
  const facts: InferenceFacts = {
    operation: 'chat',
    provider: 'openai',
    model: 'gpt-5',
    inputTokens: 12,
    outputTokens: 30,
    enclave: { startedAtMs: 1_000, finishedAtMs: 1_750 },
  }
  const of = await countCalls([reportOf(facts), reportOf(facts)])
  expect(of('inferences_total')).toMatchObject([{ labels: { ...labels, end: 'whole' }, value: 2 }])
  expect(of('tokens_total')).toMatchObject([
    { labels: { ...labels, direction: 'input' }, value: 24 },
    { labels: { ...labels, direction: 'output' }, value: 60 },
  ])
  expect(of('provider_duration_seconds_sum')).toMatchObject([{ value: 1.5 }])
})

it('an inference that was refused has its error, and the limit that refused it', async () => {
  const error = { code: 'rate_limit_exceeded', status: 429 }
  const facts = { operation: 'embeddings', provider: 'upstream', limit: 'tokens' } as const
  const of = await countCalls([reportOf(facts, { status: 429, error })])
  expect(of('call_errors_total')).toMatchObject([
    { labels: { route: '/v1/chat', provider: 'upstream', code: error.code }, value: 1 },
  ])
  expect(of('limit_refusals_total')).toMatchObject([
    { labels: { operation: 'embeddings', limit: 'tokens' }, value: 1 },
  ])
})

it('an answer that an enclave refused is counted by its reason, with a bounded label', async () => {
  const facts = (refusedReason: string) => reportOf({ provider: 'openai', refusedReason })
  const of = await countCalls(['changed_text', 'No code!'].map(facts))
  expect(of('provider_streams_refused_total')).toMatchObject([
    { labels: { provider: 'openai', reason: 'changed_text' }, value: 1 },
    { labels: { provider: 'openai', reason: 'other' }, value: 1 },
  ])
})

it.each([Number.NaN, -5, 0, Number.POSITIVE_INFINITY])(
  'an inference of %s stated tokens breaks no counter',
  async (tokens) => {
    const of = await countCalls([reportOf({ operation: 'chat', inputTokens: tokens })])
    for (const { value } of of('tokens_total')) expect(Number.isFinite(value)).toBe(true)
    expect(of('inferences_total')).toHaveLength(1)
  },
)

it('names of models and providers, however many, make no more series than families and places', async () => {
  const strange = (at: number) => ['gpt-', 'x', 'llama', '"}\n', 'claude/'][at % 5] + 'y'.repeat(at)
  const reports = Array.from({ length: 2_000 }, (_, at) =>
    reportOf({ operation: 'chat', provider: `p${at}`, model: strange(at) }),
  )
  const of = await countCalls([
    ...reports,
    reportOf({ operation: 'chat', provider: 'Not a name"', model: 'gpt' }),
  ])
  const samples = of('inferences_total')
  const valuesOf = (label: string) => new Set(samples.map(({ labels }) => labels[label]))
  expect(valuesOf('provider').size).toBe(LABELS_MAX + 1)
  for (const family of valuesOf('model_family')) expect(MODEL_FAMILIES).toContain(family)
  expect(samples.length).toBeLessThan((LABELS_MAX + 1) * 4)
})
