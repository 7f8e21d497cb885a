import { readdirSync, readFileSync } from 'node:fs'

/** Descriptors that this process may have open; infinity where the system does not say. */
export function descriptorsMax(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'utf8')
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY)
  } catch {
    return Number.POSITIVE_INFINITY
  }
}

/**
 * Descriptors that are open now; null where the system does not say. Counting needs a descriptor:
 * when all are used, it gives the maximum.
 */
export function countDescriptors(): number | null {
  try {
    return readdirSync('/proc/self/fd').length
  } catch (error) {
    const { code } = error as { readonly code?: unknown }
    return code === 'EMFILE' || code === 'ENFILE' ? descriptorsMaxAtOpen : null
  }
}

/** Only other processes raise or lower this limit. */
const descriptorsMaxAtOpen = descriptorsMax()
