import type { Offer, OfferingNode } from './offer.ts'
import { expectedMs } from './speed.ts'

/** Connected nodes by model. The time to choose a node does not depend on the number of nodes. */
export type NodeIndex<Node> = {
  add(node: Node): void
  remove(node: Node): void
  /**
   * Call this when another gateway no longer offers its nodes of a model. These nodes should
   * connect again within `returnMs`.
   */
  expectReturn(model: string): void
  isReturning(model: string): boolean
  /** Must be called when a node's state, slots or circuit have changed. */
  update(node: Node): void
  /**
   * Chooses the offer with the shortest expected time. Compares all offers if they are few, else
   * two random offers.
   */
  pick(model: string, isExcluded: (node: Node) => boolean): Offer<Node> | null
  /** Also true for models that nodes offered before this process started. */
  isKnown(model: string): boolean
  /** True if at least one node of the model gets calls. */
  isServed(model: string): boolean
  /** Counts connected nodes in any state, as the next two methods do. */
  connected(model: string): number
  connectedLarge(model: string): number
  connectedWith(model: string, ability: string): number
  /** Models of which at least one node gets calls, sorted by name. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
}

export const COMPARED_MAX = 4
/** Maximum number of remembered models that have no connected node. */
const IDLE_MODELS_MAX = 10_000

type ModelOffers<Node> = {
  connected: number
  large: number
  readonly abilities: Map<string, number>
  running: number
  /** Unix milliseconds. Until this time, nodes of a lost gateway should connect again. */
  returnUntilMs: number
  readonly available: Offer<Node>[]
}

/** `random` returns numbers from 0 to below 1. `now` returns Unix milliseconds. */
export function createNodeIndex<Node extends OfferingNode<Node>>({
  random,
  offeredModels,
  returnMs,
  now,
}: {
  readonly random: () => number
  readonly offeredModels: readonly string[]
  readonly returnMs: number
  readonly now: () => number
}): NodeIndex<Node> {
  const models = new Map<string, ModelOffers<Node>>()
  for (const model of offeredModels) offersOf(model)

  function offersOf(model: string): ModelOffers<Node> {
    const known = models.get(model)
    if (known !== undefined) return known
    const made = {
      connected: 0,
      large: 0,
      abilities: new Map<string, number>(),
      running: 0,
      returnUntilMs: 0,
      available: [],
    }
    models.set(model, made)
    return made
  }

  function update(node: Node): void {
    for (const offer of node.offers) {
      const offers = models.get(offer.model)
      if (offers === undefined) continue
      countOffer(offers, offer)
      placeOffer(offers.available, offer, node.isAvailable(offer.model))
    }
  }

  return {
    add(node) {
      for (const { model } of node.offers) {
        const offers = offersOf(model)
        offers.connected++
        if (node.takesLargeFrames) offers.large++
        countAbilities(offers.abilities, node, 1)
        // The map is in order of use: the model that was unused longest is removed first.
        models.delete(model)
        models.set(model, offers)
      }
      update(node)
    },
    remove(node) {
      update(node)
      for (const { model } of node.offers) {
        const offers = offersOf(model)
        offers.connected--
        if (node.takesLargeFrames) offers.large--
        countAbilities(offers.abilities, node, -1)
      }
      forgetIdle(models)
    },
    expectReturn(model) {
      const offers = models.get(model)
      if (offers !== undefined) offers.returnUntilMs = now() + returnMs
    },
    isReturning: (model) => now() < (models.get(model)?.returnUntilMs ?? 0),
    update,
    pick(model, isExcluded) {
      const available = models.get(model)?.available ?? []
      if (available.length > COMPARED_MAX) {
        const picked = better(
          draw(available, isExcluded, random),
          draw(available, isExcluded, random),
        )
        if (picked !== null) return picked
      }
      return bestOf(available, isExcluded)
    },
    isKnown: (model) => models.has(model),
    isServed: (model) => (models.get(model)?.running ?? 0) > 0,
    connected: (model) => models.get(model)?.connected ?? 0,
    connectedLarge: (model) => models.get(model)?.large ?? 0,
    connectedWith: (model, ability) => models.get(model)?.abilities.get(ability) ?? 0,
    models: () =>
      [...models]
        .filter(([, { running }]) => running > 0)
        .map(([model, { running }]) => ({ model, nodes: running }))
        .sort((left, right) => (left.model < right.model ? -1 : 1)),
  }
}

function countAbilities(
  counts: Map<string, number>,
  { abilities }: { readonly abilities: ReadonlySet<string> },
  more: 1 | -1,
): void {
  for (const ability of abilities) counts.set(ability, (counts.get(ability) ?? 0) + more)
}

function countOffer<Node extends OfferingNode<Node>>(
  offers: ModelOffers<Node>,
  offer: Offer<Node>,
): void {
  const counted = offer.node.isServing(offer.model) ? offer.node.nodes : 0
  offers.running += counted - offer.counted
  offer.counted = counted
}

/** Moves the last offer into the place of a removed offer, so that the array has no gaps. */
function placeOffer<Node>(
  available: Offer<Node>[],
  offer: Offer<Node>,
  isAvailable: boolean,
): void {
  if (isAvailable === offer.position >= 0) return
  if (isAvailable) {
    offer.position = available.push(offer) - 1
    return
  }
  const last = available.pop()
  if (last !== undefined && last !== offer) {
    available[offer.position] = last
    last.position = offer.position
  }
  offer.position = -1
}

/** Null if every try finds an excluded node. This is rare: at most two nodes are excluded. */
function draw<Node>(
  available: readonly Offer<Node>[],
  isExcluded: (node: Node) => boolean,
  random: () => number,
): Offer<Node> | null {
  for (let attempt = 0; attempt < DRAWS_MAX; attempt++) {
    const offer = available[Math.floor(random() * available.length)]
    if (offer !== undefined && !isExcluded(offer.node)) return offer
  }
  return null
}

const DRAWS_MAX = 8

function bestOf<Node extends OfferingNode<Node>>(
  available: readonly Offer<Node>[],
  isExcluded: (node: Node) => boolean,
): Offer<Node> | null {
  let best: Offer<Node> | null = null
  for (const offer of available) if (!isExcluded(offer.node)) best = better(best, offer)
  return best
}

function better<Node extends OfferingNode<Node>>(
  left: Offer<Node> | null,
  right: Offer<Node> | null,
): Offer<Node> | null {
  if (left === null || right === null) return left ?? right
  return offerMs(right) < offerMs(left) ? right : left
}

function offerMs<Node extends OfferingNode<Node>>({ speed, node }: Offer<Node>): number {
  return expectedMs(speed, { inUse: node.slots.inUse(), capacity: node.slots.capacity })
}

function forgetIdle(models: Map<string, { readonly connected: number }>): void {
  if (models.size <= IDLE_MODELS_MAX) return
  for (const [model, { connected }] of models) {
    if (connected === 0) models.delete(model)
    if (models.size <= IDLE_MODELS_MAX) return
  }
}
