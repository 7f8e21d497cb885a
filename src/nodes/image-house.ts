import { createImageBudget, type ImageBudget } from './image-budget.ts'
import type { ImageRun } from './image-run.ts'
import type { NodeLimits } from './limits.ts'
import { createNodeIndex, type NodeIndex } from './node-index.ts'
import { createWaitQueue, type WaitQueue } from './wait-queue.ts'

/** What connected DIFFUSION nodes share. Chat has an index and a queue of its own: a model of the same name is another one. */
export type ImageHouse = {
  readonly index: NodeIndex
  readonly queue: WaitQueue
  readonly budget: ImageBudget
  /** Those that are not over. */
  readonly runs: Set<ImageRun>
  /** Acts on deadlines of runs and waiting callers. */
  checkDeadlines(nowMs: number): void
}

/** An empty one. Models are known once a node offered them in this process: the registry does not say what a model is for. */
export function createImageHouse(limits: NodeLimits, random: () => number): ImageHouse {
  const runs = new Set<ImageRun>()
  const queue = createWaitQueue(limits)
  return {
    index: createNodeIndex({ random, offeredModels: [] }),
    queue,
    budget: createImageBudget(limits.imageBytesMax),
    runs,
    checkDeadlines(nowMs) {
      for (const run of runs) run.check(nowMs)
      queue.sweep(nowMs)
    },
  }
}
