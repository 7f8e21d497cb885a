import { countDescriptors, descriptorsMax } from '../runtime/descriptors.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import type { Logger, Opening } from './logger.ts'

/** A warning is logged if this share of the descriptors is in use. */
const WARNING_SHARE = 0.8
const LOOK_INTERVAL_MS = 5_000
/** Shortest time between two warnings. */
const WARNING_INTERVAL_MS = 60_000

type Descriptors = {
  readonly count: () => number | null
  readonly max: number
  /** `silent`: connections that have sent no request yet. */
  readonly connections: () => Promise<{ readonly open: number; readonly silent: number }>
}

/** Logs when few descriptors are free, and when enough are free again. */
export function createDescriptorsLook(
  { count, max, connections }: Descriptors,
  log: Pick<Logger, 'warn' | 'info'>,
  now: () => number,
): () => Promise<void> {
  const warnings = createFaultLog(WARNING_INTERVAL_MS, now)
  let isShort = false
  return async () => {
    const descriptors = count() ?? 0
    const wasShort = isShort
    isShort = descriptors >= max * WARNING_SHARE
    if (!isShort && !wasShort) return
    const { open, silent } = await connections()
    const facts = { descriptors, descriptors_max: max, connections: open, silent }
    if (isShort && warnings.isDue()) log.warn(facts, 'file descriptors run out')
    if (isShort) return
    warnings.clear()
    log.info(facts, 'file descriptors suffice again')
  }
}

export function watchDescriptors(
  connections: Descriptors['connections'],
  { log, onStarted }: Opening,
): void {
  const descriptors = { count: countDescriptors, max: descriptorsMax(), connections }
  const look = createDescriptorsLook(descriptors, log, () => performance.now())
  const timer = setInterval(() => void look(), LOOK_INTERVAL_MS)
  timer.unref()
  onStarted(async () => clearInterval(timer))
}
