import { readdirSync, readFileSync } from 'node:fs'

/** Returns how many descriptors this process may open. Infinity when the system states no limit. */
export function descriptorsMax(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'utf8')
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY)
  } catch {
    return Number.POSITIVE_INFINITY
  }
}

/**
 * Counts the open descriptors. Null when the system does not list them. Counting needs a free
 * descriptor, so this returns the maximum when no descriptor is free.
 */
export function countDescriptors(): number | null {
  try {
    return readdirSync('/proc/self/fd').length
  } catch (error) {
    const { code } = error as { readonly code?: unknown }
    return code === 'EMFILE' || code === 'ENFILE' ? descriptorsMaxAtOpen : null
  }
}

/** Read once, because only other processes can change this limit. */
const descriptorsMaxAtOpen = descriptorsMax()
