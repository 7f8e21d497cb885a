import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Rpc } from '#client/rpc.ts'
import { DEVELOPMENT_CHAIN_ID } from '../chain/open-chain.ts'
import type { Logger } from '../observability/logger.ts'
import { loadOptional } from '../runtime/starting.ts'
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts'

const START_TIMEOUT_MS = 60_000
const READY_POLL_MS = 10

/** The message contains anvil's output. */
export class AnvilFailure extends Error {
  override readonly name = 'AnvilFailure'
  readonly code: 'port_taken' | 'ended' | 'not_ready'
  constructor(code: AnvilFailure['code'], message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Starts anvil on 127.0.0.1. `stateFile` null starts a new chain. The caller must connect `rpc` to
 * this anvil. Throws AnvilFailure; its code `ended` can mean that anvil cannot read the state.
 */
export async function startAnvilProcess({
  port,
  rpc,
  stateFile,
  log,
}: {
  readonly port: number
  readonly rpc: Rpc
  readonly stateFile: string | null
  readonly log: Logger
}): Promise<GuardedProcess> {
  const binary = await findAnvilBinary(process.platform, process.arch)
  const state = stateFile === null ? [] : ['--load-state', stateFile]
  const anvil = await spawnGuarded('anvil', [binary, ...argumentsOf(port), ...state], log)
  let hasEnded = false
  void anvil.ended.then(() => {
    hasEnded = true
  })
  const until = performance.now() + START_TIMEOUT_MS
  while (!hasEnded) {
    if (await startClock(rpc)) return anvil
    if (performance.now() > until) {
      await anvil.stop()
      throw new AnvilFailure('not_ready', `no answer within ${START_TIMEOUT_MS} ms`)
    }
    await sleep(READY_POLL_MS)
  }
  const said = anvil.said()
  throw new AnvilFailure(/address already in use/i.test(said) ? 'port_taken' : 'ended', said)
}

function argumentsOf(port: number): readonly string[] {
  return [
    '--host',
    '127.0.0.1',
    '--port',
    `${port}`,
    '--chain-id',
    `${DEVELOPMENT_CHAIN_ID}`,
    '--quiet',
    // No page in a browser may use the chain.
    '--no-cors',
    // Old states cost memory, so anvil drops them. All transactions and receipts are kept.
    '--prune-history',
    '64',
    // More ether than any number of anchors costs.
    '--balance',
    '1000000000',
    // anvil does not check the genesis in a dump, so a fixed time gives all starts the same
    // genesis.
    '--timestamp',
    `${GENESIS_SECONDS}`,
    // Transactions wait until startClock has set the time.
    '--no-mining',
  ]
}

/** An arbitrary date: 2023-11-14. */
const GENESIS_SECONDS = 1_700_000_000

/** False while anvil does not answer. */
async function startClock(rpc: Rpc): Promise<boolean> {
  try {
    await rpc.call('evm_setTime', [Math.floor(Date.now() / 1000)])
    await rpc.call('evm_setAutomine', [true])
    return true
  } catch {
    return false
  }
}

/**
 * Returns the path of anvil's own executable. The package's `anvil` command is a Node.js program:
 * after a SIGKILL of that program, anvil would continue. Throws StartFailure when the optional
 * package is not installed, and Error when the package has no build for this platform.
 */
export async function findAnvilBinary(
  platform: NodeJS.Platform,
  architecture: string,
): Promise<string> {
  const build = `@foundry-rs/anvil-${platform}-${architecture === 'x64' ? 'amd64' : architecture}`
  const locate = () => {
    // npm may install the build in the `node_modules` folder of the anvil package.
    const anvil = createRequire(import.meta.url).resolve('@foundry-rs/anvil/package.json')
    const fromAnvil = createRequire(anvil)
    if (fromAnvil(anvil).optionalDependencies[build] === undefined)
      throw new Error(`anvil has no build for ${platform} ${architecture}`)
    return dirname(fromAnvil.resolve(`${build}/package.json`))
  }
  const folder = await loadOptional('@foundry-rs/anvil', locate, {
    purpose: 'anvil',
    instead: 'set CHAIN_RPC_URL, RELAYER_PRIVATE_KEY and CONTRACT_ADDRESS',
  })
  return join(folder, 'bin', platform === 'win32' ? 'anvil.exe' : 'anvil')
}
