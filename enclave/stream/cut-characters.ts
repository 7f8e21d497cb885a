import {
  filterMembers,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'

/**
 * Joins characters that a provider cut into two UTF-16 halves, in two deltas of one text. Escapes
 * in JSON can do this. Serves one stream.
 */
export class CutCharacters {
  /**
   * The first halves that wait for the next delta of their text, by the place of the text. `alone`:
   * the data of a delta that adds only the half.
   */
  private readonly waiting = new Map<string, { half: string; alone: JsonObject }>()

  /**
   * Returns the data of the events to be read instead of this event. A first half at the end of a
   * delta is moved to the next delta of its text, or into a delta of its own if the text ends.
   */
  join(data: JsonObject): readonly JsonObject[] {
    // Servers send these at any time.
    if (data.type === 'ping' || data.type === 'keepalive') return [data]
    const delta = deltaIn(data)
    const joined: JsonObject[] = []
    for (const [key, { alone }] of this.waiting) {
      const isFull = this.waiting.size >= WAITING_MAX
      if (key === delta?.key || (!isFull && isOfOtherItem(alone, data))) continue
      this.waiting.delete(key)
      joined.push(alone)
    }
    if (delta === null) return [...joined, data]
    const text = (this.waiting.get(delta.key)?.half ?? '') + delta.text
    this.waiting.delete(delta.key)
    const half = text.slice(-1)
    if (half < '\ud800' || half > '\udbff' || delta.key.length > KEY_LENGTH_MAX)
      return [...joined, text === delta.text ? data : delta.withText(text)]
    this.waiting.set(delta.key, { half, alone: delta.alone(half) })
    return [...joined, delta.withText(text.slice(0, -1))]
  }
}

/** Maximum number of halves, because each event looks at all of them. */
const WAITING_MAX = 16

/** UTF-16 units. Waiting halves are not in the budget of memory. */
const KEY_LENGTH_MAX = 4_096

type Delta = {
  readonly key: string
  readonly text: string
  withText(text: string): JsonObject
  /** Only the place and the text. */
  alone(text: string): JsonObject
}

/** Null if the event adds nothing to a text. */
function deltaIn(data: JsonObject): Delta | null {
  const delta = memberOf(data, 'delta')
  const place = filterMembers(data, (name) => PLACE.includes(name))
  if (typeof delta === 'string')
    return {
      key: keyOf(data, ''),
      text: delta,
      withText: (text) => ({ ...data, delta: text }),
      alone: (text) => ({ ...place, delta: text }),
    }
  if (!isJsonObject(delta)) return null
  const name = TEXT_MEMBERS.get(delta.type ?? null)
  const given = name === undefined ? undefined : memberOf(delta, name)
  if (name === undefined || typeof given !== 'string') return null
  return {
    key: keyOf(data, name),
    text: given,
    withText: (text) => ({ ...data, delta: { ...delta, [name]: text } }),
    alone: (text) => ({ ...place, delta: { type: delta.type ?? null, [name]: text } }),
  }
}

/** The texts in the deltas of Messages, by the type of the delta. */
const TEXT_MEMBERS: ReadonlyMap<Json, string> = new Map([
  ['text_delta', 'text'],
  ['input_json_delta', 'partial_json'],
  ['thinking_delta', 'thinking'],
])

const PLACE = ['type', 'index', 'output_index', 'item_id', 'content_index', 'summary_index']

function keyOf(data: JsonObject, name: string): string {
  return JSON.stringify([...PLACE.map((member) => memberOf(data, member) ?? null), name])
}

/** Only items of Responses are open at the same time. */
function isOfOtherItem(data: JsonObject, other: JsonObject): boolean {
  return ['output_index', 'item_id'].some((name) => {
    const [one, another] = [memberOf(data, name) ?? null, memberOf(other, name) ?? null]
    return one !== null && another !== null && one !== another
  })
}
