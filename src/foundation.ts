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
 * Parts that a test supplies in place of the configured parts. The gateway ends these parts when it
 * stops.
 */
export type OwnFoundation = {
  /** Null: there is no data folder, and no key is made. */
  readonly home?: null
  readonly database?: Database
  /** If a test supplies this, the gateway opens no chain. */
  readonly anchoring?: Anchoring
}

/**
 * The parts that the gateway needs. The operator runs some of them, and the gateway starts the
 * others.
 */
export type Foundation = {
  /** Null in production: the gateway then stores no data on its machine. */
  readonly home: Home | null
  readonly database: Database
  /** Null when a test supplies its own anchoring. */
  readonly chain: Chain | null
  readonly anchoring: Anchoring
  /** Null if the operator runs the enclaves, so this gateway starts none. */
  readonly local: LocalEnclaves | null
}

/**
 * Opens the data folder, then starts or connects all parts at the same time. Passes each started
 * part to `onStarted`, even if another part fails. Rejects with StartFailure, which reports every
 * failure. The enclave pool ends the local enclaves before it stops reading their logs.
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
  // `later.anchoring` is set below. `onRestart` then notifies anchoring of a restart of the chain.
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

/** Returns null if the operator runs the enclaves, so this gateway starts none. */
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
  // The local chain's domain is known before the chain runs.
  const domain =
    own.anchoring || chain.kind === 'local'
      ? Promise.resolve(own.anchoring?.domain ?? LOCAL_DOMAIN)
      : parts.chain.then(present)
  // Loaded only here, because production images lack some of these files.
  const { startLocalEnclaves } = await import('./local/enclave-process.ts')
  return startLocalEnclaves({ ...enclave, home, domain, shutdownGraceMs }, log)
}

function present<Part>(part: Part | null): Part {
  if (part === null) throw new TypeError('expected a chain')
  return part
}
