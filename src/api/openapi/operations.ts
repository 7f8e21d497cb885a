import type { Operation } from './operation.ts'
import { completionOperations } from './operations/completions.ts'
import { imageOperations } from './operations/images.ts'
import { logOperations } from './operations/logs.ts'
import { nodeOperations } from './operations/nodes.ts'
import { serviceOperations } from './operations/service.ts'

/** Every operation that is documented: all routes but those of the documentation itself. */
export const OPERATIONS: readonly Operation[] = [
  ...completionOperations,
  ...imageOperations,
  ...serviceOperations,
  ...nodeOperations,
  ...logOperations,
]
