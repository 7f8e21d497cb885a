import { countDescriptors, descriptorsMax } from '../runtime/descriptors.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import type { Logger, Opening } from './logger.ts'

/** Share of the descriptors from which on a warning is logged. */
const WARNING_SHARE = 0.8
const LOOK_INTERVAL_MS = 5_000
/** A line in so long, as long as it lasts. */
const WARNING_INTERVAL_MS = 60_000

/** What is looked at. */
type Descriptors = {
  readonly count: () => number | null
  readonly max: number
  /** Open connections of the API, and those of them that have sent no request. */
  readonly connections: () => Promise<{ readonly open: number; readonly silent: number }>
}

/** Gives a look that logs when descriptors are about to run out, and when that is over. */
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

/** Looks now and then at the descriptors of this process, until the gateway stops. */
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
