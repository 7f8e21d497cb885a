import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { listSources, type MeasuredParts, registerSources } from '#src/observability/gauges.ts'
import { METRICS_PREFIX } from '#src/observability/metric-forms.ts'
import { createMeter } from '#src/observability/metrics.ts'
import { MODEL_FAMILIES } from '#src/observability/model-family.ts'

/** A metric as it is registered. */
export type RegisteredMetric = {
  readonly name: string
  readonly type: string
  readonly help: string
  readonly labelNames: readonly string[]
}

const PAGE = join(import.meta.dirname, '../../docs/metrics.md')

/** Every metric of a gateway, also those that Node.js brings. */
export function listMetrics(): readonly RegisteredMetric[] {
  const { registry } = createMeter()
  // What is read is asked only at a scrape.
  registerSources(registry, listSources({} as MeasuredParts))
  return (registry.getMetricsAsArray() as unknown as readonly RegisteredMetric[]).toSorted(
    (one, other) => (one.name < other.name ? -1 : 1),
  )
}

/** Gives docs/metrics.md, made of the metrics that a gateway registers. */
export function renderMetrics(): string {
  const rows = listMetrics()
    .filter(({ name }) => name.startsWith(METRICS_PREFIX))
    .map(({ name, type, help, labelNames }) => {
      const labels = labelNames.map((label) => `\`${label}\``).join(', ')
      return `| \`${name}\` | ${type} | ${labels} | ${help.replaceAll('|', '\\|')} |`
    })
  return `# Metrics

What a gateway with \`METRICS_PORT\` gives a Prometheus at \`GET /metrics\`. Counters end in \`_total\` and count since the start of the process, times
are in seconds. Besides these there are those of the process and of Node.js: \`process_*\`, \`nodejs_*\`.

Each process gives its own; \`anchor*\`, \`anchors*\`, \`chain_*\`, \`relayer_*\` and \`database_up\` give what the database and the chain say, which is one
for all gateways: take the largest, not the sum. A part that could not be read has no values, and \`affidavit_source_up\` 0.

Labels are words of a fixed set, so that no caller, node or provider can make series: \`route\` is a route's pattern, \`code\` an error code of the API,
\`provider\` a name of the enclaves' measured tables, \`nodes\`, \`upstream\`, \`none\` or \`other\` (32 names at most), and \`model_family\` what a model's name
begins with: ${MODEL_FAMILIES.map((family) => `\`${family}\``).join(', ')}.

This page is written by \`npm run docs\`; a test holds it to be current.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
${rows.join('\n')}
`
}

/** The committed page. */
export function readMetricsPage(): string {
  return readFileSync(PAGE, 'utf8')
}

if (import.meta.main) writeFileSync(PAGE, renderMetrics())
