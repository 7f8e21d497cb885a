import { Gauge, type Registry } from 'prom-client'
import { METRICS_PREFIX } from './meter.ts'

/** A scrape waits for a source that does not answer no longer than this. */
export const SOURCE_TIMEOUT_MS = 2_000

/** What a gauge says; with a label it has a value for each of the label's. */
export type GaugeForm = { readonly help: string; readonly label?: string }

/** Null: not known now. A map has the values of a label. */
export type Reading = number | null | ReadonlyMap<string, number>

/** What is read of one part at each scrape: gauges, and their values, by name without our prefix. */
export type GaugeSource<Name extends string = string> = {
  readonly name: string
  readonly gauges: Readonly<Record<Name, GaugeForm>>
  readonly read: () => Readonly<Record<Name, Reading>> | Promise<Readonly<Record<Name, Reading>>>
}

/**
 * Registers the gauges of the sources, and gives what reads them all anew: to be awaited before each scrape. A source that throws, or
 * takes longer than SOURCE_TIMEOUT_MS, then has no values, rather than old ones, and is 0 in `source_up`. One that hangs is not asked
 * again before it answered.
 */
export function registerSources(registry: Registry, sources: readonly GaugeSource[]): () => Promise<void> {
  const up = new Gauge({
    name: `${METRICS_PREFIX}source_up`,
    help: 'Whether the values of a part could be read',
    labelNames: ['source'] as const,
    registers: [registry],
  })
  const refreshers = sources.map((source) => {
    const read = readInTime(source)
    const gauges = Object.entries(source.gauges).map(
      ([name, form]) => [name, registerGauge(registry, name, form)] as const,
    )
    return async () => {
      const readings = await read()
      up.set({ source: source.name }, readings === null ? 0 : 1)
      for (const [name, set] of gauges) set(readings?.[name] ?? null)
    }
  })
  return async () => {
    await Promise.all(refreshers.map((refresh) => refresh()))
  }
}

function registerGauge(
  registry: Registry,
  name: string,
  { help, label }: GaugeForm,
): (reading: Reading) => void {
  const labelNames = label === undefined ? [] : [label]
  const gauge = new Gauge({ name: METRICS_PREFIX + name, help, labelNames, registers: [registry] })
  // One without labels would say 0, which is a claim.
  const clear = () => (label === undefined ? gauge.remove() : gauge.reset())
  clear()
  return (reading) => {
    clear()
    if (typeof reading === 'number') gauge.set(reading)
    else if (reading !== null && label !== undefined)
      for (const [value, count] of reading) gauge.set({ [label]: value }, count)
  }
}

/** Null when the source could not be read. */
function readInTime(source: GaugeSource): () => Promise<Readonly<Record<string, Reading>> | null> {
  let isRunning = false
  return async () => {
    if (isRunning) return null
    isRunning = true
    const answer = Promise.resolve()
      .then(() => source.read())
      .catch(() => null)
      .finally(() => {
        isRunning = false
      })
    const timeout = Promise.withResolvers<null>()
    const timer = setTimeout(() => timeout.resolve(null), SOURCE_TIMEOUT_MS)
    return await Promise.race([answer, timeout.promise]).finally(() => clearTimeout(timer))
  }
}
