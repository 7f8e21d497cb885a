import type { GatewayConfig } from '../config.ts'
import { type AcceptedReleases, openAcceptedReleases } from '../enclaves/accepted-releases.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../observability/logger.ts'

/**
 * Reads the accepted releases, and again when the file changes and on SIGHUP, which is no reason to end in production either way;
 * null when none are configured, which production is warned of. It does not refuse that: what holds the operator to a release is that customers check measurements themselves, and
 * a first deployment has no signed list yet. Rejects with StartFailure.
 */
export async function startReleases(
  { releases: config, isProduction }: Pick<GatewayConfig, 'releases' | 'isProduction'>,
  { onStarted, log }: { readonly onStarted: (stop: () => Promise<void>) => void; readonly log: Logger },
): Promise<AcceptedReleases | null> {
  const onHangup = (listener: () => void) => {
    process.on('SIGHUP', listener)
    onStarted(async () => void process.off('SIGHUP', listener))
  }
  if (config === null) {
    if (!isProduction) return null
    const missing = 'ENCLAVE_RELEASES_FILE is not set: enclaves are used whatever code they measure'
    log.warn({}, missing)
    onHangup(() => log.warn({}, missing))
    return null
  }
  const releases = await openAcceptedReleases(config, { log }).catch((error: unknown) => {
    const reason = error instanceof Error ? error.message : 'unknown fault'
    throw new StartFailure(`enclave: ENCLAVE_RELEASES_FILE ${config.file}: ${reason}`)
  })
  onHangup(() => void releases.reload())
  onStarted(async () => releases.stop())
  return releases
}
