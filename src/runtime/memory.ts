import { totalmem } from 'node:os'

/**
 * Returns the bytes that this process may use: the limit of its control group, set by a container
 * or systemd, or else all memory of the machine.
 */
export function memoryLimitBytes(): number {
  // Without a limit, constrainedMemory returns 0 or more than any machine's memory.
  const constrained = process.constrainedMemory()
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
}
