import type { Logger } from './observability/logger.ts'

/** What every answer of a staging gateway carries. */
export const STAGING_HEADERS: Readonly<Record<string, string>> = { 'affidavit-staging': 'true' }

/** How often a staging gateway says in its log what it is. */
export const STAGING_NOTICE_MS = 10 * 60_000

/**
 * Warns now, and again every STAGING_NOTICE_MS, that the security module is simulated: every hour
 * of the log shows it. Gives what ends that.
 */
export function warnOfStaging(log: Pick<Logger, 'warn'>): () => Promise<void> {
  const warn = () =>
    log.warn(
      {},
      'STAGING: the security module is simulated, and no evidence of this gateway proves anything (AFFIDAVIT_STAGING)',
    )
  warn()
  const timer = setInterval(warn, STAGING_NOTICE_MS)
  timer.unref()
  return async () => clearInterval(timer)
}
