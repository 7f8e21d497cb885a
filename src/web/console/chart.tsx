import 'uplot/dist/uPlot.min.css'
import { useEffect, useRef, useState } from 'preact/hooks'
import type uPlot from 'uplot'
import { FaultNotice } from '../kit/notices.tsx'
import { numberText } from '../kit/values.tsx'
import { Table } from './table.tsx'

/** `values` has a value for each of `times`. A missing value is null. */
export type ChartData = {
  /** Unix seconds, ascending. */
  readonly times: readonly number[]
  readonly values: readonly (number | null)[]
}

const HEIGHT = 180

/**
 * A chart, and the same values as a table. Its space is reserved before the values are loaded. The
 * drawing library is loaded with the first chart.
 */
export function Chart({
  title,
  shape,
  unit,
  data,
  isUtc = false,
}: {
  readonly title: string
  readonly shape: 'bars' | 'line'
  /** For example `requests`. */
  readonly unit: string
  /** Null while the values are not loaded. */
  readonly data: ChartData | null
  /** True if the times are whole days in UTC. */
  readonly isUtc?: boolean
}) {
  const place = useRef<HTMLDivElement>(null)
  const [fault, setFault] = useState<unknown>(null)
  const [pointed, setPointed] = useState<number | null>(null)
  const times = data?.times ?? []
  const write = (index: number) => {
    const value = data?.values[index] ?? null
    return `${writeTime(times[index] ?? 0, isUtc)}: ${value === null ? 'nothing' : `${numberText(value)} ${unit}`}`
  }
  useEffect(() => {
    const { current } = place
    if (current === null || data === null) return
    let end = () => {}
    let isWanted = true
    import('uplot').then(
      ({ default: Plot }) => {
        if (isWanted) end = draw(Plot, current, { data, shape, isUtc, onPoint: setPointed })
      },
      (unloaded: unknown) => setFault(unloaded),
    )
    return () => {
      isWanted = false
      end()
    }
  }, [data, shape, isUtc])

  const filled = data?.values.filter((value) => value !== null) ?? []
  const most = Math.max(0, ...filled)
  return (
    <figure class="chart" aria-label={title}>
      <figcaption>
        <h3>{title}</h3>
      </figcaption>
      {fault !== null && (
        <FaultNotice fault={fault}>The table below has the same values.</FaultNotice>
      )}
      <div
        ref={place}
        class="chart-place"
        role="img"
        aria-label={`${title}: ${filled.length} values, at most ${numberText(most)} ${unit}. The table has all values.`}
      />
      <p class="faint chart-line" aria-hidden="true">
        {pointed !== null && pointed < times.length && write(pointed)}
      </p>
      <details>
        <summary>As a table</summary>
        <Table
          label={title}
          columns={[
            { title: 'When', cell: (index) => writeTime(times[index] ?? 0, isUtc) },
            {
              title: unit,
              kind: 'number',
              cell: (index) => textOf(data?.values[index] ?? null),
            },
          ]}
          rows={data === null ? null : times.map((_, index) => index)}
          keyOf={(index) => index}
          empty="There are no values."
          isSmall={true}
        />
      </details>
    </figure>
  )
}

function textOf(value: number | null): string {
  return value === null ? '–' : numberText(value)
}

export function SpanSelect<Span extends { readonly name: string }>({
  id,
  spans,
  span,
  onSpan,
}: {
  readonly id: string
  readonly spans: readonly Span[]
  readonly span: Span
  readonly onSpan: (span: Span) => void
}) {
  return (
    <div class="field">
      <label for={id}>Of the last</label>
      <select
        id={id}
        value={span.name}
        onChange={({ currentTarget }) =>
          onSpan(spans.find(({ name }) => name === currentTarget.value) ?? span)
        }
      >
        {spans.map(({ name }) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </div>
  )
}

function writeTime(seconds: number, isUtc: boolean): string {
  const time = new Date(seconds * 1000)
  return isUtc
    ? time.toISOString().slice(0, 10)
    : time.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' })
}

/** Draws again when width or colours change. Returns a function that removes the chart. */
function draw(
  Plot: typeof uPlot,
  place: HTMLElement,
  {
    data,
    shape,
    isUtc,
    onPoint,
  }: {
    readonly data: ChartData
    readonly shape: 'bars' | 'line'
    readonly isUtc: boolean
    readonly onPoint: (index: number | null) => void
  },
): () => void {
  const aligned: uPlot.AlignedData = [[...data.times], [...data.values]]
  let plot: uPlot | null = null
  const paint = () => {
    plot?.destroy()
    const colour = (name: string) => getComputedStyle(place).getPropertyValue(name).trim()
    const axis = {
      stroke: colour('--faint'),
      grid: { stroke: colour('--line'), width: 1 },
      ticks: { show: false },
      font: '12px system-ui, sans-serif',
    }
    const bars = shape === 'bars' ? Plot.paths.bars?.({ size: [0.7, 40] }) : undefined
    plot = new Plot(
      {
        width: Math.max(place.clientWidth, 100),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
        axes: [axis, { ...axis, size: 60 }],
        series: [
          {},
          {
            stroke: colour('--accent'),
            ...(bars === undefined
              ? { width: 2 }
              : { width: 0, fill: colour('--accent'), paths: bars }),
            points: { show: shape === 'line' },
          },
        ],
        hooks: { setCursor: [({ cursor }) => onPoint(cursor.idx ?? null)] },
        ...(isUtc
          ? { tzDate: (seconds: number) => Plot.tzDate(new Date(seconds * 1e3), 'UTC') }
          : {}),
      },
      aligned,
      place,
    )
  }
  const resized = new ResizeObserver(() =>
    plot?.setSize({ width: Math.max(place.clientWidth, 100), height: HEIGHT }),
  )
  const scheme = matchMedia('(prefers-color-scheme: dark)')
  paint()
  resized.observe(place)
  scheme.addEventListener('change', paint)
  return () => {
    resized.disconnect()
    scheme.removeEventListener('change', paint)
    plot?.destroy()
  }
}
