import type { GatewayConfig } from '../config.ts'
import type { Logger } from '../observability/logger.ts'

/**
 * Warns when every account may read everybody's completions. Not in development: there all accounts
 * are one's own.
 */
export function warnOfOpenHistory(
  { isHistoryOpen, isProduction }: Pick<GatewayConfig, 'isHistoryOpen' | 'isProduction'>,
  log: Pick<Logger, 'warn'>,
): void {
  if (isHistoryOpen && isProduction)
    log.warn({}, "HISTORY_ALL is true: every account reads everybody's prompts and answers")
}
