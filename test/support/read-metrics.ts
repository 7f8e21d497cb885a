/** One sample of Prometheus' text format. */
export type Sample = {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Reads Prometheus' text format (version 0.0.4). Throws for a line that is none of it. */
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
