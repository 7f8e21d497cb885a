import { totalmem } from 'node:os'

/**
 * Returns the memory that this process may use, bytes. It is the limit of the process's control
 * group, which containers and systemd set. Without such a limit, it is all memory of the machine.
 */
export function memoryLimitBytes(): number {
  // If there is no limit, this value is 0 or larger than any machine's memory.
  const constrained = process.constrainedMemory()
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
}
