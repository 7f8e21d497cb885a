import type { Bus } from '../../bus/bus.ts'
import type { NodeIndex } from '../runs/choose-node.ts'
import type { NodeConnection } from '../runs/connection.ts'
import type { CallableNode } from '../runs/dispatch.ts'
import type { Offer } from '../runs/offer.ts'
import { expectedMs } from '../runs/speed.ts'
import type { WaitQueue } from '../runs/wait-queue.ts'
import {
  NODE_TOPIC,
  type NodeQuestion,
  nodeQuestion,
  OFFERS_PER_MESSAGE,
  OFFERS_TOPIC,
  PLACES,
  type PlaceName,
  type SharedOffer,
  sharedOffers,
} from './messages.ts'
import { RemoteNode } from './remote-node.ts'

/** Changes within this time are sent in one message. */
const PUBLISH_DELAY_MS = 25
/** How often all offers are published again, for gateways that missed a message. */
const REFRESH_MS = 1_000
/** An offer is removed if it is not published again within this time. */
const OFFER_EXPIRES_MS = 3_500

type Place = {
  readonly index: NodeIndex<CallableNode>
  readonly queue: WaitQueue<CallableNode>
}

type SharingOptions = {
  readonly bus: Bus
  readonly places: Readonly<Record<PlaceName, Place>>
  readonly placeOf: (node: NodeConnection) => PlaceName
  /** Answers another gateway's question about a node that is connected here. */
  readonly onAsked: (nodeId: string, question: NodeQuestion) => Promise<boolean>
}

type Claim = { state: 'asking' | 'held' | 'lost' }

/** The node is connected here, or is connecting. */
type Held =
  | { readonly node: NodeConnection; readonly claim: null }
  | { readonly node: null; readonly claim: Claim }

/** Publishes this gateway's nodes, and adds the nodes of other gateways to the index. */
export class NodeSharing {
  private readonly options: SharingOptions
  private readonly local = new Map<string, Set<Offer<NodeConnection>>>()
  private readonly changedModels = new Set<string>()
  private readonly remote = new Map<
    string,
    Map<string, { node: RemoteNode; receivedAtMs: number }>
  >()
  /** By node id. This gateway answers questions about these nodes until `end` is called. */
  private readonly asked = new Map<string, { held: Held; readonly end: () => void }>()
  private readonly refresh: NodeJS.Timeout
  private publishing: NodeJS.Timeout | null = null
  private publishedAtMs = Number.NEGATIVE_INFINITY
  private isDraining = false

  constructor(options: SharingOptions) {
    this.options = options
    const { bus } = options
    bus.listen(OFFERS_TOPIC, (peer, message) => this.receive(peer, sharedOffers.parse(message)))
    bus.onCome(() => this.publishAll())
    bus.onGone((peer) => this.forget(peer))
    this.refresh = setInterval(() => {
      this.publishAll()
      this.expire()
    }, REFRESH_MS)
    this.refresh.unref()
  }

  enter(node: NodeConnection): void {
    const place = this.options.placeOf(node)
    for (const offer of node.offers) {
      const key = keyOf(place, offer.model)
      const offers = this.local.get(key) ?? new Set()
      this.local.set(key, offers.add(offer))
    }
    this.answer(node.nodeId, { node, claim: null })
    this.changed(node)
  }

  /** Must be called when the node's slots have changed, and when it starts or stops serving. */
  changed(node: NodeConnection): void {
    const place = this.options.placeOf(node)
    for (const { model } of node.offers) this.changedModels.add(keyOf(place, model))
    // Publishes at once if nothing was published recently: a caller may wait for the slot.
    const delayMs = this.publishedAtMs + PUBLISH_DELAY_MS - performance.now()
    this.publishing ??= setTimeout(() => this.publishChanged(), Math.max(0, delayMs)).unref()
  }

  leave(node: NodeConnection): void {
    const place = this.options.placeOf(node)
    for (const offer of node.offers) this.local.get(keyOf(place, offer.model))?.delete(offer)
    if (this.asked.get(node.nodeId)?.held.node === node) this.unanswer(node.nodeId)
    this.changed(node)
  }

