import { totalmem } from 'node:os'

/**
 * Memory that this process may use, bytes. It is the limit of its control group, which containers
 * and systemd set. Without such a limit it is all memory of the machine.
 */
export function memoryLimitBytes(): number {
  // Without a limit, it is 0 or larger than any machine's memory.
  const constrained = process.constrainedMemory()
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
}
