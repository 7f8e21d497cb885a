import type { Opening } from './observability/logger.ts'

/** How often a staging gateway logs that it is a staging system. */
const STAGING_NOTICE_MS = 10 * 60_000

/**
 * In staging, logs a warning that the security module is simulated, now and every
 * STAGING_NOTICE_MS. So each hour of the log contains the warning.
 */
export function warnOfStaging(
  { isStaging }: { readonly isStaging: boolean },
  { log, onStarted }: Opening,
): void {
  if (!isStaging) return
  const warn = () =>
    log.warn(
      {},
      'STAGING: the security module is simulated, and no evidence of this gateway proves anything (AFFIDAVIT_STAGING)',
    )
  warn()
  const timer = setInterval(warn, STAGING_NOTICE_MS)
  timer.unref()
  onStarted(async () => clearInterval(timer))
}