  /**
   * Returns false when another gateway has a live connection of the node, or wins a simultaneous
   * claim. A connection that does not answer is ended.
   */
  async claim(nodeId: string, timeoutMs: number): Promise<boolean> {
    const { bus } = this.options
    const claim: Claim = { state: 'asking' }
    // If two gateways claim the node at the same time, at least one gets the other's question.
    this.answer(nodeId, { node: null, claim })
    const question: NodeQuestion = { kind: 'claim', by: bus.id, timeoutMs }
    const asked = { question, timeoutMs: timeoutMs + ASK_MARGIN_MS }
    // If the bus fails, this gateway cannot know of another connection, so the node can connect.
    const isTaken = (await bus.ask(NODE_TOPIC, nodeId, asked)) === true
    if (!isTaken && claim.state === 'asking') claim.state = 'held'
    if (claim.state !== 'held') this.unclaim(nodeId)
    return claim.state === 'held'
  }

  /** Called when the node has connected, or will not connect. */
  unclaim(nodeId: string): void {
    if (this.asked.get(nodeId)?.held.node === null) this.unanswer(nodeId)
  }

  /** Ends the node's connection at any other gateway. */
  async disconnectElsewhere(nodeId: string, reason: string): Promise<boolean> {
    const question: NodeQuestion = { kind: 'disconnect', reason }
    const asked = { question, timeoutMs: ASK_MARGIN_MS }
    return (await this.options.bus.ask(NODE_TOPIC, nodeId, asked)) === true
  }

  /** Stops offering this gateway's nodes to other gateways. */
  drain(): void {
    if (this.isDraining) return
    this.isDraining = true
    this.publishAll()
  }

  stop(): void {
    this.drain()
    clearInterval(this.refresh)
    if (this.publishing !== null) clearTimeout(this.publishing)
    for (const nodeId of [...this.asked.keys()]) this.unanswer(nodeId)
    for (const peer of [...this.remote.keys()]) this.forget(peer)
  }

  private answer(nodeId: string, held: Held): void {
    const entry = this.asked.get(nodeId)
    // A claim's subscription stays, because questions could be lost between two subscriptions.
    if (entry !== undefined) entry.held = held
    else this.asked.set(nodeId, { held, end: this.beAsked(nodeId) })
  }

  private beAsked(nodeId: string): () => void {
    const { bus, onAsked } = this.options
    return bus.answer(NODE_TOPIC, nodeId, async (asked) => {
      const question = nodeQuestion.parse(asked)
      const claim = this.asked.get(nodeId)?.held.claim ?? null
      if (claim === null) return onAsked(nodeId, question)
      return question.kind === 'claim' ? this.answerClaim(claim, question.by) : false
    })
  }

  /** Of simultaneous claims, the gateway with the lower id wins. */
  private answerClaim(claim: Claim, by: string): true | undefined {
    if (claim.state === 'asking' && by < this.options.bus.id) claim.state = 'lost'
    // A gateway that returns `undefined` leaves the answer to the other gateways.
    return claim.state === 'lost' ? undefined : true
  }

  private unanswer(nodeId: string): void {
    this.asked.get(nodeId)?.end()
    this.asked.delete(nodeId)
  }

  private publishChanged(): void {
    this.publishing = null
    this.publishedAtMs = performance.now()
    const changed = [...this.changedModels]
    this.changedModels.clear()
    this.publish(changed)
    for (const key of changed) if (this.local.get(key)?.size === 0) this.local.delete(key)
  }

  private publishAll(): void {
    this.publish([...this.local.keys()])
  }

  private publish(keys: readonly string[]): void {
    for (let from = 0; from < keys.length; from += OFFERS_PER_MESSAGE) {
      const part = keys.slice(from, from + OFFERS_PER_MESSAGE)
      const offersOf = (key: string) => (this.isDraining ? [] : (this.local.get(key) ?? []))
      const offers = part.map((key) => sumOffers(key, offersOf(key)))
      this.options.bus.publish(OFFERS_TOPIC, offers)
    }
  }

