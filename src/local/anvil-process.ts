import { setTimeout as sleep } from 'node:timers/promises'
import { DEVELOPMENT_CHAIN_ID } from '../chain/open-chain.ts'
import type { Rpc } from '../chain/rpc.ts'
import { findAnvilBinary } from './anvil-binary.ts'
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
 * Starts anvil on 127.0.0.1 with the state in `stateFile`, or with a new chain for null, and resolves when `rpc`, which
 * must lead there, is answered. Rejects with AnvilFailure; `ended` is also what it does on a state that it cannot read.
 */
export async function startAnvilProcess(options: {
  readonly port: number
  readonly rpc: Rpc
  readonly stateFile: string | null
}): Promise<GuardedProcess> {
  const anvil = await spawnGuarded({
    command: findAnvilBinary(process.platform, process.arch),
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
    ...['--host', '127.0.0.1', '--port', String(port), '--chain-id', String(DEVELOPMENT_CHAIN_ID)],
    // No page in a browser may talk to it, and no line per call is written.
    ...['--no-cors', '--quiet'],
    // States of old blocks are not needed and cost memory or disk; transactions and receipts are kept, all of them.
    ...['--prune-history', '64'],
    // More ether than any number of anchors costs.
    ...['--balance', '1000000000'],
    ...(stateFile === null ? [] : ['--load-state', stateFile]),
  ]
}
