import fc from 'fast-check'
import type { JsonObject } from '#attestation/json/value.ts'

type Events = readonly JsonObject[]

/** A way to change any stream: what is done, at which event, and with which other event. */
type Alteration = readonly [kind: string, at: number, other: number]

/** One to three alterations of these kinds. */
export function anyAlterations(...kinds: readonly string[]): fc.Arbitrary<readonly Alteration[]> {
  const alteration = fc.tuple(fc.constantFrom(...kinds), fc.nat(), fc.nat())
  return fc.array(alteration, { minLength: 1, maxLength: 3 })
}

/** The events after one alteration. */
export function alter(events: Events, [kind, first, second]: Alteration): Events {
  const at = first % Math.max(1, events.length)
  const place = second % Math.max(1, events.length)
  const [event, other] = [events[at], events[place]]
  if (event === undefined || other === undefined) return events
  const text = JSON.stringify(event)
  const altered: Readonly<Record<string, Events>> = {
    drop: [],
    double: [event, event],
    swap: [other],
    edit: [JSON.parse(text.replace(/"(text|delta)":"/, '$&X'))],
    retype: [{ ...event, type: other.type ?? '' }],
    rename: [JSON.parse(text.replaceAll(/i_\d/g, `i_${second % 3}`))],
  }
  const rest = kind === 'swap' ? events.with(place, event) : events
  return rest.toSpliced(at, 1, ...(altered[kind] ?? []))
}

/** The events with those that `edit` gives in the place of the first that `matches`. */
export function change(
  events: Events,
  matches: (event: JsonObject) => boolean,
  edit: (event: JsonObject) => Events,
): Events {
  const at = events.findIndex(matches)
  return events.toSpliced(at, 1, ...edit(events[at] as JsonObject))
}
