import { describe, expect, it } from 'vitest'
import { METRICS_PREFIX } from '#src/observability/metric-forms.ts'
import { listMetrics, readMetricsPage, renderMetrics } from './metrics-page.ts'

describe('docs/metrics.md', () => {
  it('docs/metrics.md is what `npm run docs` writes', () => {
    expect(readMetricsPage()).toBe(renderMetrics())
  })
})

// prometheus.io/docs/practices/naming
it.each(listMetrics())('the metric $name is named as its type and unit want it', (metric) => {
  const { name, type, labelNames, help } = metric
  expect(name).toMatch(/^[a-z][a-z0-9_]*$/)
  expect(name.endsWith('_total')).toBe(type === 'counter')
  expect(name).not.toMatch(/_(count|sum|bucket|ms|millis|milliseconds|minutes|kb|mb|percent)$/)
  if (type === 'histogram') expect(name).toMatch(/_(seconds|bytes|records)$/)
  for (const label of labelNames) {
    expect(label).toMatch(/^[a-z][a-z_]*$/)
    expect(['le', 'quantile', 'job', 'instance']).not.toContain(label)
  }
  expect(help.trim().length).toBeGreaterThan(5)
})

it('every metric of our own has our prefix, and there are some', () => {
  const own = listMetrics().filter(({ name }) => !/^(process|nodejs)_/.test(name))
  expect(own.filter(({ name }) => !name.startsWith(METRICS_PREFIX))).toEqual([])
  expect(own.length).toBeGreaterThan(30)
})
