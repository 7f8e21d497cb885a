import { expectedMs, type Measurement, UNMEASURED } from './measurements.ts'
import type { NodeConnection } from './node-connection.ts'

/** One node with one of its models: what a call is given to. */
export type Lane = {
  readonly node: NodeConnection
  readonly model: string
  measurement: Measurement
  /** Where it stands among the available lanes of its model; -1 when it is not among them. */
  position: number
  isCounted: boolean
}

/** A lane that was not measured yet, outside any index. */
export function openLane(node: NodeConnection, model: string): Lane {
  return { node, model, measurement: UNMEASURED, position: -1, isCounted: false }
}

/** Connected nodes by model. Picking takes the same time whatever their number. */
export type NodeIndex = {
  add(node: NodeConnection): void
  remove(node: NodeConnection): void
  /** To be told whenever a node's state, slots or circuit changed. */
  update(node: NodeConnection): void
  /** The lane with the best expected time among few; among many, the better of two picked at random. */
  pick(model: string, isExcluded: (node: NodeConnection) => boolean): Lane | null
  /** Whether a node of the model is or was connected, or had offered it before this process began. */
  isKnown(model: string): boolean
  /** Whether a node of the model is RUNNING and not set aside. */
  isServed(model: string): boolean
  /** Connected nodes of the model, in whatever state. */
  connected(model: string): number
  /** Of these, those that take large frames. */
  connectedLarge(model: string): number
  /** Models with nodes that are RUNNING and not set aside, by name. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
}

/** Up to so many available nodes all are compared. */
export const COMPARED_MAX = 4
/** Models remembered that no connected node has any more. */
export const IDLE_MODELS_MAX = 10_000

type ModelLanes = { connected: number; large: number; running: number; readonly available: Lane[] }

/** An index without nodes, that knows the models `offeredModels`. `random` gives numbers from 0 to below 1. */
export function createNodeIndex({
  random,
  offeredModels,
}: {
  readonly random: () => number
  readonly offeredModels: readonly string[]
}): NodeIndex {
  const models = new Map<string, ModelLanes>()
  for (const model of offeredModels) lanesOf(model)

  function lanesOf(model: string): ModelLanes {
    const known = models.get(model)
    if (known !== undefined) return known
    const made = { connected: 0, large: 0, running: 0, available: [] }
    models.set(model, made)
    return made
  }

  function update(node: NodeConnection): void {
    for (const lane of node.lanes) {
      const lanes = models.get(lane.model)
      if (lanes === undefined) continue
      countLane(lanes, lane)
      placeLane(lanes.available, lane, node.isAvailable())
    }
  }

  return {
    add(node) {
      for (const { model } of node.lanes) {
        const lanes = lanesOf(model)
        lanes.connected++
        if (node.takesLargeFrames) lanes.large++
        // Newest last, so that the model that was longest unused is forgotten first.
        models.delete(model)
        models.set(model, lanes)
      }
      update(node)
    },
    remove(node) {
      update(node)
      for (const { model } of node.lanes) {
        const lanes = lanesOf(model)
        lanes.connected--
        if (node.takesLargeFrames) lanes.large--
      }
      forgetIdle(models)
    },
    update,
    pick(model, isExcluded) {
      const available = models.get(model)?.available ?? []
      if (available.length > COMPARED_MAX) {
        const picked = better(draw(available, isExcluded, random), draw(available, isExcluded, random))
        if (picked !== null) return picked
      }
      return bestOf(available, isExcluded)
    },
    isKnown: (model) => models.has(model),
    isServed: (model) => (models.get(model)?.running ?? 0) > 0,
    connected: (model) => models.get(model)?.connected ?? 0,
    connectedLarge: (model) => models.get(model)?.large ?? 0,
    models: () =>
      [...models]
        .filter(([, { running }]) => running > 0)
        .map(([model, { running }]) => ({ model, nodes: running }))
        .sort((left, right) => (left.model < right.model ? -1 : 1)),
  }
}

function countLane(lanes: ModelLanes, lane: Lane): void {
  const isCounted = lane.node.isServing()
  if (isCounted === lane.isCounted) return
  lane.isCounted = isCounted
  lanes.running += isCounted ? 1 : -1
}

/** The last lane takes the place of one that leaves, so that the array stays dense. */
function placeLane(available: Lane[], lane: Lane, isAvailable: boolean): void {
  if (isAvailable === lane.position >= 0) return
  if (isAvailable) {
    lane.position = available.push(lane) - 1
    return
  }
  const last = available.pop()
  if (last !== undefined && last !== lane) {
    available[lane.position] = last
    last.position = lane.position
  }
  lane.position = -1
}

/** A handful of draws: at most two nodes are excluded, so failing all is rare, and then all lanes are looked at. */
function draw(
  available: readonly Lane[],
  isExcluded: (node: NodeConnection) => boolean,
  random: () => number,
): Lane | null {
  for (let attempt = 0; attempt < DRAWS_MAX; attempt++) {
    const lane = available[Math.floor(random() * available.length)]
    if (lane !== undefined && !isExcluded(lane.node)) return lane
  }
  return null
}

const DRAWS_MAX = 8

function bestOf(available: readonly Lane[], isExcluded: (node: NodeConnection) => boolean): Lane | null {
  let best: Lane | null = null
  for (const lane of available) if (!isExcluded(lane.node)) best = better(best, lane)
  return best
}

function better(left: Lane | null, right: Lane | null): Lane | null {
  if (left === null || right === null) return left ?? right
  return laneMs(right) < laneMs(left) ? right : left
}

function laneMs({ measurement, node }: Lane): number {
  return expectedMs(measurement, { inUse: node.slots.inUse(), capacity: node.slots.capacity })
}

function forgetIdle(models: Map<string, ModelLanes>): void {
  if (models.size <= IDLE_MODELS_MAX) return
  for (const [model, { connected }] of models) {
    if (connected === 0) models.delete(model)
    if (models.size <= IDLE_MODELS_MAX) return
  }
}
