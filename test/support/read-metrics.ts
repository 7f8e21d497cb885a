/** One sample of Prometheus' text format. */
export type Sample = {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Reads Prometheus' text format (version 0.0.4). Throws for a line in another format. */
export function readMetrics(text: string): readonly Sample[] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name, labels, value] = LINE.exec(line) ?? []
      if (name === undefined || value === undefined)
        throw new Error(`expected a sample, got ${line}`)
      return { name, labels: Object.fromEntries(readLabels(labels ?? '')), value: Number(value) }
    })
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (-?[\d.]+(?:e[+-]?\d+)?|[+-]?inf|nan)$/i

function readLabels(text: string): readonly (readonly [string, string])[] {
  return [...text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(
    ([, name, value]) => [name ?? '', value ?? ''] as const,
  )
}

/** A metric of an exposition, with its samples. */
export type Family = {
  readonly name: string
  readonly type: string
  readonly help: string
  readonly samples: readonly Sample[]
}

/**
 * Reads an exposition completely and strictly
 * (prometheus.io/docs/instrumenting/exposition_formats): every family has one HELP and one TYPE
 * before its samples, no series comes twice, and the buckets of a histogram rise to its count.
 * Throws for anything else.
 */
export function readExposition(text: string): readonly Family[] {
  if (!text.endsWith('\n')) throw new Error('expected a line feed at the end')
  const families: { name: string; type: string; help: string; samples: Sample[] }[] = []
  const series = new Set<string>()
  let help: readonly [name: string, text: string] | null = null
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const [, keyword, about = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? []
    if (keyword === 'HELP') help = [about, rest]
    else if (keyword === 'TYPE') {
      if (help?.[0] !== about || families.some(({ name }) => name === about))
        throw new Error(`expected one HELP and one TYPE of ${about}`)
      families.push({ name: about, type: rest, help: help[1], samples: [] })
    } else {
      const [sample] = readMetrics(line)
      const family = families.at(-1)
      if (sample === undefined || family === undefined) throw new Error(`unexpected line: ${line}`)
      const suffix = sample.name.slice(family.name.length)
      const suffixes = family.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
      if (!sample.name.startsWith(family.name) || !suffixes.includes(suffix))
        throw new Error(`expected a sample of ${family.name}, got ${line}`)
      const key = sample.name + JSON.stringify(Object.entries(sample.labels).toSorted())
      if (series.has(key)) throw new Error(`expected each series once, got another ${line}`)
      series.add(key)
      family.samples.push(sample)
    }
  }
  for (const family of families) if (family.type === 'histogram') checkBuckets(family)
  return families
}

function checkBuckets({ name, samples }: Family): void {
  const groups = Map.groupBy(samples, ({ labels: { le: _, ...labels } }) => JSON.stringify(labels))
  for (const group of groups.values()) {
    const buckets = group.filter((sample) => sample.name === `${name}_bucket`)
    const count = group.find((sample) => sample.name === `${name}_count`)?.value
    const values = buckets.map(({ value }) => value)
    const rises = values.every((value, at) => value >= (values[at - 1] ?? 0))
    if (!rises || buckets.at(-1)?.labels.le !== '+Inf' || values.at(-1) !== count)
      throw new Error(`expected buckets of ${name} that rise to its count`)
  }
}
