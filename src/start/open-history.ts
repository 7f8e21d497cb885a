import type { GatewayConfig } from '../config.ts'
import type { Logger } from '../logger.ts'

/** Warns where every account may read everybody's completions, unless it is development, whose accounts are one's own. */
export function warnOfOpenHistory(
  { isHistoryOpen, isProduction }: Pick<GatewayConfig, 'isHistoryOpen' | 'isProduction'>,
  log: Pick<Logger, 'warn'>,
): void {
  if (isHistoryOpen && isProduction)
    log.warn({}, "HISTORY_ALL is true: every account reads everybody's prompts and answers")
}
