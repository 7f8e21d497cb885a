import type { Opening } from './observability/logger.ts'

/** How often a staging gateway says in its log what it is. */
const STAGING_NOTICE_MS = 10 * 60_000

/**
 * In staging, warns now, and again every STAGING_NOTICE_MS, that the security module is simulated:
 * every hour of the log shows it.
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
