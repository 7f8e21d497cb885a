import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Rpc } from '../../client/rpc.ts'
import { DEVELOPMENT_CHAIN_ID } from '../chain/open-chain.ts'
import { loadOptional } from '../runtime/starting.ts'
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts'

const START_TIMEOUT_MS = 60_000
const READY_POLL_MS = 10

/** anvil ended, or did not answer in time, at its start. The message is what it said. */
export class AnvilFailure extends Error {
  override readonly name = 'AnvilFailure'
  readonly code: 'port_taken' | 'ended' | 'not_ready'
  constructor(code: AnvilFailure['code'], message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Starts anvil on 127.0.0.1 with the state in `stateFile`, or with a new chain for null, and
 * resolves when `rpc`, which must lead there, is answered. Rejects with AnvilFailure; `ended` is
 * also what it does on a state that it cannot read.
 */
export async function startAnvilProcess(options: {
  readonly port: number
  readonly rpc: Rpc
  readonly stateFile: string | null
}): Promise<GuardedProcess> {
  const anvil = await spawnGuarded({
    command: await findAnvilBinary(process.platform, process.arch),
    arguments: argumentsOf(options),
    environment: {},
    output: 'capture',
    // Nothing to end in peace: its state was saved, or is not wanted.
    graceMs: 0,
  })
  let hasEnded = false
  void anvil.exited.then(() => {
    hasEnded = true
  })
  const until = performance.now() + START_TIMEOUT_MS
  while (!hasEnded) {
    if ((await options.rpc.call('eth_chainId', []).catch(() => null)) !== null) return anvil
    if (performance.now() > until) {
      await anvil.stop()
      throw new AnvilFailure('not_ready', `no answer within ${START_TIMEOUT_MS} ms`)
    }
    await sleep(READY_POLL_MS)
  }
  const said = anvil.outputTail()
  throw new AnvilFailure(/address already in use/i.test(said) ? 'port_taken' : 'ended', said)
}

function argumentsOf(options: {
  readonly port: number
  readonly stateFile: string | null
}): readonly string[] {
  const { port, stateFile } = options
  return [
    '--host',
    '127.0.0.1',
    '--port',
    String(port),
    '--chain-id',
    String(DEVELOPMENT_CHAIN_ID),
    // No page in a browser may talk to it, and no line per call is written.
    '--no-cors',
    '--quiet',
    // States of old blocks are not needed and cost memory or disk; transactions and receipts are
    // kept, all of them.
    '--prune-history',
    '64',
    // More ether than any number of anchors costs.
    '--balance',
    '1000000000',
    ...(stateFile === null ? [] : ['--load-state', stateFile]),
  ]
}

/**
 * The suffixes of the platform packages of @foundry-rs/anvil 1.x (its const.mjs), by
 * `process.platform`-`process.arch`.
 */
const PLATFORM_PACKAGES: Readonly<Record<string, string>> = {
  'darwin-arm64': 'darwin-arm64',
  'darwin-x64': 'darwin-amd64',
  'linux-arm64': 'linux-arm64',
  'linux-x64': 'linux-amd64',
  'win32-x64': 'win32-amd64',
}

/**
 * Path of anvil's own executable. The package's `anvil` command is a Node.js program around it that
 * ignores a SIGKILL of its parent and costs a process; so it is passed by. Rejects with
 * StartFailure when the package is not installed, which is an optional one, and with Error when it
 * has no build for this platform.
 */
export async function findAnvilBinary(
  platform: NodeJS.Platform,
  architecture: string,
): Promise<string> {
  const suffix = PLATFORM_PACKAGES[`${platform}-${architecture}`]
  if (suffix === undefined) throw new Error(`anvil has no build for ${platform} ${architecture}`)
  // Resolved from the package that depends on it, which also finds it when it is nested there.
  const locate = () => {
    const fromAnvil = createRequire(
      createRequire(import.meta.url).resolve('@foundry-rs/anvil/package.json'),
    )
    return dirname(fromAnvil.resolve(`@foundry-rs/anvil-${suffix}/package.json`))
  }
  const folder = await loadOptional('@foundry-rs/anvil', locate, {
    purpose: 'anvil',
    instead: 'set CHAIN_RPC_URL, RELAYER_PRIVATE_KEY and CONTRACT_ADDRESS',
  })
  return join(folder, 'bin', platform === 'win32' ? 'anvil.exe' : 'anvil')
}
