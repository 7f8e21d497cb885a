type Exactness = 'day' | 'minute' | 'second'

const LENGTHS: Readonly<Record<Exactness, number>> = { day: 10, minute: 16, second: 19 }

/** `2026-11-26 14:41`, in the reader's time zone. The title has the full time in UTC. */
export function ShortTime({
  seconds,
  to = 'minute',
}: {
  readonly seconds: number
  readonly to?: Exactness
}) {
  const time = new Date(seconds * 1000)
  if (Number.isNaN(time.getTime())) return <span>{seconds} s</span>
  const iso = time.toISOString()
  return (
    <time dateTime={iso} title={iso} class="value">
      {localText(time).slice(0, LENGTHS[to])}
    </time>
  )
}

function localText(time: Date): string {
  const two = (value: number) => String(value).padStart(2, '0')
  const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join('-')
  return `${day} ${[time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(':')}`
}
