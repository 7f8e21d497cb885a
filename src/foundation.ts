import { type Anchoring, openAnchoring } from './chain/anchoring.ts'
import { type Chain, connectChain } from './chain/open-chain.ts'
import type { GatewayConfig } from './config.ts'
import type { LocalEnclaves } from './local/enclave-process.ts'
import { LOCAL_DOMAIN, startLocalChain } from './local/local-chain.ts'
import type { Logger, Opening } from './observability/logger.ts'
import { settleAll } from './runtime/starting.ts'
import { type Home, openHome } from './storage/data-folder.ts'
import { type Database, startDatabase } from './storage/database.ts'

/**
 * Parts that a test brings, each in the place of the part that the configuration asks for. They are
 * ended with the gateway.
 */
export type OwnFoundation = {
  /** Null: nothing is kept in a data folder, and no key is made. */
  readonly home?: null
  readonly database?: Database
  /** No chain is opened then. */
  readonly anchoring?: Anchoring
}

/** What the gateway stands on, each the operator's or one that was started here. */
type Foundation = {
  /** Null in production, which keeps nothing on this machine. */
  readonly home: Home | null
  readonly database: Database
  /** Null when a test brings its own anchoring. */
  readonly chain: Chain | null
  readonly anchoring: Anchoring
  /** Null when the enclaves are the operator's. */
  readonly local: LocalEnclaves | null
}

/**
 * Opens the data folder; then starts or connects all parts at once, and gives each that could be
 * started to `onStarted`, also when another fails. The pool of enclaves ends the local ones, before
 * it ends what follows their logs. Rejects with StartFailure, which reports every failure.
 */
export async function startFoundation(
  config: GatewayConfig,
  own: OwnFoundation,
  { log, onStarted }: Opening,
): Promise<Foundation> {
  const home = config.isProduction || own.home === null ? null : await openHome(config.dataFolder)
  if (home !== null) onStarted(() => home.leave())
  const track = async <Part>(starting: Promise<Part>, stop: (part: Part) => Promise<void>) => {
    const part = await starting
    onStarted(() => stop(part))
    return part
  }
  // Known only later, and notified of the chain's restarts from then on.
  const later: { anchoring?: Anchoring } = {}
  const { databaseUrl: url, dataFolder, contentKeys } = config
  const starting = {
    database: own.database
      ? Promise.resolve(own.database)
      : startDatabase({ url, dataFolder, contentKeys }, log),
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
    own.anchoring ?? openAnchoring(config, { database, chain: present(chain), log, onStarted })
  later.anchoring = anchoring
  return { home, database, chain, anchoring, local }
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
