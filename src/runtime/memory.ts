import { totalmem } from 'node:os'

/**
 * Memory that this process may use, bytes: what its control group gives it, as containers and
 * systemd set it, else all of the machine's.
 */
export function memoryLimitBytes(): number {
  // 0, or more than any machine has, without a limit.
  const constrained = process.constrainedMemory()
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
}
