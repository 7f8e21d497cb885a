import type { JsonObject } from '../json/value.ts'
import { itemOf, nameTools, type TurnItem } from './items.ts'
import type { DialectTurns } from './turns.ts'

export type CallContent = {
  readonly turns: DialectTurns
  /** The request's body and the answer. Null if the evidence leaves them out. */
  readonly body: JsonObject | null
  readonly response: JsonObject | null
}

/** How a request relates to the calls before it. `call` is the number of a call, from 0. */
export type CallRelation =
  /** The request contains no answer of an earlier call: a new or a compacted conversation. */
  | { readonly kind: 'starts' }
  /** The request begins with the request and the answer of `call`. */
  | { readonly kind: 'continues'; readonly call: number }
  /** The request is the same as that of `call`. */
  | { readonly kind: 'repeats'; readonly call: number }
  /** The request contains the answer of `call`, but the history before this answer differs. */
  | { readonly kind: 'rewrites'; readonly call: number }
  /** The evidence leaves the request out. */
  | { readonly kind: 'left out' }

/** An item of a request that only a model makes, but that no earlier answer contains. */
type ForeignAnswer = {
  /** The place of the item in its request. */
  readonly at: number
  readonly item: TurnItem
  /** The call whose answer has an item with the same id. Null if there is no such call. */
  readonly differsFrom: number | null
}

export type RelatedCall = {
  readonly relation: CallRelation
  /** The items of the request that the related call did not have. */
  readonly added: readonly TurnItem[]
  readonly answer: readonly TurnItem[]
  /** Each item is listed only for the first request that has it. */
  readonly foreign: readonly ForeignAnswer[]
  /** Number of the request's items that only a model makes. */
  readonly answersContained: number
}

/**
 * Relates each request to an earlier call by its content. The parent of a request is the call whose
 * request and answer are the longest prefix of this request. Time and memory are linear in the size
 * of the calls, because calls are attacker-controlled. Does NOT prove that a request has the whole
 * conversation: a caller may leave out and change earlier content, and only visible changes are
 * reported.
 */
export function relateCalls(calls: readonly CallContent[]): readonly RelatedCall[] {
  const known = new KnownCalls()
  return calls.map((call, place) => known.relate(call, place))
}

/** The calls so far, as a tree. A path is a conversation. An edge is the key of an item. */
class KnownCalls {
  private readonly edges = new Map<string, number>()
  /** Numbers of calls. The map's key is the node after the call's request and answer. */
  private readonly conversations = new Map<number, number>()
  /**
   * Numbers of calls. The map's key has two nodes: at the end of the instructions, and at the end
   * of the request.
   */
  private readonly requests = new Map<string, number>()
  private readonly answers = new KnownAnswers()
  private readonly histories: (readonly TurnItem[])[] = []
  private readonly shown = new Set<string>()

  relate({ turns, body, response }: CallContent, place: number): RelatedCall {
    const choices = response === null ? [] : turns.answersOf(response)
    const answer = withNumbers(choices)
    if (body === null) {
      this.add(place, [], choices)
      return { relation: { kind: 'left out' }, added: [], answer, foreign: [], answersContained: 0 }
    }
    const all = nameTools(turns.itemsOf(body))
    const begin = all.findIndex((item) => !isInstruction(item))
    const items = begin < 0 ? [] : all.slice(begin)
    const opening = begin < 0 ? all : all.slice(0, begin)
    const path = this.pathOf(items)
    const name = `${this.endOf(opening)} ${path.at(-1) ?? ROOT}`
    const relation = this.relationOf({ items, path, earlier: this.requests.get(name) })
    const added = [
      ...opening.filter(({ key }) => !this.shown.has(key)),
      ...this.newIn(items, relation),
    ]
    for (const { key } of opening) this.shown.add(key)
    const foreign = this.answers.findForeign(all)
    const answersContained = all.filter(({ isAnswer }) => isAnswer).length
    if (!this.requests.has(name)) this.requests.set(name, place)
    this.add(place, items, choices)
    return { relation, added, answer, foreign, answersContained }
  }

