import { openProcessLogger } from '../observability/logger.ts'
import { StartFailure } from '../runtime/starting.ts'
import { startAnvil } from './local-chain.ts'

/** The message of run-chain to its parent process. */
type ChainReady = {
  readonly kind: 'ready'
  readonly rpcUrl: string
  readonly chainId: number
  /** 0x, lower case. */
  readonly contract: string
  readonly relayerKey: string
}

/**
 * A program: the local chain with the contract, on a free port, without a gateway. Usage: `node
 * run-chain.ts FOLDER`, with an IPC channel. Ends when the channel closes, or at SIGTERM.
 */
const [folder] = process.argv.slice(2)
if (process.send === undefined || folder === undefined) {
  process.stderr.write('run-chain: expected a folder, and a parent with an IPC channel\n')
  process.exit(2)
}
await run(folder).catch((error: unknown) => {
  if (!(error instanceof StartFailure)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exit(1)
})

async function run(folder: string): Promise<void> {
  const log = await openProcessLogger('warn')
  const chain = await startAnvil({ folder, port: 0, log })
  const stop = async () => {
    await chain.stop()
    process.exit(0)
  }
  process.once('disconnect', stop)
  process.once('SIGTERM', stop)
  process.once('SIGINT', () => undefined)
  const { rpcUrl, chainId, contract, relayerKey } = chain
  const ready: ChainReady = { kind: 'ready', rpcUrl, chainId, contract, relayerKey }
  process.send?.(ready)
}
