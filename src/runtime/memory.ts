import { totalmem } from 'node:os'

/**
 * Returns the bytes that each of `processes` may use: an equal share of the limit of their control
 * group, set by a container or systemd, or else of all memory of the machine.
 */
export function memoryLimitBytes(processes: number): number {
  // Without a limit, constrainedMemory returns 0 or more than any machine's memory.
  const constrained = process.constrainedMemory()
  const limit = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
  return Math.floor(limit / processes)
}