  private relationOf(given: {
    readonly items: readonly TurnItem[]
    /** The node after each item. */
    readonly path: readonly number[]
    readonly earlier: number | undefined
  }): CallRelation {
    const { items, path, earlier } = given
    if (earlier !== undefined) return { kind: 'repeats', call: earlier }
    const end = path.findLastIndex((node) => this.conversations.has(node))
    const parent = this.conversations.get(path[end] ?? ROOT)
    const later = this.answers.newestIn(items.slice(end + 1))
    if (later !== null) return { kind: 'rewrites', call: later }
    return parent === undefined ? { kind: 'starts' } : { kind: 'continues', call: parent }
  }

  /** The items that the related call did not have, or had fewer times. */
  private newIn(items: readonly TurnItem[], relation: CallRelation): readonly TurnItem[] {
    const known = new Map<string, number>()
    const history = 'call' in relation ? (this.histories[relation.call] ?? []) : []
    for (const { key } of history) known.set(key, (known.get(key) ?? 0) + 1)
    return items.filter(({ key }) => {
      const count = known.get(key) ?? 0
      known.set(key, count - 1)
      return count <= 0
    })
  }

  private add(
    place: number,
    items: readonly TurnItem[],
    choices: readonly (readonly TurnItem[])[],
  ): void {
    const request = this.endOf(items)
    for (const choice of choices) {
      const end = this.endOf(choice, request)
      if (end !== request) this.conversations.set(end, place)
      this.answers.add(place, choice)
    }
    this.histories[place] = [...items, ...choices.flat()]
  }

  private endOf(items: readonly TurnItem[], from = ROOT): number {
    return this.pathOf(items, from).at(-1) ?? from
  }

  /** The node after each item. Optional items add no node, since clients may leave them out. */
  private pathOf(items: readonly TurnItem[], from = ROOT): readonly number[] {
    let node = from
    return items.map(({ key, isOptional }) => {
      if (!isOptional) node = numberFor(this.edges, `${node} ${numberFor(this.edges, key)}`)
      return node
    })
  }
}

const ROOT = 0

/** The number of a text, from 1. Equal texts have the same number. */
function numberFor(numbers: Map<string, number>, text: string): number {
  const number = numbers.get(text) ?? numbers.size + 1
  numbers.set(text, number)
  return number
}

class KnownAnswers {
  private readonly byKey = new Map<string, number>()
  private readonly byId = new Map<string, { readonly call: number; readonly keys: Set<string> }>()
  private readonly reported = new Set<string>()

  add(call: number, items: readonly TurnItem[]): void {
    for (const { key, id } of items) {
      this.byKey.set(key, call)
      if (id === null) continue
      const keys = this.byId.get(id)?.keys ?? new Set()
      this.byId.set(id, { call, keys: keys.add(key) })
    }
  }

  /** Finds the newest call with one of the items, or null. */
  newestIn(items: readonly TurnItem[]): number | null {
    const calls = items.flatMap((item) =>
      this.isKnown(item) ? [this.byKey.get(item.key) ?? 0] : [],
    )
    return calls.reduce<number | null>((newest, call) => Math.max(newest ?? call, call), null)
  }

  /** Returns the answers in `items` that no earlier call made. Returns each only once. */
  findForeign(items: readonly TurnItem[]): readonly ForeignAnswer[] {
    return items.flatMap((item, at) => {
      if (!item.isAnswer || this.isKnown(item) || this.reported.has(item.key)) return []
      this.reported.add(item.key)
      const differsFrom = item.id === null ? null : (this.byId.get(item.id)?.call ?? null)
      return [{ at, item, differsFrom }]
    })
  }

  /**
   * Compares an item with the answers that have its id, or with all answers if no answer has its
   * id.
   */
  private isKnown({ isAnswer, id, key }: TurnItem): boolean {
    const named = id === null ? undefined : this.byId.get(id)
    return isAnswer && (named === undefined ? this.byKey.has(key) : named.keys.has(key))
  }
}

/** Instructions at the beginning of a request are not a part of the conversation. */
function isInstruction({ step: { kind, name } }: TurnItem): boolean {
  return kind === 'asked' && (name === 'system' || name === 'developer')
}

/** The items of all choices. Two or more choices each begin with an item for their number. */
function withNumbers(choices: readonly (readonly TurnItem[])[]): readonly TurnItem[] {
  if (choices.length <= 1) return choices.flat()
  return choices.flatMap((items, at) => [
    itemOf({ kind: 'other', name: `choice ${at}`, text: '' }),
    ...items,
  ])
}
