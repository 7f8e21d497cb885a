import { expect, it } from 'vitest'
import { CHANNELS_MAX, createChannelTable } from '#src/bus/channel-table.ts'

const MESSAGE_NAMES = 4_000

function open() {
  const clock = { nowMs: 0 }
  const table = createChannelTable({
    publish: () => {},
    partBytesMax: () => 65_536,
    now: () => clock.nowMs,
  })
  /** Gives the lost channels that a report of these channels shows. */
  const report = (names: readonly string[], peer = 'peer') => {
    const lost: string[] = []
    for (let from = 0; from < names.length; from += MESSAGE_NAMES) {
      const part = names.slice(from, from + MESSAGE_NAMES)
      lost.push(
        ...table.check(
          peer,
          part.map((name) => [name, 1] as const),
        ),
      )
    }
    clock.nowMs += 1_000
    return lost
  }
  return { table, clock, report }
}
const namesOf = (count: number) => Array.from({ length: count }, (_, at) => `c${at}`)

it.each([1, 4_000, 4_001, 9_000])(
  'a channel table finds every one of %d unknown channels at the second report, however many messages it takes',
  (count) => {
    const { report } = open()
    expect(report(namesOf(count))).toEqual([])
    expect(report(namesOf(count))).toEqual(namesOf(count))
    // The message that ends the channel at the peer may be lost too.
    expect(report(namesOf(count))).toEqual(namesOf(count))
  },
)

it('a channel table finds an unknown channel although one report between was lost', () => {
  const { report, clock } = open()
  expect(report(['c'])).toEqual([])
  clock.nowMs += 1_000
  expect(report(['c'])).toEqual(['c'])
})

it('a channel table forgets an unknown channel that its peer reports no more, and those of a peer that is gone', () => {
  const { table, report, clock } = open()
  report(['old', 'c'])
  clock.nowMs += 3_000
  expect(report(['old'])).toEqual([])
  expect(report(['old'], 'other')).toEqual([])
  table.loseAll('peer', 'gone')
  expect(report(['old'])).toEqual([])
})

it('a channel table keeps a bounded number of unknown channels, and finds the rest when the first are gone', () => {
  const { report } = open()
  const names = namesOf(CHANNELS_MAX + 5)
  report(names)
  expect(report(names)).toEqual(names.slice(0, CHANNELS_MAX))
  const rest = names.slice(CHANNELS_MAX)
  const found = Array.from({ length: 6 }, () => report(rest))
  expect(found.at(-1)).toEqual(rest)
})