  private receive(peer: string, offers: readonly SharedOffer[]): void {
    const known =
      this.remote.get(peer) ?? new Map<string, { node: RemoteNode; receivedAtMs: number }>()
    this.remote.set(peer, known)
    for (const offer of offers) {
      const key = keyOf(offer.place, offer.model)
      const place = this.options.places[offer.place]
      const entry = known.get(key)
      if (entry === undefined && known.size >= MODELS_MAX) continue
      if (offer.connected === 0) {
        known.delete(key)
        this.remove(place, entry?.node)
      } else if (entry !== undefined && takesTheSame(entry.node, offer)) {
        entry.receivedAtMs = performance.now()
        entry.node.update(offer)
      } else {
        this.remove(place, entry?.node)
        known.set(key, { node: this.add(peer, place, offer), receivedAtMs: performance.now() })
      }
    }
  }

  private add(peer: string, { index, queue }: Place, offer: SharedOffer): RemoteNode {
    const onChanged = (node: RemoteNode) => {
      index.update(node)
      if (node.isAvailable()) queue.offer(node)
    }
    const node = new RemoteNode(offer, { bus: this.options.bus, peer, onChanged })
    index.add(node)
    if (node.isAvailable()) queue.offer(node)
    return node
  }

  private remove({ index }: Place, node: RemoteNode | undefined): void {
    if (node === undefined) return
    node.end()
    index.remove(node)
    for (const { model } of node.offers) index.expectReturn(model)
  }

  private expire(): void {
    const expiredMs = performance.now() - OFFER_EXPIRES_MS
    for (const known of this.remote.values())
      for (const [key, { node, receivedAtMs }] of known)
        if (receivedAtMs < expiredMs) {
          known.delete(key)
          this.remove(this.placeAt(key), node)
        }
  }

  private forget(peer: string): void {
    for (const [key, { node }] of this.remote.get(peer) ?? []) this.remove(this.placeAt(key), node)
    this.remote.delete(peer)
  }

  private placeAt(key: string): Place {
    const name = PLACES.find((one) => key.startsWith(`${one} `)) ?? 'chat'
    return this.options.places[name]
  }
}

const ASK_MARGIN_MS = 1_000
/** Maximum number of remembered models of another gateway. */
const MODELS_MAX = 10_000

function keyOf(place: PlaceName, model: string): string {
  return `${place} ${model}`
}

/** False if the index must count the node's abilities again. */
function takesTheSame(node: RemoteNode, offer: SharedOffer): boolean {
  const { abilities, takesLargeFrames } = node
  const isEqual = abilities.symmetricDifference(new Set(offer.abilities)).size === 0
  return takesLargeFrames === offer.large && isEqual
}

function sumOffers(key: string, offers: Iterable<Offer<NodeConnection>>): SharedOffer {
  const space = key.indexOf(' ')
  const sum = {
    place: key.slice(0, space) as PlaceName,
    model: key.slice(space + 1),
    connected: 0,
    nodes: 0,
    large: false,
    abilities: [] as string[],
    capacity: 0,
    in_use: 0,
  }
  let best: { readonly offer: Offer<NodeConnection>; readonly ms: number } | null = null
  for (const offer of offers) {
    const { node } = offer
    sum.connected++
    sum.large ||= node.takesLargeFrames
    sum.abilities = [...new Set([...sum.abilities, ...node.abilities])].sort()
    if (!node.isServing(offer.model)) continue
    sum.nodes++
    sum.capacity += node.slots.capacity
    sum.in_use += node.slots.inUse()
    if (!node.isAvailable(offer.model)) continue
    const ms = expectedMs(offer.speed, { inUse: node.slots.inUse(), capacity: node.slots.capacity })
    if (best === null || ms < best.ms) best = { offer, ms }
  }
  return {
    ...sum,
    first_token_ms: best?.offer.speed.firstTokenMs ?? null,
    tokens_per_second: best?.offer.speed.tokensPerSecond ?? null,
  }
}
