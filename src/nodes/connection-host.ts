import type { Logger } from '../observability/logger.ts'
import type { Circuit } from './circuit.ts'
import type { ImageHouse } from './image-house.ts'
import type { NodeLimits } from './limits.ts'
import type { NodeConnection } from './node-connection.ts'
import type { NodeRun, RunResult } from './node-run.ts'

/** What a connection tells the house it lives in. */
export type ConnectionHost = {
  readonly limits: NodeLimits
  /** Milliseconds. */
  readonly now: () => number
  /** From 0 to below 1. */
  readonly random: () => number
  /** Unguessable: a node can then not know other nodes' request ids, nor answer a ping that it did not get. */
  readonly makeId: () => string
  readonly log: Logger
  /** What DIFFUSION nodes share. */
  readonly images: Pick<ImageHouse, 'budget' | 'runs'>
  /** Whether it is available or serving may have changed. */
  onChange(node: NodeConnection): void
  /** It may have a slot for somebody who waits. */
  onFree(node: NodeConnection): void
  /** Its state is another one, to be stored. */
  onState(node: NodeConnection): void
  /** What an earlier connection of the node left of its circuit. */
  recall(nodeId: string): Circuit
  /** A run began. */
  onOpened(run: NodeRun): void
  onSettled(node: NodeConnection, run: NodeRun, result: RunResult): void
  /** The node finished an answer. */
  onServed(node: NodeConnection, run: NodeRun): void
  onClosed(run: NodeRun): void
  /** The connection is over; told once, before its socket is. */
  onGone(node: NodeConnection, why: string): void
}
