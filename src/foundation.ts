import { type Anchoring, startAnchoring } from './chain/anchoring.ts'
import { type Chain, connectChain } from './chain/open-chain.ts'
import type { GatewayConfig } from './config.ts'
import type { LocalEnclaves } from './local/enclave-process.ts'
import { LOCAL_DOMAIN, startLocalChain } from './local/local-chain.ts'
import type { Logger } from './observability/logger.ts'
import { settleAll } from './runtime/starting.ts'
import type { Home } from './storage/data-folder.ts'
import { type Database, startDatabase } from './storage/database.ts'

/**
 * Parts that a test brings, each in the place of the part that the configuration asks for. Both are
 * ended with the gateway.
 */
export type OwnFoundation = {
  readonly database?: Database
  /** No chain is opened then. */
  readonly anchoring?: Anchoring
}

/** What the gateway stands on, each the operator's or one that was started here. */
type Foundation = {
  readonly database: Database
  /** Null when a test brings its own anchoring. */
  readonly chain: Chain | null
  readonly anchoring: Anchoring
  /** Null when the enclaves are the operator's. */
  readonly local: LocalEnclaves | null
}

/**
 * Starts or connects all parts at once, and gives each that could be started to `onStarted`, also
 * when another fails; the local enclaves are left to the caller, who ends them among what follows
 * their logs. Rejects with StartFailure, which reports every failure.
 */
export async function startFoundation(
  config: GatewayConfig,
  own: OwnFoundation,
  {
    home,
    onStarted,
    log,
  }: {
    readonly home: Home | null
    readonly onStarted: (stop: () => Promise<void>) => void
    readonly log: Logger
  },
): Promise<Foundation> {
  const track = async <Part>(starting: Promise<Part>, stop: (part: Part) => Promise<void>) => {
    const part = await starting
    onStarted(() => stop(part))
    return part
  }
  // Known only later, and notified of the chain's restarts from then on.
  const later: { anchoring?: Anchoring } = {}
  const starting = {
    database: own.database
      ? Promise.resolve(own.database)
      : startDatabase(
          {
            url: config.databaseUrl,
            dataFolder: config.dataFolder,
            contentKeys: config.contentKeys,
          },
          log,
        ),
    chain: own.anchoring
      ? Promise.resolve(null)
      : openChain(config, { log, onRestart: () => later.anchoring?.notify() }),
  }
  const [database, chain, local] = await settleAll([
    track(starting.database, (part) => part.close()),
    track(starting.chain, async (part) => part?.stop()),
    track(startEnclaveParts(config, own, { home, chain: starting.chain, log }), async (part) =>
      part?.stop(),
    ),
  ])
  const anchoring =
    own.anchoring ??
    startAnchoring({
      database,
      chain: present(chain),
      log,
      confirmations: config.confirmations,
      fees: config.fees,
    })
  later.anchoring = anchoring
  onStarted(() => anchoring.stop())
  return { database, chain, anchoring, local }
}

function openChain(
  { chain, dataFolder, isProduction }: GatewayConfig,
  { log, onRestart }: { readonly log: Logger; readonly onRestart: () => void },
): Promise<Chain> {
  if (chain.kind === 'remote') return connectChain(chain, { isProduction, log })
  return startLocalChain({ folder: dataFolder, port: chain.port, log, onRestart })
}

/** Null when the enclaves are the operator's. */
async function startEnclaveParts(
  { enclave, chain, shutdownGraceMs }: GatewayConfig,
  own: OwnFoundation,
  parts: {
    readonly home: Home | null
    readonly chain: Promise<Chain | null>
    readonly log: Logger
  },
): Promise<LocalEnclaves | null> {
  if (enclave.kind === 'remote') return null
  const { home, log } = parts
  if (home === null) throw new TypeError('expected a data folder for a local enclave')
  // The local chain's domain is known before it runs.
  const domain =
    own.anchoring || chain.kind === 'local'
      ? Promise.resolve(own.anchoring?.domain ?? LOCAL_DOMAIN)
      : parts.chain.then(present)
  // With it come the software NSM and the sources it measures, which production does not have.
  const { startLocalEnclaves } = await import('./local/enclave-process.ts')
  return startLocalEnclaves({ ...enclave, home, domain, shutdownGraceMs }, log)
}

function present<Part>(part: Part | null): Part {
  if (part === null) throw new TypeError('expected a chain')
  return part
}
