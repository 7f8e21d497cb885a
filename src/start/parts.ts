import { join } from 'node:path'
import type { GatewayConfig } from '../config.ts'
import { startDemoProvider } from '../local/demo-provider.ts'
import { startEnclaveProcess } from '../local/enclave-process.ts'
import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import { type Chain, connectChain, LOCAL_DOMAIN, startLocalChain } from './chain.ts'
import { startDatabase } from './database.ts'
import type { Home } from './home.ts'
import { settleAll } from './settle-all.ts'

/** What the gateway stands on, each the operator's or one that was started here. */
export type Parts = readonly [Database, Chain, EnclavePart]

export type EnclavePart = {
  /** Where they listen. */
  readonly socketPaths: readonly string[]
  /** Null when they are the operator's. */
  readonly local: {
    /** Certificate of the root that their attestation documents lead to. */
    readonly rootFile: string
    /** Where the demo provider listens. */
    readonly demoOrigin: string
  } | null
  stop(): Promise<void>
}

/**
 * Starts or connects all parts at once, and gives each that could be started to `onStarted`, also when another fails.
 * Rejects with StartFailure, which tells every failure.
 */
export function startParts(
  config: GatewayConfig,
  options: {
    readonly home: Home | null
    readonly log: Logger
    readonly onStarted: (stop: () => Promise<void>) => void
    readonly onChainRestart: () => void
  },
): Promise<Parts> {
  const { onStarted } = options
  const database = startDatabase({ url: config.databaseUrl, dataFolder: config.dataFolder }, options.log)
  const chain = openChain(config, options)
  const enclave = openEnclave(config, { ...options, chain })
  return settleAll<Parts>([
    database.then((part) => note(part, () => part.close())),
    chain.then((part) => note(part, () => part.stop())),
    enclave.then((part) => note(part, () => part.stop())),
  ])

  function note<Part>(part: Part, stop: () => Promise<void>): Part {
    onStarted(stop)
    return part
  }
}

function openChain(
  { chain, dataFolder, isProduction }: GatewayConfig,
  { log, onChainRestart }: { readonly log: Logger; readonly onChainRestart: () => void },
): Promise<Chain> {
  if (chain.kind === 'remote') return connectChain(chain, { isProduction, log })
  return startLocalChain({ dataFolder, port: chain.port, log, onRestart: onChainRestart })
}

async function openEnclave(
  config: GatewayConfig,
  { home, log, chain }: { readonly home: Home | null; readonly log: Logger; readonly chain: Promise<Chain> },
): Promise<EnclavePart> {
  if (config.enclave.kind === 'remote')
    return { socketPaths: config.enclave.socketPaths, local: null, stop: async () => undefined }
  if (home === null) throw new TypeError('expected a data folder for a local enclave')
  const { count, variables, demoVariables } = config.enclave
  const [demo, { chainId, contract }] = await settleAll([
    startDemoProvider(demoVariables, log),
    // The local chain's domain is known before it runs.
    config.chain.kind === 'local' ? Promise.resolve(LOCAL_DOMAIN) : chain,
  ])
  const socketPaths = Array.from({ length: count }, (_, index) =>
    join(home.privateFolder, index === 0 ? 'enclave.sock' : `enclave-${index + 1}.sock`),
  )
  const rootFolder = join(home.dataFolder, 'nsm')
  try {
    const options = {
      chainId,
      contract,
      demoOrigin: demo.ready.origin,
      nsmRootFile: join(rootFolder, 'root.pem'),
      shutdownGraceMs: config.shutdownGraceMs,
      variables,
    }
    const enclaves = await startTogether(
      socketPaths.map((socketPath) => startEnclaveProcess({ ...options, socketPath }, log)),
    )
    return {
      socketPaths,
      local: { rootFile: join(rootFolder, 'root.crt.pem'), demoOrigin: demo.ready.origin },
      stop: async () => {
        await Promise.all(enclaves.map((enclave) => enclave.stop()))
        await demo.stop()
      },
    }
  } catch (error) {
    await demo.stop()
    throw error
  }
}

/** All, or none: those that started are ended again when one did not. */
async function startTogether<Part extends { stop(): Promise<void> }>(
  starting: readonly Promise<Part>[],
): Promise<readonly Part[]> {
  try {
    return await settleAll<readonly Part[]>(starting)
  } catch (error) {
    const outcomes = await Promise.allSettled(starting)
    await Promise.all(
      outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value.stop() : null)),
    )
    throw error
  }
}
