import { totalmem } from 'node:os'

/**
 * Bytes that this process may use: the limit of its control group, which containers and systemd
 * set, else all memory of the machine.
 */
export function memoryLimitBytes(): number {
  // Without a limit, this is 0 or larger than any machine's memory.
  const constrained = process.constrainedMemory()
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
}
